"""Plan a server and what it serves; predict a table; simulate a fleet; what is known of GPUs and models."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, overload

from headrace.errors import UsageError

if TYPE_CHECKING:
    from headrace.engines.advice import Change, Explanation
    from headrace.engines.moved import Moved
    from headrace.engines.plan import MemoryPlan, Solution
    from headrace.forecast.lengths import Lengths
    from headrace.forecast.search import Search
    from headrace.forecast.serving import Serving
    from headrace.forecast.table import PredictedTable, Progress
    from headrace.hardware.catalogue import Ask
    from headrace.hardware.device import Device
    from headrace.models.description import ModelDescription
    from headrace.simulate.question import Variant


@dataclass(frozen=True, slots=True)
class Planned:
    """What `plan` finds.

    Attributes:
        plan: pools, caps and what bound them.
        changes: single changes that lift the cap, those that give up least first.
        explanations: untold settings that reconcile what was `reported`; None when nothing was.
        solutions: what gives `target_cap`, one knob at a time; empty when none was asked for.
        before: the plan without `change`; None when none was given.
        serving: the decode step and throughput by requests in flight; None where nobody asked, and where the
            server would not start.
        search: the best launch lines; None unless asked for.
    """

    plan: MemoryPlan
    changes: Sequence[Change]
    explanations: Sequence[Explanation] | None
    solutions: Sequence[Solution]
    before: MemoryPlan | None = None
    serving: Serving | None = None
    search: Search | None = None

    @property
    def moved(self) -> list[Moved]:
        """Each figure that `change` moved, before and after."""
        from headrace.engines.moved import moved

        return moved(self.before, self.plan) if self.before is not None else []


@contextmanager
def _noting(problems: list[str]) -> Iterator[None]:
    """Within, what is wrong with the words given is noted, not raised."""
    try:
        yield
    except UsageError as error:
        problems.extend(error.problems)


def plan(
    *,
    model: str,
    gpu: str,
    engine: str = "sglang",
    engine_version: str = "",
    flags: str = "",
    server_info: str | Path | None = None,
    change: str = "",
    free_gib: float | None = None,
    weights_gib: float | None = None,
    context_tokens: float | None = None,
    tp: int | None = None,
    dp: int | None = None,
    target_cap: int | None = None,
    reported: str = "",
    input_tokens: float | None = None,
    output_tokens: float | None = None,
    accept_length: float | None = None,
    steps: bool = False,
    search: bool = False,
    gpus: int | None = None,
    in_flight: float | None = None,
    job_tokens: float | None = None,
    gpu_hour_price: float | None = None,
    ask: Ask | None = None,
) -> Planned:
    """How an engine would divide a GPU, what caps running requests, and what to change.

    The keywords are the options of `headrace plan`.

    Args:
        steps, search: also what the server would serve, and which line would serve most per GPU.
        ask: chooses among the devices that an ambiguous GPU name fits; None goes on with their range.

    Raises:
        UsageError: names, flags or a change that are not known; all at once.
        InputError: a file cannot be read, or steps were asked for of a GPU whose bandwidth is not known.
    """
    from headrace.engines import planner as planner_of
    from headrace.engines.advice import explain, next_changes, parse_reported, solutions
    from headrace.engines.launch_line import LaunchLine
    from headrace.engines.plan import GIB, PlanInputs
    from headrace.forecast.lengths import lengths_of
    from headrace.hardware.catalogue import resolve
    from headrace.models.catalogue import resolve_model
    from headrace.quantities import Origin, Quantity

    problems: list[str] = []
    told: dict[str, float] = {}
    with _noting(problems):
        geometry = resolve_model(model)
    with _noting(problems):
        told = parse_reported(reported) if reported else {}
    with _noting(problems):
        planner = planner_of(engine)
        if server_info is not None:
            from headrace.engines.sglang.server_info import read_server_info_file

            info = read_server_info_file(Path(server_info))
            rules, line = planner.rules(engine_version or info.version), info.line
            told = {**info.reported, **told}
        else:
            rules = planner.rules(engine_version)
            line = LaunchLine.parse(flags, planner.table, rules.version)
        sglang = planner.engine == "sglang"
        wide = "--tp-size" if sglang else "--tensor-parallel-size"
        copies = "--dp-size" if sglang else "--data-parallel-size"
        for flag, value in ((wide, tp), (copies, dp)):
            if value is not None:
                line = line.changed(f"{flag} {value}", planner.table, rules.version)
        unchanged = line
        if change:
            line = line.changed(change, planner.table, rules.version)
    with _noting(problems):
        lengths, note = lengths_of(context_tokens, input_tokens, output_tokens)
    only_search = {"gpus": gpus, "in_flight": in_flight, "job_tokens": job_tokens}
    alone = [f"--{name.replace('_', '-')}" for name, value in only_search.items() if value is not None]
    if alone and not search:
        problems.append(f"{' and '.join(alone)} without --search: add it, or leave them out")
    with _noting(problems):
        device = resolve(gpu, None if problems else ask)
    if problems:
        raise UsageError(problems)

    def given(gib: float | None, flag: str, key: str) -> Quantity | None:
        if gib is None and key not in told:
            return None
        value, source = (gib, flag) if gib is not None else (told[key], "--reported")
        return Quantity(float(value) * GIB, "bytes", Origin.USER, source)

    told_lengths = any(value is not None for value in (input_tokens, output_tokens, context_tokens))
    inputs = PlanInputs(
        geometry,
        device,
        rules,
        line,
        given(free_gib, "--free-gib", "free"),
        given(weights_gib, "--weights-gib", "weights"),
        lengths.context_tokens if told_lengths or steps or search else None,
    )
    planned = planner.plan(inputs)
    found = Planned(
        planned,
        next_changes(planner, planned),
        explain(planner, planned, told) if told else None,
        solutions(planner, planned, target_cap) if target_cap is not None else [],
        planner.plan(inputs.with_line(unchanged)) if change else None,
    )
    if not (steps or search) and (not told_lengths or device.memory_bytes_per_second is None):
        return found
    found = _served(found, lengths, note, accept_length)
    if not search:
        return found
    from headrace.forecast.search import Job
    from headrace.forecast.search import search as search_lines

    job = Job(job_tokens, gpu_hour_price) if job_tokens is not None else None
    lines = search_lines(
        planned, lengths, gpus=gpus, in_flight=in_flight, accept_length=accept_length, job=job
    )
    return replace(found, search=lines)


def _served(found: Planned, lengths: Lengths, note: str, accept_length: float | None) -> Planned:
    """What was planned, with its step and its throughput."""
    from headrace.forecast.serving import serving

    return replace(found, serving=serving(found.plan, lengths, accept_length, note))


def predict(
    table: str | Path, *, out: str | Path | None = None, on_progress: Progress | None = None
) -> PredictedTable:
    """What the step model says of every row of a table of benchmark results, and how far off it is.

    Args:
        table: a CSV file, .gz or not; docs/predict.md lists the columns. Missing ones are blank.
        out: where the predictions are written as CSV; .gz compresses them.
        on_progress: called with (rows done, rows) now and then.

    Raises:
        InputError: the file cannot be read, or is no such table.
        StorageError: `out` cannot be written.
    """
    from headrace.forecast.table import predict_table

    predicted = predict_table(Path(table), on_progress)
    if out is not None:
        predicted.write(Path(out))
    return predicted


def gpus(name: str | None = None) -> tuple[Device, ...]:
    """The accelerators that headrace knows, or those that `name` fits: one, or several editions of it.

    Raises:
        UsageError: no device has such a name.
    """
    from headrace.hardware.catalogue import Ambiguous, find, resolve
    from headrace.hardware.rows import devices

    if name is None:
        return tuple(devices())
    if name.endswith((".yaml", ".yml")):
        return (resolve(name),)
    found = find(name)
    return tuple(found.candidates) if isinstance(found, Ambiguous) else (found,)


@overload
def model(name: None = None) -> tuple[str, ...]: ...
@overload
def model(
    name: str, *, tp: int = 1, tokens_per_step: int = 1, context_tokens: int = 0, fetch: bool = False
) -> ModelDescription: ...
@overload
def model(
    name: str | None, *, tp: int = 1, tokens_per_step: int = 1, context_tokens: int = 0, fetch: bool = False
) -> ModelDescription | tuple[str, ...]: ...
def model(
    name: str | None = None,
    *,
    tp: int = 1,
    tokens_per_step: int = 1,
    context_tokens: int = 0,
    fetch: bool = False,
) -> ModelDescription | tuple[str, ...]:
    """What a model's shape costs: `geometry`, and numbers for one rank; without a name, the built-in ids.

    Args:
        name: a built-in id or short name, a config.json, or a folder.
        tp: ranks of tensor parallelism; bytes are those of one rank.
        tokens_per_step: tokens of one step (running requests), which decide how many experts it reads.
        context_tokens: context for FLOPs per token.
        fetch: the name is an id on the Hugging Face hub; its config and headers are read there.

    Raises:
        UsageError, InputError: no such model, or its files cannot be read.
    """
    from headrace.models.catalogue import model_ids, resolve_model
    from headrace.models.description import describe

    if name is None:
        if fetch:
            raise UsageError("--fetch needs a NAME: an id on the Hugging Face hub, like Qwen/Qwen3-8B.")
        return model_ids()
    if fetch:
        from headrace.models.remote import fetch_model

        geometry = fetch_model(name)
    else:
        geometry = resolve_model(name)
    return describe(geometry, tp=tp, tokens_per_step=tokens_per_step, context_tokens=context_tokens)


def simulate(
    *,
    model: str,
    gpu: str,
    engine: str = "sglang",
    engine_version: str = "",
    flags: str = "",
    compare: Sequence[str] = (),
    free_gib: float | None = None,
    weights_gib: float | None = None,
    replicas: int = 1,
    in_flight: int | None = None,
    count: int = 1000,
    input_tokens: float = 150.0,
    output_tokens: float = 1000.0,
    length_law: str = "gamma",
    output_spread: float = 0.3,
    input_spread: float = 0.5,
    max_tokens: int | None = None,
    shared_tokens: int = 0,
    prompts_per_group: int = 0,
    workload: Sequence[str | Path] = (),
    mixed: bool = False,
    arrivals: bool = False,
    requests_per_s: float | None = None,
    longest_first: bool = False,
    seed: int = 0,
    step_seconds: str = "",
    accept_length: float | None = None,
    accept_spread: float = 0.0,
    ignore_eos: bool = False,
    ramp_seconds: float = 0.0,
    per_server: bool = False,
    client_delay_seconds: float = 0.0,
    restart_seconds: float = 120.0,
    events: Sequence[str] = (),
    slow_servers: Sequence[str] = (),
    until_seconds: float | None = None,
    out: str | Path | None = None,
    progress: Progress | None = None,
    ask: Ask | None = None,
) -> tuple[Variant, ...]:
    """What a fleet would make of a job: the line as given, then each edit of it, over the same prompts.

    The keywords are the options of `headrace simulate`.

    Args:
        in_flight: per server; None: 32, or no limit where prompts arrive by themselves.
        out: folder that gets the first variant as an Observation.
        progress: called with (prompts done, prompts) now and then.
        ask: chooses among the devices that an ambiguous GPU name fits; None goes on with their range.

    Raises:
        UsageError, InputError: a flag, name or file is not known or cannot be read, the server would not
        start,
            or the GPU's bandwidth is not known.
        StorageError: `out` cannot be written.
    """
    from headrace.hardware.catalogue import resolve
    from headrace.models.catalogue import resolve_model
    from headrace.simulate import question
    from headrace.simulate.fleet import Feeding
    from headrace.simulate.lengths import Length, drawn, joined, with_acceptance
    from headrace.simulate.recording import write_recording
    from headrace.simulate.steps import parse_points
    from headrace.simulate.traces import read_workload

    server = question.ServerAsked(
        resolve_model(model), resolve(gpu, ask), engine, engine_version, flags, free_gib, weights_gib
    )
    if workload:
        parts = [read_workload(Path(each), max_tokens=max_tokens, arrivals=arrivals) for each in workload]
        load = joined(parts, mixed_by=seed if mixed else None)
    else:
        settings = server.plan().settings
        context = settings["context_length" if settings.engine == "sglang" else "max_model_len"]
        load = drawn(
            count,
            Length(input_tokens, length_law, input_spread),
            Length(output_tokens, length_law, output_spread),
            max_tokens=max_tokens,
            context_tokens=int(context or 32_768),
            seed=seed,
            shared_tokens=shared_tokens,
            prompts_per_group=prompts_per_group,
            requests_per_second=requests_per_s,
        )
    if accept_length is not None:
        load = with_acceptance(load, accept_length, accept_spread, seed)
    if longest_first:
        load = load.longest_first()
    arrives = load.arrival is not None
    feeding = Feeding(
        in_flight if in_flight is not None or arrives else 32,
        ramp_seconds,
        per_server,
        arrives,
        client_delay_seconds,
        restart_seconds,
    )
    fleet = question.FleetAsked(
        replicas,
        feeding,
        question.parse_incidents(events),
        question.parse_slow(slow_servers),
        parse_points(step_seconds),
        accept_length,
        ignore_eos,
        until_seconds,
    )
    found = tuple(question.run_variant(server, fleet, load, change, progress) for change in ("", *compare))
    if out is not None:
        write_recording(Path(out), found[0], load)
    return found
