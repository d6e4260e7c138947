"""What `headrace demo` says around its job: what is to be seen, a row of each source, what to try next."""

from __future__ import annotations

import itertools
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

from headrace.simulate.demo import demo_job


def run_demo(*, rows: int, out: Path, speed: float, replicas: int) -> int:
    """The exit code of a whole job on emulated servers; no process outlives it.

    Raises:
        HeadraceError: as `headrace run`.
    """
    from headrace.cli.running import run_and_show
    from headrace.drive.job.file import load_job

    _say(
        f"{rows:,} prompts from three sources, {replicas} emulated servers. Some requests are turned away or "
        "cut off, and one server dies and comes back: watch nothing get lost. Ctrl-C stops; the same command "
        "goes on."
    )
    with demo_job(rows=rows, out=out, speed=speed, replicas=replicas) as job_file:
        again = f"headrace demo --rows {rows} --out {out}"
        code = run_and_show(load_job(job_file).job, progress="auto", again=again)
    if code == 0:
        _show_rows(out / "data")
        _say_next(out)
    return code


def _say(text: str) -> None:
    sys.stdout.write(textwrap.fill(text, 80) + "\n\n")
    sys.stdout.flush()


def _show_rows(data: Path) -> None:
    """Prints one row of each source."""
    from headrace.drive.store.reader import read_rows
    from headrace.report.figures import duration

    shown: set[str] = set()
    for row in itertools.islice(read_rows(data), 100_000):
        if row.source in shown:
            continue
        shown.add(row.source)
        asked = row.prompt or (row.messages[-1]["content"] if row.messages else "")
        head = (
            f"{row.id} · row {row.row} of {row.source} · {row.finish_reason} · {row.completion_tokens} tokens"
        )
        lines = [f"{head} · {duration(row.latency_seconds)} · {row.server}"]
        lines += _paragraph("asked", asked)
        if row.reasoning:
            lines += _paragraph("thought", row.reasoning)
        lines += _paragraph("answered", row.answer)
        sys.stdout.write("\n" + "\n".join(lines) + "\n")
        if len(shown) == 3:
            break


def _paragraph(name: str, text: str, limit: int = 200) -> Sequence[str]:
    from headrace.report.figures import cut, printable

    body = cut(" ".join(printable(text).split()), limit)
    return textwrap.wrap(body, 80, initial_indent=f"  {name:<9} ", subsequent_indent=" " * 12) or [
        f"  {name:<9} –"
    ]


def _say_next(out: Path) -> None:
    data = out / "data"
    sys.stdout.write(
        f"\nThe data set: {data}/completions (Parquet; every tool that reads Parquet reads it)\n"
        "Try next:\n"
        f"  less {out}/job.yaml                      the job that has just run\n"
        f"  headrace status {data}\n"
        f"  headrace export {data} --to conversations --reasoning inline\n"
        "  headrace run --prompts YOUR.jsonl --server http://HOST:PORT --out out/first --dry-run\n"
    )
