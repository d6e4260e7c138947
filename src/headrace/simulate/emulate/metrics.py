"""The /metrics page of an emulated server: names, labels and meanings of SGLang 0.5.12's families.

Shown are the families that say something about an emulated engine, and the scheduler's gauges that stand at
0 on a server without sliding windows, state pools, speculation or disaggregation. Left out: routing keys,
per-stage times, evictions, process CPU. Unlike the real ones, the gauges are fresh at every scrape.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping

from headrace.simulate.emulate.planned import PlannedServer
from headrace.simulate.emulate.timing import Load

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_SECONDS_TO_TOKEN = (0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 2.0, 4.0, 6.0, 8.0, 10.0, 20.0, 40.0, 60.0, 80.0,
                     100.0, 200.0, 400.0)  # fmt: skip
_SECONDS_END_TO_END = (*_SECONDS_TO_TOKEN, 600.0, 1200.0, 1800.0, 2400.0)
_SECONDS_QUEUED = (0.0, 0.001, 0.005, 0.01, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 15.0, 20.0,
                   30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 100.0, 200.0, 300.0, 400.0, 500.0, 600.0, 700.0,
                   800.0, 900.0, 1000.0, 1200.0, 1400.0, 1600.0, 1800.0, 2000.0, 2500.0, 3000.0)  # fmt: skip
_SECONDS_BETWEEN = (0.002, 0.004, 0.006, 0.008, 0.01, 0.015, 0.02, 0.025, 0.03, 0.035, 0.04, 0.06, 0.08, 0.1,
                    0.2, 0.4, 0.6, 0.8, 1.0, 2.0, 4.0, 6.0, 8.0)  # fmt: skip
_TOKENS = (100.0, 300.0, 500.0, 700.0, 1000.0, 1500.0, 2000.0, 3000.0, 4000.0, 5000.0, 6000.0, 7000.0, 8000.0,
           9000.0, 10000.0, 12500.0, 15000.0, 17500.0, 20000.0, 22500.0, 25000.0, 27500.0, 30000.0, 35000.0,
           40000.0, 60000.0, 80000.0, 100000.0, 200000.0, 300000.0, 400000.0, 600000.0, 800000.0, 1e6,
           1.1e6)  # fmt: skip


class Histogram:
    """A histogram as the Prometheus client shows it."""

    def __init__(self, name: str, help_text: str, bounds: tuple[float, ...]) -> None:
        self.name = name
        self.help_text = help_text
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        """Counts a value, so many times."""
        self._counts[bisect_left(self._bounds, value)] += times
        self._sum += value * times

    def lines(self, labels: Mapping[str, str]) -> Iterable[str]:
        """Yields its lines of the page."""
        yield f"# HELP {self.name} {self.help_text}"
        yield f"# TYPE {self.name} histogram"
        yield f"{self.name}_sum{labelled(labels)} {self._sum!r}"
        total = 0
        for bound, count in zip((*self._bounds, math.inf), self._counts, strict=True):
            total += count
            yield f"{self.name}_bucket{labelled({**labels, 'le': _number(bound)})} {float(total)}"
        yield f"{self.name}_count{labelled(labels)} {float(total)}"


class ServerMetrics:
    """The counters and histograms of one server, and the page that shows them.

    Args:
        model: value of the `model_name` label.
        pool_tokens, context_length: shown as they are.
    """

    def __init__(
        self, model: str, pool_tokens: int, context_length: int, server: PlannedServer | None = None
    ) -> None:
        self._server = server
        self._tokenizer_labels = {"engine_type": "unified", "model_name": model}
        self._scheduler_labels = self._tokenizer_labels | {
            "moe_ep_rank": "0",
            "pp_rank": "0",
            "tp_rank": "0",
        }
        self._pool_tokens = pool_tokens
        self._context_length = context_length
        self.prompt_tokens = 0
        self.generation_tokens = 0
        self.requests = 0
        self.aborted_requests = 0
        self.http_requests: Counter[tuple[str, str]] = Counter()  # endpoint, method
        self.http_responses: Counter[tuple[str, str, str]] = Counter()  # endpoint, method, status
        self.http_active: Counter[tuple[str, str]] = Counter()
        self._first_token = Histogram(
            "sglang:time_to_first_token_seconds",
            "Histogram of time to first token in seconds.",
            _SECONDS_TO_TOKEN,
        )
        self._end_to_end = Histogram(
            "sglang:e2e_request_latency_seconds",
            "Histogram of End-to-end request latency in seconds",
            _SECONDS_END_TO_END,
        )
        self._prompt = Histogram(
            "sglang:prompt_tokens_histogram", "Histogram of prompt token length.", _TOKENS
        )
        self._uncached = Histogram(
            "sglang:uncached_prompt_tokens_histogram",
            "Histogram of uncached (compute) prompt token length.",
            _TOKENS,
        )
        self._generation = Histogram(
            "sglang:generation_tokens_histogram", "Histogram of generation token length.", _TOKENS
        )
        self._between = Histogram(
            "sglang:inter_token_latency_seconds",
            "Histogram of inter-token latency in seconds.",
            _SECONDS_BETWEEN,
        )
        self._queue = Histogram(
            "sglang:queue_time_seconds", "Histogram of queueing time in seconds.", _SECONDS_QUEUED
        )

    @property
    def _slots(self) -> int:
        return (self._server.state_slots or 0) if self._server is not None else 0

    def finished(
        self,
        prompt_tokens: int,
        tokens: int,
        queue_seconds: float,
        first_token_seconds: float,
        latency_seconds: float,
        reason: str = "stop",
    ) -> None:
        """Counts one request that ran to its end; all durations in clock seconds."""
        del reason  # SGLang counts all ends alike
        self.requests += 1
        self.prompt_tokens += prompt_tokens
        self.generation_tokens += tokens
        self._prompt.observe(prompt_tokens)
        self._uncached.observe(prompt_tokens)
        self._generation.observe(tokens)
        self._queue.observe(queue_seconds)
        self._first_token.observe(first_token_seconds)
        self._end_to_end.observe(latency_seconds)
        if tokens > 1:
            self._between.observe((latency_seconds - first_token_seconds) / (tokens - 1), tokens - 1)

    def page(self, load: Load, tokens_per_second: float) -> str:
        """Returns the whole page. `tokens_per_second` is generation by the clock."""
        lines: list[str] = []
        scheduler, tokenizer = labelled(self._scheduler_labels), labelled(self._tokenizer_labels)
        pool, slots = self._pool_tokens, self._slots
        used = load.context_tokens if self._server is None else round(load.kv_share * pool)
        usage = used / pool
        states = load.state_slots / slots if slots else 0
        gauges: tuple[tuple[str, str, float], ...] = (
            ("max_total_num_tokens", "Maximum total number of tokens in the KV cache pool.", pool),
            ("page_size", "KV cache page size in tokens.", 1),
            ("num_pages", "Number of KV cache pages.", pool),
            ("context_len", "Maximum context length.", self._context_length),
            ("num_running_reqs", "The number of running requests.", load.running),
            ("num_queue_reqs", "The number of requests in the waiting queue.", load.queued),
            ("num_grammar_queue_reqs", "The number of requests in the grammar waiting queue.", 0),
            ("gen_throughput", "The generation throughput (token/s).", tokens_per_second),
            ("cache_hit_rate", "The prefix cache hit rate.", 0),
            ("decode_sum_seq_lens", "The sum of all sequence lengths in decode.", used),
            ("token_usage", "The token usage.", round(max(usage, states), 2)),
            ("full_token_usage", "The token usage for full attention layers.", usage),
            ("swa_token_usage", "The token usage for SWA layers.", 0),
            ("mamba_usage", "The token usage for Mamba layers.", states),
            ("num_used_tokens", "The number of used tokens.", used),
            ("kv_available_tokens", "Number of free token slots in the KV cache pool.", pool - used),
            ("kv_evictable_tokens", "Number of evictable (radix-cached) token slots.", 0),
            ("kv_used_tokens", "Number of actively used token slots in the KV cache pool.", used),
            ("spec_accept_length", "Mean acceptance length of speculative decoding.", 0),
            ("utilization", "The utilization.", 0),
            ("new_token_ratio", "The new token ratio.", 1),
            ("is_cuda_graph", "Whether the batch is using CUDA graph.", 1),
            ("num_retracted_reqs", "The number of retracted requests.", 0),
            ("num_paused_reqs", "The number of paused requests by async weight sync.", 0),
        )  # fmt: skip
        if slots:
            gauges += (
                ("mamba_available_tokens", "Number of free Mamba state slots.", slots - load.state_slots),
                ("mamba_evictable_tokens", "Number of evictable Mamba state slots.", 0),
                ("mamba_used_tokens", "Number of actively used Mamba state slots.", load.state_slots),
            )
        for name, help_text, value in gauges:
            lines += family(f"sglang:{name}", help_text, "gauge")
            lines.append(f"sglang:{name}{scheduler} {float(value)!r}")
        lines += family(
            "sglang:cuda_graph_passes_total", "Total number of forward passes by CUDA graph.", "counter"
        )
        for mode, count in (
            ("prefill_none", load.prefills_done),
            ("decode_cuda_graph", load.decode_steps_done),
        ):
            lines.append(
                f"sglang:cuda_graph_passes_total{labelled({**self._scheduler_labels, 'mode': mode})} "
                f"{float(count)}"
            )
        if load.retractions_done:  # labelled counters are not there before they first move
            name = "sglang:num_retracted_requests_total"
            lines += family(name, "Total number of retracted requests.", "counter")
            lines.append(f"{name}{scheduler} {float(load.retractions_done)}")
        lines += family(
            "sglang:realtime_tokens_total",
            "Total number of tokens processed. mode: prefill_compute, prefill_cache, decode.",
            "counter",
        )
        for mode, count in (
            ("prefill_compute", load.prompt_tokens_done),
            ("prefill_cache", load.cached_tokens_done),
            ("decode", load.decode_tokens_done),
        ):
            lines.append(
                f"sglang:realtime_tokens_total{labelled({**self._scheduler_labels, 'mode': mode})} "
                f"{float(count)}"
            )
        for histogram in (
            self._first_token,
            self._end_to_end,
            self._prompt,
            self._uncached,
            self._generation,
            self._between,
        ):
            lines += histogram.lines(self._tokenizer_labels)
        lines += self._queue.lines(self._scheduler_labels)
        for name, help_text, total in (
            ("prompt_tokens_total", "Number of prefill tokens processed.", self.prompt_tokens),
            ("generation_tokens_total", "Number of generation tokens processed.", self.generation_tokens),
            ("num_requests_total", "Number of requests processed.", self.requests),
            ("num_aborted_requests_total", "Number of requests aborted.", self.aborted_requests),
        ):
            lines += family(f"sglang:{name}", help_text, "counter")
            lines.append(f"sglang:{name}{tokenizer} {float(total)}")
        lines += self._http_lines()
        return "\n".join(lines) + "\n"

    def _http_lines(self) -> Iterable[str]:
        yield from family(
            "sglang:http_requests_total", "Total number of HTTP requests by endpoint and method", "counter"
        )
        for (endpoint, method), count in self.http_requests.items():
            yield f"sglang:http_requests_total{labelled({'endpoint': endpoint, 'method': method})} {count}.0"
        yield from family(
            "sglang:http_responses_total",
            "Total number of HTTP responses by endpoint and status code",
            "counter",
        )
        for (endpoint, method, status), count in self.http_responses.items():
            labels = labelled({"endpoint": endpoint, "method": method, "status_code": status})
            yield f"sglang:http_responses_total{labels} {count}.0"
        yield from family("sglang:http_requests_active", "Number of currently active HTTP requests", "gauge")
        for (endpoint, method), count in self.http_active.items():
            yield f"sglang:http_requests_active{labelled({'endpoint': endpoint, 'method': method})} {count}.0"


def family(name: str, help_text: str, kind: str) -> tuple[str, str]:
    """Returns the two lines before a family's samples."""
    return f"# HELP {name} {help_text}", f"# TYPE {name} {kind}"


def labelled(labels: Mapping[str, str]) -> str:
    """Returns labels as they stand behind a name."""
    shown = ",".join(f'{name}="{_escaped(labels[name])}"' for name in sorted(labels))
    return "{" + shown + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    if value == math.inf:
        return "+Inf"
    return f"{value:.1e}".replace("1.0e+06", "1e+06") if value >= 1e6 else repr(value)
