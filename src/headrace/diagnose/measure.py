"""Step 1, measure: the baseline, with its window, each number resting on those before it."""

from __future__ import annotations

from headrace.diagnose.baseline import Baseline, Collected
from headrace.diagnose.censored import correct_censored
from headrace.diagnose.throughput import rates_of_parts, told_rate
from headrace.observe.observation import Observation, ServerObservation
from headrace.quantities import Origin, Quantity, derived


def measure(
    observation: Observation, server: ServerObservation, kv_capacity: Quantity | None = None
) -> Baseline:
    """Returns the baseline of one server and of the fleet that it stands for.

    Args:
        kv_capacity: the KV pool's tokens as the plan derives them, where the server did not say.
    """
    known = Collected(observation, server, kv_capacity)
    _copy(known)
    _lengths(known)
    told_rate(known)
    _running(known)
    _batch(known)
    _context(known)
    correct_censored(known)
    rates_of_parts(known)
    _waiting(known)
    return known.baseline(_window(known))


def _copy(known: Collected) -> None:
    """What was told of the server, as it is."""
    for name in (
        "queued",
        "cap",
        "kv_usage",
        "swa_usage",
        "state_usage",
        "state_slots",
        "ttft_s",
        "tpot_s",
        "cache_hit_rate",
        "accept_length",
        "gpu_utilization",
        "requests_per_s",
        "prefill_tokens_per_s",
    ):
        known.set(name, known.server.get(name))
    if known.kv_capacity is not None:
        known.set("kv_capacity_tokens", known.kv_capacity)
    known.set("servers", known.servers)
    flight = known.client.readings.get("in_flight")
    if flight is not None:
        known.set("in_flight", flight)
        known.set(
            "in_flight_per_server",
            derived(
                flight.value / known.servers.value,
                "requests",
                "in flight ÷ servers",
                in_flight=flight,
                servers=known.servers,
            ),
        )


def _lengths(known: Collected) -> None:
    for name in ("mean_input_tokens", "mean_output_tokens"):
        known.set(name, known.client.readings.get(name) or known.server.get(name))
    for name in ("mean_output_tokens_finished_only", "in_flight_tokens"):
        known.set(name, known.client.readings.get(name))


def _running(known: Collected) -> None:
    told = known.server.get("running")
    if told is None:
        told = _by_littles_law(known)
    known.set("running", told)


def _batch(known: Collected) -> None:
    """The batch of a step, for its floor: what runs; else what is in flight, as far as it can run at all."""
    running = known.get("running")
    if running is not None:
        known.set("batch", running)
        return
    flight = known.get("in_flight_per_server")
    if flight is None or flight.value < 1 or known.server.get("queued") is not None:
        return
    if flight.value <= 1:
        known.set("batch", flight)
        return
    first, whole = known.server.value("ttft_s"), known.server.value("latency_s")
    waits = first is not None and (whole is None or first > 0.3 * whole)
    if waits:
        return  # how many of them run, nobody can tell
    known.set(
        "batch",
        derived(
            flight.value, "requests", "as many run as are in flight (assumed)", in_flight=flight
        ).with_range(flight.value / 2, flight.value),
    )


def _by_littles_law(known: Collected) -> Quantity | None:
    """Requests in the batch = tokens per second × seconds per token of one request."""
    rate, each = known.get("output_tokens_per_s"), known.server.get("tpot_s") or known.server.get("itl_s")
    if rate is not None and each is not None:
        return derived(
            rate.value * each.value,
            "requests",
            "output tokens per second × seconds per token of one request",
            rate=rate,
            seconds_per_token=each,
        )
    user = known.server.get("per_user_tokens_per_s")
    if rate is not None and user is not None and user.value > 0:
        return derived(
            rate.value / user.value, "requests", "rate ÷ rate of one request", rate=rate, user=user
        )
    return None


def _context(known: Collected) -> None:
    """Mean tokens resident per running request: from the pool's reading, else from the lengths."""
    running, usage, size = known.get("running"), known.get("kv_usage"), known.kv_capacity
    held = known.server.get("kv_used_tokens")
    if held is None and usage is not None and size is not None:
        held = derived(usage.value * size.value, "tokens", "usage × size of the pool", usage=usage, size=size)
    if held is not None and running is not None and running.value >= 1 and held.value >= running.value:
        known.set(
            "context_tokens",
            derived(
                held.value / running.value,
                "tokens/request",
                "tokens held ÷ running",
                held=held,
                running=running,
            ),
        )
        return
    given, made = known.get("mean_input_tokens"), known.get("mean_output_tokens")
    if given is not None and made is not None:
        known.set(
            "context_tokens",
            derived(
                given.value + made.value / 2,
                "tokens/request",
                "prompt + half the output",
                prompt=given,
                output=made,
            ),
        )


def _waiting(known: Collected) -> None:
    """Requests that wait in the server: as told; else those in flight that do not run."""
    queued = known.get("queued")
    if queued is not None:
        known.set("waiting", queued)
        return
    if known.server.value("queue_growing") == 1:
        known.set(
            "waiting",
            Quantity(1.0, "requests", Origin.REPORTED, "the queue grows", low=1.0, high=float("1e9")),
        )
        return
    flight, running = known.get("in_flight_per_server"), known.get("running")
    if flight is not None and running is not None:
        known.set(
            "not_running",
            derived(
                max(0.0, flight.value - running.value),
                "requests",
                "in flight per server − running",
                in_flight=flight,
                running=running,
            ),
        )


def _window(known: Collected) -> str:
    window = known.server.window
    if window is not None and window.samples > 1:
        return f"{window.seconds:,.0f} s, {window.samples:,} samples"
    elapsed = known.client.value("elapsed_s")
    if elapsed:
        return f"{elapsed:,.0f} s, as told"
    return "one snapshot" if window is not None else "as told"
