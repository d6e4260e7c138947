"""Rates: what one server makes per second, the fleet, a GPU, a running request, and how long a step takes."""

from __future__ import annotations

from headrace.diagnose.baseline import Collected
from headrace.quantities import Origin, Quantity, derived


def told_rate(known: Collected) -> None:
    """Output tokens per second of one server, as it or the client says."""
    server = known.server
    told = server.get("output_tokens_per_s")
    per_gpu = server.get("output_tokens_per_s_per_gpu")
    if told is None and per_gpu is not None and server.gpus:
        told = derived(
            per_gpu.value * server.gpus, "tokens/s", "rate per GPU × GPUs of a server", per_gpu=per_gpu
        )
    total = server.get("total_tokens_per_s")
    given, made = known.get("mean_input_tokens"), known.get("mean_output_tokens")
    if told is None and total is not None and given is not None and made is not None:
        whole = given.value + made.value
        if whole > 0:
            told = derived(
                total.value * made.value / whole,
                "tokens/s",
                "total rate × output ÷ (prompt + output)",
                total=total,
                prompt=given,
                output=made,
            )
    requests = server.get("requests_per_s")
    if told is None and requests is not None and made is not None:
        told = derived(
            requests.value * made.value,
            "tokens/s",
            "requests per second × output tokens",
            requests=requests,
            output=made,
        )
    arriving = known.client.readings.get("request_rate")
    if told is None and arriving is not None and made is not None and server.value("queue_growing") != 1:
        told = derived(
            arriving.value * made.value / known.servers.value,
            "tokens/s",
            "arriving requests × output tokens ÷ servers",
            arriving=arriving,
            output=made,
            servers=known.servers,
        )
    known.set("output_tokens_per_s", told)


def rates_of_parts(known: Collected) -> None:
    rate, running = known.get("output_tokens_per_s"), known.get("running")
    low, high = rate.range if rate is not None else (0.0, 0.0)
    if rate is not None:
        fleet = _sum_over_servers(known) or derived(
            rate.value * known.servers.value, "tokens/s", "rate × servers", rate=rate, servers=known.servers
        ).with_range(low * known.servers.value, high * known.servers.value)
        known.set("output_tokens_per_s_fleet", fleet)
        gpus = known.server.gpus
        if gpus:
            wide = Quantity(float(gpus), "GPUs", Origin.CONFIGURED, "GPUs of a server")
            known.set(
                "output_tokens_per_s_per_gpu",
                derived(
                    rate.value / gpus, "tokens/s", "rate ÷ GPUs of a server", rate=rate, gpus=wide
                ).with_range(low / gpus, high / gpus),
            )
    _step(known, rate, running or known.get("batch"))


def _sum_over_servers(known: Collected) -> Quantity | None:
    """The fleet's rate where several servers told theirs, each with its own figure."""
    told = [(server, server.get("output_tokens_per_s")) for server in known.observation.servers]
    if len(told) < 2 or all(rate is None for _, rate in told):
        return None
    rates = {server.name: (rate, server.replicas) for server, rate in told if rate is not None}
    return derived(
        sum(rate.value * replicas for rate, replicas in rates.values()),
        "tokens/s",
        "Σ servers that told their rate",
        **{name: rate for name, (rate, _) in rates.items()},
    )


def _step(known: Collected, rate: Quantity | None, running: Quantity | None) -> None:
    """Seconds of a step: as told, else from rates, else from the time per token."""
    told = known.server.get("step_ms")
    if told is not None:
        known.set("step_seconds", derived(told.value / 1e3, "s", "step in ms ÷ 1000", step=told))
    accepted = known.server.get("accept_length") or Quantity(
        1.0, "tokens", Origin.DEFAULT, "one token per step and request"
    )
    if rate is not None and running is not None and rate.value > 0 and running.value > 0:
        low, high = rate.range
        known.set(
            "output_tokens_per_s_per_running",
            derived(
                rate.value / running.value, "tokens/s", "rate ÷ running", rate=rate, running=running
            ).with_range(low / running.value, high / running.value),
        )
        tokens = running.value * max(accepted.value, 1.0)
        step = derived(
            tokens / rate.value,
            "s",
            "running × accepted tokens ÷ rate",
            running=running,
            accepted=accepted,
            rate=rate,
        )
        if low > 0 and low < high:
            step = step.with_range(tokens / high, tokens / low)
        known.set("step_seconds", step)
    each = known.server.get("tpot_s") or known.server.get("itl_s")
    if each is not None:
        known.set(
            "step_seconds",
            derived(
                each.value * max(accepted.value, 1.0),
                "s",
                "seconds per token × accepted tokens",
                seconds_per_token=each,
                accepted=accepted,
            ),
        )
    user = known.server.get("per_user_tokens_per_s")
    if user is not None and user.value > 0:
        known.set(
            "step_seconds",
            derived(
                max(accepted.value, 1.0) / user.value,
                "s",
                "accepted tokens ÷ rate of one request",
                accepted=accepted,
                user=user,
            ),
        )
