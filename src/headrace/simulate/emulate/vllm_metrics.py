"""The /metrics page of an emulated vLLM: names, labels and bounds as 0.32.0 was recorded to show them.

Shown are the families that say something about an emulated engine. Left out: sleep states, external and
multimodal caches, estimated FLOPs, and what the Python process counts of itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from headrace.engines.versions import Version
from headrace.simulate.emulate.metrics import Histogram, family, labelled
from headrace.simulate.emulate.planned import PlannedServer
from headrace.simulate.emulate.timing import Load

_LENGTHS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0, 10000.0, 20000.0,
            50000.0, 100000.0, 200000.0)  # fmt: skip
_FIRST = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0,
          40.0, 80.0, 160.0, 640.0, 2560.0)  # fmt: skip
_BETWEEN = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0,
            40.0, 80.0)  # fmt: skip
_LATENCY = (0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0,
            480.0, 960.0, 1920.0, 7680.0)  # fmt: skip
_SIZES_TOLD = Version(0, 32, 0)  # the first version recorded with the pool's size among the labels


class VllmMetrics:
    """The counters and histograms of one server, and the page that shows them."""

    def __init__(self, server: PlannedServer) -> None:
        self._server = server
        self._labels = {"engine": "0", "model_name": server.model}
        self.aborted_requests = 0
        self.http_requests: Counter[tuple[str, str]] = Counter()
        self.http_responses: Counter[tuple[str, str, str]] = Counter()
        self.http_active: Counter[tuple[str, str]] = Counter()
        self._ended: Counter[str] = Counter()
        longest = server.context_length
        lengths = tuple(bound for bound in _LENGTHS if bound <= longest)
        self._prompt = Histogram("vllm:request_prompt_tokens", "Number of prefill tokens processed.", lengths)
        self._generation = Histogram(
            "vllm:request_generation_tokens", "Number of generation tokens processed.", lengths
        )
        self._first = Histogram(
            "vllm:time_to_first_token_seconds", "Histogram of time to first token in seconds.", _FIRST
        )
        self._between = Histogram(
            "vllm:inter_token_latency_seconds", "Histogram of inter-token latency in seconds.", _BETWEEN
        )
        self._per_token = Histogram(
            "vllm:request_time_per_output_token_seconds",
            "Histogram of time_per_output_token_seconds per request.",
            _BETWEEN,
        )
        self._latency = Histogram(
            "vllm:e2e_request_latency_seconds", "Histogram of e2e request latency in seconds.", _LATENCY
        )
        self._queue = Histogram(
            "vllm:request_queue_time_seconds",
            "Histogram of time spent in WAITING phase for request.",
            _LATENCY,
        )

    def finished(
        self,
        prompt_tokens: int,
        tokens: int,
        queue_seconds: float,
        first_token_seconds: float,
        latency_seconds: float,
        reason: str,
    ) -> None:
        """Counts one request that ended; all durations in clock seconds."""
        self._ended[reason] += 1
        self._prompt.observe(prompt_tokens)
        self._generation.observe(tokens)
        self._queue.observe(queue_seconds)
        self._first.observe(first_token_seconds)
        self._latency.observe(latency_seconds)
        if tokens > 1:
            each = (latency_seconds - first_token_seconds) / (tokens - 1)
            self._between.observe(each, tokens - 1)
            self._per_token.observe(each)

    def page(self, load: Load, tokens_per_second: float) -> str:
        """Returns the whole page."""
        del tokens_per_second  # vLLM shows no rates
        lines = [*self._gauges(load), *self._counters(load)]
        for histogram in (
            self._prompt, self._generation, self._first, self._between, self._per_token, self._latency,
            self._queue,
        ):  # fmt: skip
            lines += histogram.lines(self._labels)
        lines += self._config()
        return "\n".join(lines) + "\n"

    def _gauges(self, load: Load) -> Iterable[str]:
        labels = labelled(self._labels)
        for name, text, value in (
            ("num_requests_running", "Number of requests in model execution batches.", load.running),
            ("num_requests_waiting", "Number of requests waiting to be processed.", load.queued),
            ("kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.", load.kv_share),
        ):
            yield from family(f"vllm:{name}", text, "gauge")
            yield f"vllm:{name}{labels} {float(value)!r}"

    def _counters(self, load: Load) -> Iterable[str]:
        labels = labelled(self._labels)
        made = load.decode_tokens_done + load.first_tokens_done
        prompts = load.prompt_tokens_done + load.cached_tokens_done
        caches = self._server.kind.rules.rules["prefix_tokens"] > 0
        for name, text, value in (
            (
                "prefix_cache_queries_total",
                "Prefix cache queries, in terms of number of queried tokens.",
                prompts if caches else 0,
            ),
            (
                "prefix_cache_hits_total",
                "Prefix cache hits, in terms of number of cached tokens.",
                load.cached_tokens_done,
            ),
            (
                "num_preemptions_total",
                "Cumulative number of preemption from the engine.",
                load.retractions_done,
            ),
            ("prompt_tokens_total", "Number of prefill tokens processed.", prompts),
            (
                "prompt_tokens_cached_total",
                "Number of cached prompt tokens (local + external).",
                load.cached_tokens_done,
            ),
            ("generation_tokens_total", "Number of generation tokens processed.", made),
        ):
            yield from family(f"vllm:{name}", text, "counter")
            yield f"vllm:{name}{labels} {float(value)!r}"
        name = "vllm:request_success_total"
        yield from family(name, "Count of successfully processed requests.", "counter")
        for reason in ("stop", "length", "abort", "error", "repetition"):
            yield f"{name}{labelled(self._labels | {'finished_reason': reason})} {float(self._ended[reason])}"

    def _config(self) -> Iterable[str]:
        server = self._server
        plan = server.plan
        block = int(plan.figure("block_tokens") or 16)
        told = {
            "engine": "0",
            "block_size": block,
            "cache_dtype": server.setting("kv_cache_dtype"),
            "enable_prefix_caching": server.kind.rules.rules["prefix_tokens"] > 0,
            "gpu_memory_utilization": server.setting("gpu_memory_utilization"),
            "kv_cache_memory_bytes": server.setting("kv_cache_memory_bytes"),
            "mamba_cache_dtype": server.setting("mamba_cache_dtype") or "auto",
            "mamba_cache_mode": server.setting("mamba_cache_mode") or "none",
            "mamba_ssm_cache_dtype": server.setting("mamba_ssm_cache_dtype") or "auto",
            "num_gpu_blocks": int(plan.figure("blocks") or 0),
            "num_gpu_blocks_override": server.setting("num_gpu_blocks_override"),
        }
        if (Version.parse(server.version) or _SIZES_TOLD) >= _SIZES_TOLD:
            told |= {
                "effective_attention_block_size": block,
                "kv_cache_max_concurrency": plan.figure("max_concurrency"),
                "kv_cache_size_tokens": server.pool_tokens,
            }
        name = "vllm:cache_config_info"
        yield from family(name, "Information of the LLMEngine CacheConfig", "gauge")
        yield f"{name}{labelled({label: str(value) for label, value in told.items()})} 1.0"
