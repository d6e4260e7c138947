"""Emulated servers, and a whole job on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.api.drive import run_resolved

if TYPE_CHECKING:
    from headrace.drive.status import JobStatus
    from headrace.simulate.emulate import ThreadedFleet
    from headrace.simulate.emulate.switches import FaultSwitch


def demo(
    *,
    rows: int = 3000,
    out: str | Path = "demo-out",
    speed: float = 2.0,
    replicas: int = 8,
    on_status: Callable[[JobStatus], None] | None = None,
) -> JobStatus:
    """The last status of a whole job on emulated servers; its rows lie in OUT/data.

    Args:
        on_status: called with a fresh status about every second.

    Raises:
        HeadraceError: as `run`.
    """
    from headrace.drive.job.file import load_job
    from headrace.simulate.demo import demo_job

    with demo_job(rows=rows, out=Path(out), speed=speed, replicas=replicas) as job_file:
        return run_resolved(
            load_job(job_file).job, on_status=on_status or (lambda status: None), status_every_seconds=1.0
        )


def emulate(
    *,
    replicas: int = 8,
    base_port: int = 0,
    host: str = "127.0.0.1",
    engine: str = "",
    engine_version: str = "",
    gpu: str = "",
    flags: str = "",
    free_gib: float | None = None,
    weights_gib: float | None = None,
    cap: int | None = None,
    speed: float = 1.0,
    mean_output_tokens: float = 400.0,
    context_length: int | None = None,
    model: str = "emulated-27b",
    kv_tokens: int | None = None,
    max_queued_requests: int | None = None,
    reasoning_parser: str | None = None,
    thinking: bool = True,
    seed: int = 0,
    physics_seed: int | None = None,
    journal: str | Path | None = None,
    log: str | Path | None = None,
    refuse: Sequence[int] = (),
    **faults: FaultSwitch,
) -> ThreadedFleet:
    """Emulated servers in a thread: `with headrace.emulate(replicas=2, error_503=5) as fleet: fleet.urls`.

    The keywords are the options of `headrace emulate`; the base port is any free one unless it is given.

    Args:
        faults: `error_503`, `drop`, `slow`, `hang` and the others: a value for every replica, or a mapping of
            replica to value.

    Raises:
        UsageError: with every mistake at once.
        InputError: the server of the launch line (`gpu`, `flags`) would not start.
    """
    import os

    # a handful of servers is quick in plain Python, and shall not wait for a compiler
    os.environ.setdefault("HEADRACE_KERNEL", "python")
    from headrace.simulate.emulate import EmulatorOptions, ThreadedFleet
    from headrace.simulate.emulate.launched import LaunchAsked, with_line
    from headrace.simulate.emulate.switches import as_switches, faults_of

    return ThreadedFleet(
        with_line(
            EmulatorOptions(
                replicas=replicas,
                host=host,
                base_port=base_port,
                speed=speed,
                mean_output_tokens=mean_output_tokens,
                model=model,
                max_queued_requests=max_queued_requests,
                reasoning_parser=reasoning_parser,
                thinking=thinking,
                seed=seed,
                physics_seed=physics_seed,
                journal=Path(journal) if journal is not None else None,
                log=Path(log) if log is not None else None,
                faults=faults_of(replicas, as_switches(faults), refuse),
            ),
            LaunchAsked(engine, engine_version, gpu, flags, free_gib, weights_gib),
            cap=cap,
            kv_tokens=kv_tokens,
            context_length=context_length,
        )
    )
