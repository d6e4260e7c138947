"""The load of a row: what was asked of the server, in one of a few forms."""

from __future__ import annotations

import re
from dataclasses import dataclass

from headrace.forecast.reason import CannotJudge
from headrace.forecast.row import Row
from headrace.perf.options import Speculation

# L2 reads against DRAM reads on RTX PRO 6000: the state kernels of aiconfigurator's operator table, which fit
# the L2, run at 2.4 times the data sheet's bandwidth (accuracy prototype, §7).
_CACHE_RATE = 2.4


@dataclass(frozen=True, slots=True)
class ClosedLoop:
    """`in_flight` requests are kept in flight, each of these lengths."""

    in_flight: float
    input_tokens: float
    output_tokens: float


@dataclass(frozen=True, slots=True)
class Batch:
    """`requests` are given at once; the run lasts until the last is done."""

    requests: float
    input_tokens: float
    output_tokens: float


@dataclass(frozen=True, slots=True)
class Decoding:
    """`in_flight` requests decode at `context_tokens` each; no prefill falls into the time measured.

    Where `shares_context`, all of them stand on one and the same context, held once in the prefix cache.
    """

    in_flight: float
    context_tokens: float
    shares_context: bool = False

    @property
    def tokens_read(self) -> float:
        """Tokens of context that one request reads from memory: less what the cache gives of a shared one.

        The first reading of a shared context goes to memory; those of other requests in the same step come
        from the L2 cache, at so many times the memory's rate.
        """
        if not self.shares_context:
            return self.context_tokens
        return self.context_tokens * (1.0 + (self.in_flight - 1.0) / _CACHE_RATE) / self.in_flight


@dataclass(frozen=True, slots=True)
class Saturated:
    """More requests than can run are given; the server runs what it holds."""

    input_tokens: float
    output_tokens: float


@dataclass(frozen=True, slots=True)
class OpenLoop:
    """Requests arrive at a rate, whether or not earlier ones are done."""

    requests_per_second: float
    input_tokens: float
    output_tokens: float


Load = ClosedLoop | Batch | Decoding | Saturated | OpenLoop

# How a table calls its kinds of load.
_CLOSED = {"closed_loop_concurrency", "single_request"}
_AT_ONCE = {"offline_static_batch", "static_batch", "all_at_once", "batch_size_field"}
_FULL = {"offline_max_throughput_inf_rate", "offline_throughput"}
_NO_DECODE = {"single_prefill", "prefill_microbatch"}
_MOST_TOKENS = 4_000_000  # of one request; more is no length that a server was measured at
_MOST_REQUESTS = 1_000_000


def load_of(row: Row) -> Load:
    """Returns the load of a row.

    Raises:
        CannotJudge: the row does not say how many requests or of what lengths, or measures no decoding.
    """
    kind = row.text("load_kind").lower()
    if kind in _NO_DECODE:
        raise CannotJudge("prefill alone was measured: no decode step to predict")
    if kind.startswith("mlperf"):
        raise CannotJudge("MLPerf row: lengths are a data set's, not stated in the row")
    if kind == "offline_eval":
        raise CannotJudge("an evaluation run: lengths not stated")
    requests = row.number("concurrency") or row.number("batch_size")
    if requests is not None and not 1 <= requests <= _MOST_REQUESTS:
        raise CannotJudge(f"{requests:g} requests in flight: no load that can be judged")
    if kind == "sustained_decode" or (kind == "static_batch" and row.number("context_len") is not None):
        context = row.number("context_len")
        if requests is None or context is None:
            raise CannotJudge("requests in flight or context not stated")
        # benchmarks that fill the context once, before they measure, fill it with one text for all users
        shared = "context already prefilled" in row.text("notes")
        return Decoding(requests, max(1.0, _length(context)), shared)
    input_tokens, output_tokens = row.number("input_len"), row.number("output_len")
    if input_tokens is None or output_tokens is None:
        missing = (
            "input and output" if input_tokens is output_tokens else "output" if input_tokens else "input"
        )
        raise CannotJudge(f"{missing} length not stated")
    lengths = (_length(input_tokens), _length(output_tokens))
    if output_tokens < 2:
        raise CannotJudge("one output token: prefill alone was measured")
    if kind == "open_loop_rate":
        rate = row.number("request_rate")
        if rate is None:
            raise CannotJudge("request rate not stated")
        return OpenLoop(rate, *lengths)
    if kind in _FULL:
        return Batch(row.numbers["batch_size"], *lengths) if row.number("batch_size") else Saturated(*lengths)
    if requests is None:
        raise CannotJudge("requests in flight not stated")
    if kind in _AT_ONCE or (not kind and row.number("concurrency") is None):
        return Batch(requests, *lengths)
    return ClosedLoop(requests, *lengths)


def _length(tokens: float) -> float:
    if tokens > _MOST_TOKENS:
        raise CannotJudge(f"a length of {tokens:g} tokens: no request that can be judged")
    return tokens


_ACCEPTED = re.compile(r"accept(?:ance)?[ _-]?len(?:gth)?\D{0,12}?(\d+(?:\.\d+)?)", re.IGNORECASE)
_DRAFTED = re.compile(r"(\d+)\s*draft|draft[ _-]?tokens?\s*[=:]?\s*(\d+)", re.IGNORECASE)


def speculation_of(row: Row) -> Speculation | None:
    """Returns the speculation a row states, None where it says that there is none, or nothing.

    Raises:
        CannotJudge: it speculates, and how many tokens a step yields is not stated.
    """
    text = row.text("spec_decode").lower()
    if not text or text in {"none", "none stated", "off", "no", "false"}:
        return None
    whole = f"{text}; {row.text('notes')}"
    accepted = _ACCEPTED.search(whole)
    if accepted is None:
        raise CannotJudge("speculation without an acceptance length")
    length = float(accepted.group(1))
    drafted = _DRAFTED.search(text)
    tokens = int(next(filter(None, drafted.groups()))) if drafted else int(length) + 1
    if not 1.0 <= length <= tokens <= 64:
        raise CannotJudge(f"acceptance length {length:g} of {tokens} draft tokens: impossible")
    return Speculation(tokens, length, tokens - 1 if "mtp" in text or "nextn" in text else 0)
