"""The commands as Python functions of the same names and words: `headrace.run(...)`, `headrace.status(...)`.

Nothing here prints. Expected failures are the errors of `headrace.errors`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.drive.job import Job
    from headrace.drive.status import JobStatus
    from headrace.engines.advice import Change, Explanation
    from headrace.engines.moved import Moved
    from headrace.engines.plan import MemoryPlan, Solution
    from headrace.forecast.search import Search
    from headrace.forecast.serving import Serving
    from headrace.forecast.table import PredictedTable, Progress
    from headrace.hardware.catalogue import Ask
    from headrace.hardware.device import Device
    from headrace.models.geometry import ModelGeometry
    from headrace.simulate.emulate import EmulatorOptions, ThreadedFleet

_Several = str | Path | Sequence[str | Path] | None


def run(
    job_file: str | Path | None = None,
    *,
    prompts: _Several = None,
    server: str | Sequence[str] | None = None,
    out: str | Path | None = None,
    model: str | None = None,
    api: str | None = None,
    in_flight: int | str | None = None,
    max_tokens: int | None = None,
    temperature: float | None = None,
    top_p: float | None = None,
    top_k: int | None = None,
    min_p: float | None = None,
    seed: int | None = None,
    stop: str | Sequence[str] | None = None,
    thinking: bool | None = None,
    system: str | None = None,
    count: int | None = None,
    samples: int | None = None,
    columns: Mapping[str, str] | None = None,
    id_column: str | None = None,
    exclude: _Several = None,
    format: str | None = None,
    token_ids: bool | None = None,
    flags_policy: Mapping[str, str] | None = None,
    retry_failed: bool | None = None,
    extra_body: Mapping[str, Any] | None = None,
    request_timeout: float | str | None = None,
    max_tries: int | None = None,
    row_checks: bool | None = None,
    hedge: bool | None = None,
    api_key_env: str | None = None,
    api_key_file: str | Path | None = None,
    ledger: str | Path | None = None,
    on_status: Callable[[JobStatus], None] | None = None,
    status_every_seconds: float = 1.0,
    metrics_port: int | None = None,
    metrics_host: str = "127.0.0.1",
) -> JobStatus:
    """The last status of the job, after asking all prompts (or going on where it stopped).

    The keywords are the options of `headrace run`; beside a job file they go before what it says. While it
    runs, SIGINT drains it as Ctrl-C does.

    Args:
        on_status: called with a fresh status about every `status_every_seconds`.
        metrics_port: serves Prometheus metrics there while the job runs.

    Raises:
        UsageError: with every mistake at once; nothing was started.
        JobStopped: the job ended early; the same call goes on with it.
        HeadraceError: see `headrace.errors`.
    """
    from headrace.drive.job.file import load_job
    from headrace.drive.job.options import given_options, keyword

    values = dict(locals())
    resolved = load_job(Path(job_file) if job_file else None, given_options(values, keyword))
    return run_resolved(
        resolved.job,
        on_status=on_status or (lambda status: None),
        status_every_seconds=status_every_seconds,
        metrics_port=metrics_port,
        metrics_host=metrics_host,
    )


def run_resolved(
    job: Job,
    *,
    on_status: Callable[[JobStatus], None],
    status_every_seconds: float,
    metrics_port: int | None = None,
    metrics_host: str = "127.0.0.1",
) -> JobStatus:
    """The last status of a job that is checked already. Wires driver, load readers and metrics together."""
    from headrace.drive.driver import run_job
    from headrace.engines.any_load import AnyEngineLoad

    if metrics_port is None:
        return run_job(
            job, on_status=on_status, status_every_seconds=status_every_seconds, load_reader=AnyEngineLoad
        )
    from headrace.report.metrics import MetricsServer

    with MetricsServer(metrics_host, metrics_port) as metrics:

        def tell(status: JobStatus) -> None:
            metrics.show(status)
            on_status(status)

        return run_job(
            job, on_status=tell, status_every_seconds=status_every_seconds, load_reader=AnyEngineLoad
        )


def status(out: str | Path) -> JobStatus:
    """Where the job in `out` stands: live if it runs on this machine, else its last snapshot.

    Raises:
        InputError: `out` is no job folder.
    """
    from headrace.drive.commands import read_status

    return read_status(Path(out))[0]


def export(
    out: str | Path,
    *,
    to: str,
    file: str | Path | None = None,
    reasoning: str = "field",
    without: Iterable[str] = (),
    force: bool = False,
) -> tuple[Path, int]:
    """(the file written, its rows): a job's finished rows as `jsonl`, `parquet` or `conversations`.

    Args:
        file: by default OUT/export.jsonl, .parquet or .conversations.jsonl.
        reasoning: `inline`, `field` or `drop`; for conversations.
        without: flags whose rows are left out.
        force: replace the file if it is there.
    """
    from headrace.drive.store.export import export as export_rows

    suffix = {"conversations": "conversations.jsonl"}.get(to, to)
    path = Path(file) if file is not None else Path(out) / f"export.{suffix}"
    rows = export_rows(Path(out), to, path, reasoning=reasoning, without=list(without), force=force)
    return path, rows


def fleet_change(action: str, servers: Sequence[str], job: str | Path) -> list[tuple[str, dict[str, Any]]]:
    """(server, the job's answer) for each server that is to be added, drained or removed.

    Args:
        action: `add`, `drain` or `remove`.
        servers: URLs, port ranges too.
        job: output folder of the running job.

    Raises:
        UsageError: an address is wrong; nothing was asked of the job.
        UnreachableError: no job runs there.
        InputError: the job refused some; its own words. The others were changed.
    """
    from headrace.errors import InputError

    replies = list(fleet_replies(action, servers, job))
    refusals = [str(answer["error"]) for _, answer in replies if "error" in answer]
    if refusals:
        raise InputError("; ".join(refusals))
    return replies


def fleet_replies(
    action: str, servers: Sequence[str], job: str | Path
) -> Iterator[tuple[str, dict[str, Any]]]:
    """As `fleet_change`, each answer as it comes; a refusal is {"error": the job's words}.

    Raises:
        UsageError: an address is wrong; nothing was asked of the job.
        UnreachableError: no job runs there.
    """
    from headrace.drive.control import send_command
    from headrace.drive.job.servers import expand_server
    from headrace.errors import InputError, UsageError

    urls: list[str] = []
    problems: list[str] = []
    for text in servers:
        try:
            urls += expand_server(text)
        except ValueError as error:
            problems.append(f"{error}.")
    if problems:
        raise UsageError(problems)
    for url in dict.fromkeys(urls):
        try:
            yield url, send_command(Path(job), {"command": action, "url": url})
        except InputError as refusal:
            yield url, {"error": str(refusal)}


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
        UsageError, InputError: a flag, name or file is not known or cannot be read, or the GPU's bandwidth is
            not known and steps were asked for.
    """
    from headrace.engines import planner as planner_of
    from headrace.engines.advice import explain, next_changes, parse_reported, solutions
    from headrace.engines.launch_line import LaunchLine
    from headrace.engines.plan import GIB, PlanInputs
    from headrace.errors import UsageError
    from headrace.forecast.lengths import lengths_of
    from headrace.hardware.catalogue import resolve
    from headrace.models.catalogue import resolve_model
    from headrace.quantities import Origin, Quantity

    planner = planner_of(engine)
    only_search = {"gpus": gpus, "in_flight": in_flight, "job_tokens": job_tokens}
    alone = [f"--{name.replace('_', '-')}" for name, value in only_search.items() if value is not None]
    if alone and not search:
        raise UsageError(f"{' and '.join(alone)} without --search: add it, or leave them out")
    told = parse_reported(reported) if reported else {}
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

    def given(gib: float | None, flag: str, key: str) -> Quantity | None:
        if gib is None and key not in told:
            return None
        value, source = (gib, flag) if gib is not None else (told[key], "--reported")
        return Quantity(float(value) * GIB, "bytes", Origin.USER, source)

    lengths_told = input_tokens is not None or output_tokens is not None or context_tokens is not None
    lengths, note = lengths_of(context_tokens, input_tokens, output_tokens)
    inputs = PlanInputs(
        resolve_model(model),
        resolve(gpu, ask),
        rules,
        line,
        given(free_gib, "--free-gib", "free"),
        given(weights_gib, "--weights-gib", "weights"),
        lengths.context_tokens if lengths_told or steps or search else None,
    )
    planned = planner.plan(inputs)
    found = Planned(
        planned,
        next_changes(planner, planned),
        explain(planner, planned, told) if told else None,
        solutions(planner, planned, target_cap) if target_cap is not None else [],
        planner.plan(inputs.with_line(unchanged)) if change else None,
    )
    if not (steps or search) and (not lengths_told or inputs.device.memory_bytes_per_second is None):
        return found
    from headrace.forecast.search import Job
    from headrace.forecast.search import search as search_lines
    from headrace.forecast.serving import serving

    job = Job(job_tokens, gpu_hour_price) if job_tokens is not None else None
    return replace(
        found,
        serving=serving(planned, lengths, accept_length, note),
        search=search_lines(
            planned, lengths, gpus=gpus, in_flight=in_flight, accept_length=accept_length, job=job
        )
        if search
        else None,
    )


def predict(
    table: str | Path, *, out: str | Path | None = None, progress: Progress | None = None
) -> PredictedTable:
    """What the step model says of every row of a table of benchmark results, and how far off it is.

    Args:
        table: a CSV file, .gz or not; docs/predict.md lists the columns. Missing ones are blank.
        out: where the predictions are written as CSV; .gz compresses them.
        progress: called with (rows done, rows) now and then.

    Raises:
        InputError: the file cannot be read, or is no such table.
        StorageError: `out` cannot be written.
    """
    from headrace.forecast.table import predict_table

    predicted = predict_table(Path(table), progress)
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


def model(name: str, *, fetch: bool = False) -> ModelGeometry:
    """The shape of a model: a built-in id or short name, a config.json, or a folder.

    Args:
        fetch: the name is an id on the Hugging Face hub; its config and headers are read there.
    """
    if fetch:
        from headrace.models.remote import fetch_model

        return fetch_model(name)
    from headrace.models.catalogue import resolve_model

    return resolve_model(name)


def emulate(options: EmulatorOptions | None = None) -> ThreadedFleet:
    """Emulated servers in a thread: `with headrace.emulate() as fleet: fleet.urls`."""
    from headrace.simulate.emulate import ThreadedFleet

    return ThreadedFleet(options)
