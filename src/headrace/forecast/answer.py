"""From a case to its prediction: the step model under the load that the row states."""

from __future__ import annotations

from headrace.forecast.case import Case
from headrace.forecast.load import Batch, ClosedLoop, Decoding, OpenLoop, Saturated
from headrace.forecast.prediction import Prediction
from headrace.perf.closed_loop import Served, closed_loop
from headrace.perf.step_model import StepModel
from headrace.quantities import Estimate

_ROUNDS = 12  # of the fixed point of an open loop; each halves the distance


def answer(name: str, case: Case) -> Prediction:
    """Returns the prediction of a case, for all its attention ranks together."""
    step, load = case.step, case.load
    ranks = case.layout.dp
    if isinstance(load, ClosedLoop):
        return _served(name, case, _loop(case, step, load.in_flight / ranks, load))
    if isinstance(load, Saturated):
        full = case.cap if case.cap < float("inf") else case.kv_tokens / load.input_tokens
        return _served(name, case, _loop(case, step, max(1.0, full), load))
    if isinstance(load, OpenLoop):
        return _open(name, case, step, load)
    if isinstance(load, Decoding):
        return _decoding(name, case, step, load)
    return _batch(name, case, step, load)


def _loop(case: Case, step: StepModel, in_flight: float, load: ClosedLoop | Saturated | OpenLoop) -> Served:
    return closed_loop(
        step,
        max(1.0, in_flight),
        input_tokens=load.input_tokens,
        output_tokens=load.output_tokens,
        cap=case.cap,
        kv_tokens=case.kv_tokens,
    )


def _served(name: str, case: Case, served: Served) -> Prediction:
    ranks = float(case.layout.dp)
    return Prediction(
        name,
        served.token_seconds.scaled(1e3),
        served.output_tokens_per_second.scaled(ranks),
        served.total_tokens_per_second.scaled(ranks),
        running=served.running * ranks,
        assumptions=case.assumptions,
    )


def _open(name: str, case: Case, step: StepModel, load: OpenLoop) -> Prediction:
    """Returns the prediction at the number in flight whose throughput is the arrival rate, the cap at
    most.
    """
    ranks = case.layout.dp
    wanted = load.requests_per_second / ranks * load.output_tokens
    low, high = 1.0, max(1.0, min(case.cap, case.kv_tokens / load.input_tokens, 4096.0))
    for _ in range(_ROUNDS):
        middle = (low * high) ** 0.5
        enough = _loop(case, step, middle, load).output_tokens_per_second.mid >= wanted
        low, high = (low, middle) if enough else (middle, high)
    served = _loop(case, step, high, load)
    found = _served(name, case, served)
    assert found.output_tok_s is not None
    share = min(
        1.0, wanted * ranks / found.output_tok_s.mid
    )  # fewer arrive than even one in flight would take
    return Prediction(
        name,
        found.tpot_ms,
        found.output_tok_s.scaled(share),
        None if found.total_tok_s is None else found.total_tok_s.scaled(share),
        running=found.running,
        assumptions=case.assumptions,
    )


def _decoding(name: str, case: Case, step: StepModel, load: Decoding) -> Prediction:
    """Returns the prediction for requests that only decode; what does not run waits, and counts as a user."""
    asked = load.in_flight / case.layout.dp
    held = case.kv_tokens / load.context_tokens if not load.shares_context else asked
    running = max(1.0, min(asked, case.cap, held))
    time = step.decode(running, running * load.tokens_read).token_seconds
    rate = _rate(running * case.layout.dp, time)
    return Prediction(
        name,
        time.scaled(1e3 * max(1.0, asked / running)),
        rate,
        rate,
        running=running * case.layout.dp,
        assumptions=case.assumptions,
    )


def _batch(name: str, case: Case, step: StepModel, load: Batch) -> Prediction:
    """Returns the prediction for requests given at once: all prompts first, then decoding; in waves where not
    all fit.
    """
    whole = load.input_tokens + load.output_tokens
    asked = load.requests / case.layout.dp
    running = max(1.0, min(asked, case.cap, case.kv_tokens / whole))
    if running < asked:  # as one leaves the next comes: the steady state of a closed loop
        served = _loop(case, step, running, Saturated(load.input_tokens, load.output_tokens))
        return _served(name, case, served)
    time = step.decode(running, running * (load.input_tokens + load.output_tokens / 2.0))
    chunk = float(step.options.chunk_tokens)
    passes = max(1.0, -(-running * load.input_tokens // chunk))
    tokens = running * load.input_tokens / passes
    prefill = passes * step.prefill_seconds(tokens, 0.0, max(1.0, running / passes))
    steps = max(1.0, load.output_tokens - 1.0) / time.tokens_per_request
    seconds = prefill + steps * time.seconds.mid
    spread = (time.seconds.low / time.seconds.mid, time.seconds.high / time.seconds.mid)

    def rate(tokens: float) -> Estimate:
        mid = tokens / seconds
        return Estimate(mid / spread[1], mid, mid / spread[0], "tokens/s")

    return Prediction(
        name,
        time.token_seconds.scaled(1e3),
        rate(load.requests * load.output_tokens),
        rate(load.requests * whole),
        running=running * case.layout.dp,
        assumptions=case.assumptions,
    )


def _rate(requests: float, seconds: Estimate) -> Estimate:
    return Estimate(requests / seconds.high, requests / seconds.mid, requests / seconds.low, "tokens/s")
