"""The share of wall time that prompts take."""

from __future__ import annotations

from headrace.diagnose.baseline import Baseline
from headrace.diagnose.censored import ASSUMED_PROMPT
from headrace.diagnose.context import Context
from headrace.diagnose.floor import ACHIEVED_COMPUTE, dense_rate
from headrace.observe.observation import ClientFacts, ServerObservation
from headrace.quantities import Origin, Quantity, derived

# FLOPs that a device can do while it reads one byte, where it is not known: from 62 (H20) to 295 (H100 SXM).
BALANCE = Quantity(
    200.0,
    "FLOP/byte",
    Origin.ASSUMED,
    "dense bf16 rate ÷ bandwidth: 37 (H20) to 295 (H100 SXM), data sheets",
    low=37.0,
    high=295.0,
)


def prefill_share(
    server: ServerObservation, client: ClientFacts, baseline: Baseline, context: Context
) -> Quantity | None:
    """Returns the fraction of wall time spent on prompts, with its range; None where it cannot be told.

    As told; else prompt tokens per second × FLOPs per token ÷ dense rate; else from the lengths alone: a
    prompt token costs 2 FLOPs a weight, a generated one its share of reading the weights once.
    """
    told = server.get("prefill_share_of_time")
    if told is not None:
        return told
    return _by_work(server, client, baseline, context) or _by_lengths(baseline, context)


def _fresh(baseline: Baseline) -> float:
    hits = baseline.value("cache_hit_rate")
    return 1.0 - min(max(hits or 0.0, 0.0), 1.0)


def _by_work(
    server: ServerObservation, client: ClientFacts, baseline: Baseline, context: Context
) -> Quantity | None:
    model, device = context.model, context.device
    rate = dense_rate(device, server.weights_dtype) if device is not None else None
    if model is None or rate is None:
        return None
    tokens = server.get("prefill_tokens_per_s") or _prompt_rate(server, client, baseline)
    if tokens is None:
        return None
    gpus = max(1, server.gpus or server.tensor_parallel or 1)
    work = model.flops_per_token(0.0)
    low, high = tokens.range
    reached = rate.value * ACHIEVED_COMPUTE.value * gpus
    least, most = (rate.value * edge * gpus for edge in ACHIEVED_COMPUTE.range)
    share = derived(
        min(1.0, tokens.value * work.value / reached),
        "fraction",
        "prompt tokens per second × FLOPs per token ÷ (dense rate × achieved share × GPUs)",
        tokens=tokens,
        work=work,
        rate=rate,
        share=ACHIEVED_COMPUTE,
    )
    return share.with_range(min(1.0, low * work.value / most), min(1.0, high * work.value / least))


def _prompt_rate(server: ServerObservation, client: ClientFacts, baseline: Baseline) -> Quantity | None:
    """Prompt tokens computed per second of one server, from requests per second and the prompts' length."""
    servers = max(1.0, baseline.value("servers") or 1.0)
    requests = server.get("requests_per_s")
    if requests is None:
        arriving = client.readings.get("request_rate")
        done, seconds = client.readings.get("completed"), client.readings.get("elapsed_s")
        if arriving is not None:
            requests = derived(
                arriving.value / servers, "requests/s", "arriving ÷ servers", arriving=arriving
            )
        elif done is not None and seconds is not None and seconds.value > 0:
            requests = derived(
                done.value / seconds.value / servers,
                "requests/s",
                "finished ÷ seconds ÷ servers",
                finished=done,
                seconds=seconds,
            )
    rate, made = baseline.get("output_tokens_per_s"), baseline.get("mean_output_tokens")
    if requests is None and rate is not None and made is not None and made.value > 0:
        requests = derived(
            rate.value / made.value, "requests/s", "output tokens per second ÷ output", rate=rate, output=made
        )
    if requests is None:
        return None
    prompt = baseline.get("mean_input_tokens")
    if prompt is None:
        context = baseline.value("context_tokens")
        if context is None or context < 2 * ASSUMED_PROMPT.range[1]:
            return None  # the prompt may be all of what is resident
        prompt = ASSUMED_PROMPT
    low, high = prompt.range
    fresh = _fresh(baseline)
    return derived(
        requests.value * prompt.value * fresh,
        "tokens/s",
        "requests per second × prompt × (1 − hit rate)",
        requests=requests,
        prompt=prompt,
    ).with_range(requests.value * low * fresh, requests.value * high * fresh)


def _in_flight(baseline: Baseline) -> Quantity | None:
    """Running, where nobody tells it: from one request to all in flight."""
    flight = baseline.get("in_flight_per_server")
    if flight is None or flight.value < 1:
        return None
    return derived(
        max(1.0, flight.value / 2), "requests", "half of what is in flight", in_flight=flight
    ).with_range(1.0, flight.value)


def _by_lengths(baseline: Baseline, context: Context) -> Quantity | None:
    prompt, made = baseline.get("mean_input_tokens"), baseline.get("mean_output_tokens")
    running = baseline.get("running") or _in_flight(baseline)
    if prompt is None or made is None or running is None or made.value <= 0 or running.value <= 0:
        return None
    balance = BALANCE
    device = context.device
    if device is not None and device.memory_bytes_per_second is not None:
        rate = dense_rate(device, None)
        if rate is not None:
            bandwidth = device.memory_bytes_per_second
            balance = derived(
                rate.value / bandwidth.value,
                "FLOP/byte",
                "dense rate ÷ bandwidth",
                rate=rate,
                bandwidth=bandwidth,
            ).with_range(rate.range[0] / bandwidth.range[1], rate.range[1] / bandwidth.range[0])

    def share(flops_per_byte: float, batch: float) -> float:
        ratio = prompt.value * _fresh(baseline) / made.value * batch / flops_per_byte
        return ratio / (1.0 + ratio)

    low, high = balance.range
    fewest, most = running.range
    return derived(
        share(balance.value, running.value),
        "fraction",
        "(prompt × (1 − hit rate) ÷ output) × running ÷ FLOPs per byte, as a share",
        prompt=prompt,
        output=made,
        running=running,
        balance=balance,
    ).with_range(share(high, fewest), share(low, most))
