"""What one line of an engine's log says, in headrace's words: what the parsers give, and `observe` takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

Value = float | str
NOTHING: Mapping[str, str] = MappingProxyType({})
NO_RANKS: Mapping[str, int] = MappingProxyType({})

KINDS: Mapping[str, str] = MappingProxyType(
    {
        "decode": "SGLang: the state after some decode steps",
        "prefill": "SGLang: one prefill batch, before it runs",
        "stats": "vLLM: the averages of an interval; SGLang's /v1/loads has the like",
        "speculation": "vLLM: acceptance of drafted tokens over an interval",
        "request": "one request's end: lengths and times",
        "settings": "values the server runs with, by the engine's own names, allow-listed",
        "capacity": "sizes and limits: cap, pools, slots, blocks",
        "memory": "free and used memory at one stage of the start; `stage` says which",
        "boot": "another step of the start: version, architecture, back ends, timings",
        "ready": "the server answers from here on",
        "retraction": "work of running requests was thrown away for lack of room",
        "warning": "the server warns; `failure` is its id in the catalogue, or empty",
        "failure": "an error or crash; `failure` is its id in the catalogue, or `exception`",
        "note": "said by the server, and nothing to act on",
        "traceback": "a line inside an error's trace",
        "access": "one HTTP request; values: status, path",
        "shutdown": "the server stops or drains",
        "metric": "a line of a metrics page that was pasted among log lines",
    }
)
"""Every kind of event, and what it means."""


@dataclass(slots=True)
class LogEvent:
    """One understood line.

    Attributes:
        kind: one of `KINDS`.
        engine: `sglang`, `vllm`, `llamacpp`; "" where any program might have said it and the log does not
            tell whose it is.
        time_seconds: seconds since 1970 as the line's own clock wrote them. The zone is taken as UTC and a
            missing year as 2000, so only differences within one log mean something; None without a time.
        ranks: parallel ranks as labelled: `dp`, `pp`, `tp`, `ep`, `dcp`, `attn_cp`, `moe_dp`, `engine`.
        values: numbers and short words. Names are those of `observe.readings` where there is one (`running`,
            `queued`, `kv_usage`, `state_usage`, `output_tokens_per_s`, `cap`, …); fractions are 0…1, sizes
            bytes unless the name ends in another unit, flags 1.0 or 0.0. Settings keep the engine's names.
        unknown: `key: value` pairs of the line that nobody knows, as written, secrets removed.
        failure: id in the engine's failure catalogue, "" where the line is none of it.
        text: the message without prefix, secrets removed, at most 400 characters; "" for measurements.
        host: the pod, container, node or process the line was labelled with, "" where it was not.
        repeated: how many lines this one stands for (Ray folds equal lines of several workers).
    """

    kind: str
    engine: str
    time_seconds: float | None = None
    ranks: Mapping[str, int] = field(default_factory=lambda: NO_RANKS)
    values: Mapping[str, Value] = field(default_factory=dict)
    unknown: Mapping[str, str] = field(default_factory=lambda: NOTHING)
    failure: str = ""
    text: str = ""
    host: str = ""
    repeated: int = 1

    def number(self, name: str) -> float | None:
        """Returns a numeric value by name, None where it is missing or a word."""
        value = self.values.get(name)
        return None if value is None or isinstance(value, str) else value
