"""Random small fleets, for the kernel and for the reference: the same numbers in both forms."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from headrace.engines.sglang.rules import MemoryRules
from headrace.engines.sglang.schedule import SglangSchedule
from headrace.engines.versions import Version
from headrace.engines.vllm.schedule import VllmSchedule
from headrace.simulate.fleet import Feeding, FleetSpec, Incident, ServerKind, build
from headrace.simulate.kernel import fleet as kernel
from headrace.simulate.kernel.records import column
from headrace.simulate.kernel.series import new_series
from headrace.simulate.scheduling import PrefillCosts, server_rules
from headrace.simulate.workload import Workload
from tests.unit.simulate import reference_engines as reference

# Facts on engines, §1.5: state slots reserved per running request
SLOTS = {"radix_off": 1, "no_buffer": 3, "extra_buffer": 5, "extra_buffer_no_overlap": 4}


def random_fleet(seed: int) -> dict[str, Any]:
    """Returns numbers of a small fleet that reach the limits often: pools, slots, chunks, ratios."""
    draw = random.Random(seed)
    engine = draw.choice(("sglang", "vllm"))
    page = draw.choice((1, 1, 4, 16)) if engine == "sglang" else draw.choice((4, 16, 32))
    longest_input, longest_output = draw.choice((40, 120, 400, 4000)), draw.choice((30, 200, 900))
    beyond = draw.choice((0, 60, 400, 6000))  # asked for, and not used
    pool = int((longest_input + longest_output) * draw.uniform(1.1, 8)) + 2 * page
    crowded = draw.random() < 0.3  # many long answers in a small pool, admitted boldly: retractions
    if crowded:
        longest_input, longest_output = 40, 900
        pool = int(draw.uniform(3000, 9000))
    slotted = not crowded and draw.random() < 0.3  # state slots bind, the pool does not
    if slotted:
        pool += 8 * (longest_input + longest_output) + 8000
    elif beyond == 6000 and not crowded:
        pool += int(draw.uniform(4000, 12_000))
    mode = draw.choice(tuple(SLOTS))
    speculates = draw.random() < 0.15
    count = draw.randint(1, 45) if not crowded and not slotted else 60
    groups = draw.choice((0, 0, 1, 3))
    limit = draw.choice((None, 1, 3, 8, 20)) if not crowded and not slotted else 40
    servers = draw.randint(1, 3)
    incidents: list[tuple[float, int, str]] = []
    if draw.random() < 0.25:
        server = draw.randrange(servers)
        begin = draw.uniform(0.1, 6)
        incidents = draw.choice(
            (
                [(begin, server, "dies"), (begin + draw.uniform(0.1, 4), server, "up")],
                [(begin, server, "drains")],
                [(begin, 0, "rolls")],
            )
        )
    prompts = []
    for _ in range(count):
        group = draw.randrange(groups) if groups and draw.random() < 0.7 else -1
        output = max(1, min(longest_output, int(draw.expovariate(1) * longest_output / 2) + 1))
        asked = output + (draw.randint(0, beyond) if draw.random() < 0.8 else 0)
        prompts.append((draw.randint(1, longest_input) + (40 if group >= 0 else 0), output, asked, group))
    rates = [draw.choice((1.0, 1.5, 2.25, 3.0)) if speculates else 1.0 for _ in range(count)]
    arrivals = (
        sorted(draw.uniform(0, 8) for _ in range(count)) if limit is None or draw.random() < 0.3 else None
    )
    return {
        "engine": engine,
        "page": page,
        "pool": pool // page * page,
        "mode": mode,
        "slots": None
        if crowded
        else draw.randint(5, 40)
        if slotted
        else draw.choice((None, draw.randint(5, 60))),
        "running": 40 if crowded else draw.randint(1, 24),
        "chunk": draw.choice((64, 128, 512, 100_000)) // page * page,
        "conservativeness": draw.uniform(0.02, 0.2) if crowded else draw.uniform(0.3, 1.4),
        "ignore_eos": mode == "radix_off" and draw.random() < 0.5,
        "overlap": draw.random() < 0.6,
        "drafts": 3 if speculates else 0,
        "unit": 0 if not groups or mode == "radix_off" else draw.choice((page, 2 * page)),
        "budget": draw.choice((64, 128, 512)),
        "full": draw.choice((1, 2)),
        "window": draw.choice((0, 0, 2)),
        "window_blocks": draw.randint(2, 6),
        "states": draw.choice((0, 0, 3)),
        "align": draw.random() < 0.2,
        "prompts": prompts,
        "rates": rates,
        "arrivals": arrivals,
        "group_tokens": [draw.randint(8, 40) for _ in range(groups)],
        "servers": servers,
        "ranks": draw.choice((1, 1, 2)),
        "in_flight": limit,
        "incidents": incidents,
        "ramp": draw.choice((0.0, 0.0, 3.0)),
        "delay": draw.choice((0.0, 0.0, 0.05)),
        "restart": draw.uniform(0.2, 2),
        "per_server": draw.random() < 0.3,
        "in_turn": draw.random() < 0.3,
        "decode": [draw.uniform(0.01, 0.02), draw.uniform(1e-4, 1e-3), draw.uniform(1e-7, 1e-5)],
        "prefill": [
            draw.uniform(0.005, 0.02),
            draw.uniform(1e-5, 1e-4),
            draw.uniform(1e-9, 1e-7),
            draw.uniform(0, 1e-3),
        ],
        "mixed": draw.uniform(-0.01, 0.003),
        "floor": draw.uniform(0, 0.03),
        "speeds": [draw.uniform(0.8, 1.25) for _ in range(servers)],
    }


def through_kernel(fleet: dict[str, Any]) -> dict[str, Any]:
    """Runs the fleet through the kernel."""
    kinds = []
    for speed in fleet["speeds"]:
        rules = server_rules(_schedule(fleet), _prefill(fleet, speed), ignore_eos=fleet["ignore_eos"])
        batch = np.arange(rules.cap + 1)
        base, each, context = fleet["decode"]
        kinds.append(ServerKind(rules, (base + each * batch) * speed, np.full(len(batch), context * speed)))
    feeding = Feeding(
        fleet["in_flight"],
        fleet["ramp"],
        fleet["per_server"],
        fleet["in_turn"],
        fleet["delay"],
        fleet["restart"],
    )
    incidents = [Incident(*one) for one in fleet["incidents"]]
    spec = FleetSpec(kinds, range(fleet["servers"]), fleet["ranks"], feeding, incidents)
    prompts = np.array([prompt[:4] for prompt in fleet["prompts"]])
    workload = Workload(
        prompts[:, 0],
        prompts[:, 1],
        prompts[:, 2],
        None if fleet["arrivals"] is None else np.array(fleet["arrivals"]),
        group=prompts[:, 3],
        group_tokens=tuple(fleet["group_tokens"]),
        tokens_per_pass=np.array(fleet["rates"]),
    ).validated()
    world, client = build(spec, workload)
    series = new_series(fleet["servers"] * fleet["ranks"], 64, 0.5)
    code = kernel.PAUSED
    while code == kernel.PAUSED:
        code = kernel.run(world, client, series, np.inf, 1000)
    names = ("submitted", "admitted", "first_token", "finished", "outcome", "server", "retractions", "made")
    found: dict[str, Any] = {name: column(world.requests, name).tolist() for name in names}
    found["generated"] = float(column(world.schedulers, "generated").sum())
    found["completed"] = float(column(world.schedulers, "completed").sum())
    found["lost"] = float(column(world.schedulers, "lost").sum())
    found["done"] = code == kernel.ALL_DONE
    found["series"] = series
    return found


def _schedule(fleet: dict[str, Any]) -> SglangSchedule | VllmSchedule:
    if fleet["engine"] == "vllm":
        return VllmSchedule(
            fleet["running"],
            fleet["budget"],
            fleet["pool"] // fleet["page"],
            fleet["page"],
            fleet["full"],
            fleet["window"],
            fleet["window_blocks"],
            fleet["states"],
            1 if fleet["states"] else 0,
            fleet["unit"],
            fleet["page"] if fleet["align"] else 0,
            fleet["overlap"],
            fleet["drafts"],
        )
    mode = fleet["mode"]
    slots = MemoryRules(Version(0, 5, 12)).slots_per_request(
        radix=mode != "radix_off",
        extra_buffer=mode.startswith("extra"),
        lazy=False,
        overlap=mode != "extra_buffer_no_overlap",
        drafts=False,
        skip_lock=False,
    )
    return SglangSchedule(
        fleet["running"],
        fleet["pool"],
        fleet["page"],
        fleet["slots"],
        slots,
        fleet["chunk"],
        conservativeness=fleet["conservativeness"],
        overlap=fleet["overlap"],
        prefix_tokens=fleet["unit"],
        draft_tokens=fleet["drafts"],
        radix_off=mode == "radix_off",
    )


def _prefill(fleet: dict[str, Any], speed: float) -> PrefillCosts:
    return PrefillCosts(*(seconds * speed for seconds in (*fleet["prefill"], fleet["mixed"], fleet["floor"])))


def through_reference(fleet: dict[str, Any]) -> dict[str, Any]:
    """Runs the fleet through the reference."""
    prompts = [
        reference.Prompt(
            i, *prompt[:3], rate, prompt[3], 0.0 if fleet["arrivals"] is None else fleet["arrivals"][i]
        )
        for i, (prompt, rate) in enumerate(zip(fleet["prompts"], fleet["rates"], strict=True))
    ]
    running = fleet["running"]
    if fleet["engine"] == "sglang" and fleet["slots"] is not None:
        running = min(running, fleet["slots"] // SLOTS[fleet["mode"]])
    servers = []
    for index, speed in enumerate(fleet["speeds"]):
        base, each, context = fleet["decode"]
        costs = reference.Costs(
            [(base + each * batch) * speed for batch in range(running + 1)],
            [context * speed] * (running + 1),
            *(seconds * speed for seconds in (*fleet["prefill"], fleet["mixed"], fleet["floor"])),
        )
        ranks = [_scheduler(fleet, costs, running) for _ in range(fleet["ranks"])]
        room = 10**9 if fleet["in_flight"] is None else fleet["in_flight"]
        if fleet["ramp"] and fleet["in_flight"] is not None and fleet["in_flight"] > 1:
            room = 1
        queue = prompts[index :: fleet["servers"]] if fleet["per_server"] else prompts
        servers.append(reference.Server(ranks, room, queue))
    if not fleet["per_server"]:
        shared = list(prompts)
        for server in servers:
            server.queue = shared
    ramp = []
    if fleet["ramp"] and fleet["in_flight"]:
        for step in range(1, fleet["in_flight"]):
            ramp += [(fleet["ramp"] * step / fleet["in_flight"], index) for index in range(fleet["servers"])]
    reference.run(
        servers,
        list(prompts),
        ramp=ramp,
        incidents=sorted(fleet["incidents"]),
        delay=fleet["delay"],
        restart=fleet["restart"],
        in_turn=fleet["in_turn"],
    )
    return {"prompts": prompts, "tokens": sum(rank.tokens for server in servers for rank in server.ranks)}


def _scheduler(fleet: dict[str, Any], costs: reference.Costs, running: int) -> reference.Scheduler:
    cache = reference.Cache(fleet["unit"], fleet["group_tokens"])
    if fleet["engine"] == "sglang":
        own = {
            "pool": fleet["pool"],
            "page": fleet["page"],
            "chunk": fleet["chunk"],
            "drafts": fleet["drafts"],
            "conservativeness": fleet["conservativeness"],
            "ignore_eos": fleet["ignore_eos"],
        }
        return type("Own", (reference.Sglang,), own)(costs, running, fleet["overlap"], cache)
    own = {
        "blocks": fleet["pool"] // fleet["page"],
        "block": fleet["page"],
        "budget": fleet["budget"],
        "drafts": fleet["drafts"],
        "full": fleet["full"],
        "window": fleet["window"],
        "window_blocks": fleet["window_blocks"],
        "states": fleet["states"],
        "align": fleet["page"] if fleet["align"] else 0,
    }
    return type("Own", (reference.Vllm,), own)(costs, running, fleet["overlap"], cache)


OUTCOMES = ("pending", "done", "aborted", "no memory")


def differences(seed: int) -> list[str]:
    """Returns what differs between kernel and reference on one random fleet."""
    fleet = random_fleet(seed)
    mine, theirs = through_kernel(fleet), through_reference(fleet)
    found = []
    for prompt in theirs["prompts"]:
        i = prompt.number
        for name in ("submitted", "admitted", "first_token", "finished"):
            here, there = mine[name][i], getattr(prompt, name)
            there = float("nan") if there is None else there
            if not (
                here == there or (here != here and there != there) or abs(here - there) <= 1e-9 * abs(there)
            ):
                found.append(f"prompt {i}: {name} {here!r} against {there!r}")
        for name in ("server", "retractions", "made"):
            here, there = mine[name][i], getattr(prompt, name)
            if name == "made" and prompt.outcome == "pending":
                continue
            if here != there:
                found.append(f"prompt {i}: {name} {here!r} against {there!r}")
        if OUTCOMES[mine["outcome"][i] % 4] != prompt.outcome:
            found.append(f"prompt {i}: {OUTCOMES[mine['outcome'][i] % 4]} against {prompt.outcome}")
    for name in ("admitted", "first_token", "finished"):
        here = [
            i
            for _, i in sorted(
                (mine[name][i], i) for i in range(len(mine[name])) if mine[name][i] == mine[name][i]
            )
        ]
        there = [
            p.number
            for p in sorted(
                (p for p in theirs["prompts"] if getattr(p, name) is not None),
                key=lambda p: (getattr(p, name), p.number),
            )
        ]
        if here != there:
            found.append(f"order of {name} differs")
    return found
