"""The Prometheus exporter: names, numbers, and that it can be scraped."""

from __future__ import annotations

import urllib.request

import pytest
from prometheus_client.core import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from headrace.errors import UsageError
from headrace.report.metrics import METRICS, JobCollector, MetricsServer
from tests.unit.report.statuses import endpoint, status


def samples(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def exposition(**changes: object) -> str:
    collector = JobCollector()
    collector.latest = status(**changes)
    registry = CollectorRegistry()
    registry.register(collector)
    return generate_latest(registry).decode()


def test_figures_have_the_names_that_docs_give() -> None:
    found = samples(
        exposition(endpoints=[endpoint(0), endpoint(1, state="broken", errors={"refused": 3}, cap=None)])
    )
    first, second = (("server", "http://127.0.0.1:30000"),), (("server", "http://127.0.0.1:30001"),)
    assert found["headrace_rows", (("state", "done"),)] == 123_456
    assert found["headrace_rows", (("state", "pending"),)] == 175_500
    assert found["headrace_source_rows", (("source", "gsm8k"), ("state", "done"))] == 456
    assert found["headrace_output_tokens_per_second", ()] == 12_040.4
    assert found["headrace_settled", ()] == 0
    assert found["headrace_in_flight", first] == 38
    assert found["headrace_server_cap", first] == 37
    assert ("headrace_server_cap", second) not in found
    assert found["headrace_answers_total", ()] == 120_000
    assert found["headrace_failed_tries_total", (("kind", "503"),)] == 12
    assert found["headrace_server_failed_tries_total", (("kind", "refused"), *second)] == 3
    assert found["headrace_server_state", (*second, ("state", "broken"))] == 1
    assert found["headrace_server_state", (*second, ("state", "reachable"))] == 0
    assert found["headrace_phase", (("phase", "running"),)] == 1
    assert sum(value for (name, _), value in found.items() if name == "headrace_phase") == 1


def test_every_metric_stands_once_and_says_what_it_is() -> None:
    names = [metric.name for metric in METRICS]
    assert len(set(names)) == len(names)
    assert all(metric.help.endswith(".") for metric in METRICS)


def test_it_can_be_scraped_and_listens_on_this_machine_only() -> None:
    with MetricsServer("127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.port}/metrics"
        with urllib.request.urlopen(url, timeout=5) as answer:
            assert "headrace_rows" not in answer.read().decode()
        server.show(status())
        with urllib.request.urlopen(url, timeout=5) as answer:
            assert samples(answer.read().decode())["headrace_rows_all", ()] == 300_000
        with pytest.raises(UsageError, match="Choose another --metrics-port"):
            MetricsServer("127.0.0.1", server.port)
