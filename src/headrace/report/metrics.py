"""A running job for Prometheus: the latest status document, read whenever somebody scrapes.

`METRICS` is the one list of what is exported; the docs' table is made from it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from prometheus_client.core import CollectorRegistry, CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import start_http_server
from prometheus_client.registry import Collector

from headrace.drive.status import JobStatus
from headrace.errors import UsageError

_Samples = Iterable[tuple[tuple[str, ...], float | None]]  # label values, value; None is not exported

PHASES = ("starting", "running", "paused", "draining", "finished", "stopped")
ENDPOINT_STATES = ("reachable", "limited", "broken", "refusing", "draining", "drained", "removed")


@dataclass(frozen=True, slots=True)
class Metric:
    """One exported family.

    Attributes:
        kind: `gauge` or `counter`; a counter's name stands here without its `_total`.
        labels: names, in the order of the values that `samples` gives.
    """

    name: str
    kind: str
    help: str
    labels: tuple[str, ...]
    samples: Callable[[JobStatus], _Samples]


def _one(value: Callable[[JobStatus], float | None]) -> Callable[[JobStatus], _Samples]:
    return lambda status: [((), value(status))]


def _rows(status: JobStatus) -> _Samples:
    for state in ("done", "failed", "excluded", "pending"):
        yield (state,), getattr(status, state)


def _by_source(status: JobStatus) -> _Samples:
    for source in status.sources:
        for state in ("done", "failed", "excluded"):
            yield (source.name, state), getattr(source, state)


def _by_kind(field: str) -> Callable[[JobStatus], _Samples]:
    return lambda status: [((kind,), number) for kind, number in getattr(status, field).items()]


def _by_server(field: str) -> Callable[[JobStatus], _Samples]:
    return lambda status: [((endpoint.url,), getattr(endpoint, field)) for endpoint in status.endpoints]


def _server_errors(status: JobStatus) -> _Samples:
    for endpoint in status.endpoints:
        for kind, number in endpoint.errors.items():
            yield (endpoint.url, kind), number


def _server_states(status: JobStatus) -> _Samples:
    for endpoint in status.endpoints:
        for state in ENDPOINT_STATES:
            yield (endpoint.url, state), float(endpoint.state == state)


METRICS: tuple[Metric, ...] = (
    Metric("headrace_rows", "gauge", "Rows of the job by state; done ones are durable.", ("state",), _rows),
    Metric("headrace_rows_all", "gauge", "Rows in the job.", (), _one(lambda s: s.rows)),
    Metric("headrace_source_rows", "gauge", "Rows of a source by state.", ("source", "state"), _by_source),
    Metric(
        "headrace_source_mean_output_tokens",
        "gauge",
        "Mean output tokens of a source's finished rows.",
        ("source",),
        lambda status: [((source.name,), source.mean_output_tokens) for source in status.sources],
    ),
    Metric("headrace_answers", "counter", "Rows answered in this run.", (), _one(lambda s: s.done_this_run)),
    Metric("headrace_tries", "counter", "Requests sent in this run.", (), _one(lambda s: s.tries_this_run)),
    Metric(
        "headrace_requests_per_second",
        "gauge",
        "Answers per second over the last window.",
        (),
        _one(lambda s: s.requests_per_second),
    ),
    Metric(
        "headrace_output_tokens_per_second",
        "gauge",
        "Output tokens per second, the estimate for requests in flight included.",
        (),
        _one(lambda s: s.output_tokens_per_second),
    ),
    Metric(
        "headrace_output_tokens_per_second_finished",
        "gauge",
        "Output tokens per second of finished requests only; too low until headrace_settled is 1.",
        (),
        _one(lambda s: s.output_tokens_per_second_finished),
    ),
    Metric(
        "headrace_settled", "gauge", "1 once two median latencies have passed.", (), _one(lambda s: s.settled)
    ),
    Metric(
        "headrace_median_latency_seconds",
        "gauge",
        "Median latency of recent answers, seconds.",
        (),
        _one(lambda s: s.median_latency_seconds),
    ),
    Metric(
        "headrace_eta_seconds", "gauge", "Time left by tokens, seconds.", (), _one(lambda s: s.eta_seconds)
    ),
    Metric(
        "headrace_other_rows",
        "gauge",
        "Rows in the folder that answer none of this job's prompts.",
        (),
        _one(lambda s: s.other_rows),
    ),
    Metric(
        "headrace_phase",
        "gauge",
        "1 for the phase that the job is in.",
        ("phase",),
        lambda status: [((phase,), float(status.phase == phase)) for phase in PHASES],
    ),
    Metric("headrace_flagged_rows", "gauge", "Rows by flag.", ("flag",), _by_kind("flags")),
    Metric("headrace_failed_tries", "counter", "Tries that failed, by kind.", ("kind",), _by_kind("errors")),
    Metric("headrace_failed_rows", "gauge", "Rows in failed/, by kind.", ("kind",), _by_kind("failures")),
    Metric("headrace_hedged", "counter", "Rows asked of a second server.", (), _one(lambda s: s.hedged)),
    Metric("headrace_in_flight", "gauge", "Requests in flight.", ("server",), _by_server("in_flight")),
    Metric(
        "headrace_in_flight_limit", "gauge", "Requests in flight at most.", ("server",), _by_server("limit")
    ),
    Metric(
        "headrace_server_running",
        "gauge",
        "Running, as the server reports.",
        ("server",),
        _by_server("running"),
    ),
    Metric(
        "headrace_server_queued", "gauge", "Queued, as the server reports.", ("server",), _by_server("queued")
    ),
    Metric("headrace_server_cap", "gauge", "Cap, as the server reports it.", ("server",), _by_server("cap")),
    Metric("headrace_server_answers", "counter", "Rows it answered.", ("server",), _by_server("answered")),
    Metric(
        "headrace_server_output_tokens_per_second",
        "gauge",
        "Its output tokens per second, in flight included.",
        ("server",),
        _by_server("output_tokens_per_second"),
    ),
    Metric(
        "headrace_server_failed_tries",
        "counter",
        "Tries that failed there.",
        ("server", "kind"),
        _server_errors,
    ),
    Metric(
        "headrace_server_state", "gauge", "1 for the server's state.", ("server", "state"), _server_states
    ),
)


class JobCollector(Collector):
    """Makes the families from the latest status; nothing before the first."""

    def __init__(self) -> None:
        self.latest: JobStatus | None = None

    def collect(self) -> Iterator[Any]:
        status = self.latest
        if status is None:
            return
        for metric in METRICS:
            kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
            family = kind(metric.name, metric.help, labels=metric.labels)
            for labels, value in metric.samples(status):
                if value is not None:
                    family.add_metric(labels, float(value))
            yield family


class MetricsServer:
    """Serves `/metrics` from a thread of its own while the job runs.

    Args:
        host: address to listen on; 127.0.0.1 keeps the figures on this machine.
        port: 0 takes a free one, see `port`.

    Raises:
        UsageError: the address cannot be listened on.
    """

    def __init__(self, host: str, port: int) -> None:
        self._collector = JobCollector()
        registry = CollectorRegistry(auto_describe=False)
        registry.register(self._collector)
        try:
            self._server, self._thread = start_http_server(port, host, registry)
        except OSError as error:
            raise UsageError(
                f"metrics cannot listen on {host}:{port}: {error.strerror or error}. "
                "Choose another --metrics-port."
            ) from None
        self.port: int = self._server.server_port

    def show(self, status: JobStatus) -> None:
        """From now on, this is what is served."""
        self._collector.latest = status

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        thread: threading.Thread = self._thread
        thread.join(timeout=5)
