"""The parts of the documentation that are made from the code; cog puts them between the markers.

`scripts/docs` writes them anew, and the gate refuses what is out of date.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from typing import Any

COLUMNS = "96"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = ["| " + " | ".join(heads) + " |", "|" + " --- |" * len(heads)]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def command_names() -> list[tuple[str, ...]]:
    """Every command and subcommand, in the order of `headrace --help`."""
    from typer.main import get_command

    from headrace.cli.app import app

    found: list[tuple[str, ...]] = [()]
    for name, command in get_command(app).commands.items():  # type: ignore[attr-defined]
        inner = getattr(command, "commands", None)
        found += [(name,)] if inner is None else [(name, sub) for sub in inner]
    return found


def help_of(*words: str) -> str:
    """What `headrace WORDS --help` prints, in a fenced block."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("_TYPER")}
    fixed = {"COLUMNS": COLUMNS, "TERMINAL_WIDTH": COLUMNS, "NO_COLOR": "1", "TERM": "dumb"}
    done = subprocess.run(
        [sys.executable, "-m", "headrace", *words, "--help"],
        capture_output=True,
        text=True,
        check=True,
        env={**kept, **fixed, "PYTHONIOENCODING": "utf-8", "LANG": "C.UTF-8"},
    )
    text = "\n".join(line.rstrip() for line in done.stdout.strip("\n").splitlines())
    return f"```text\n{text.strip(chr(10))}\n```\n"


def steps_example() -> str:
    """What `headrace plan --steps` prints for the golden inputs, from the step on, in a fenced block."""
    line = (
        "--context-length 8192 --mamba-scheduler-strategy extra_buffer --max-running-requests 64 "
        "--mem-fraction-static 0.85 --mamba-ssm-dtype bfloat16"
    )
    words = ["plan", "--engine-version", "0.5.12", "--gpu", "RTX PRO 6000 Blackwell Server"]
    words += ["--model", "Qwen/Qwen3.6-27B", "--flags", line, "--free-gib", "94.3", "--weights-gib", "51.1"]
    words += ["--input-tokens", "220", "--output-tokens", "2700", "--steps"]
    done = subprocess.run(
        [sys.executable, "-m", "headrace", *words],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "COLUMNS": "80", "NO_COLOR": "1", "TERM": "dumb", "PYTHONIOENCODING": "utf-8"},
    )
    lines = [text.rstrip() for text in done.stdout.splitlines()]
    start = next(at for at, text in enumerate(lines) if text.startswith("A decode step"))
    end = next(at for at, text in enumerate(lines) if at > start and text.startswith("How to read"))
    return "```text\n" + "\n".join(lines[start:end]) + "\n```\n"


def command_line() -> str:
    """The help of every command, under a heading each."""
    return "\n".join(f"## {' '.join(('headrace', *words))}\n\n{help_of(*words)}" for words in command_names())


def job_keys() -> str:
    """The keys of a job file: the job's, then a source's."""
    from headrace.drive.job.schema import JobKeys, SourceKeys

    parts = []
    for title, model in (("The job", JobKeys), ("An entry of `sources`", SourceKeys)):
        schema = model.model_json_schema()
        rows = []
        for name, field in model.model_fields.items():
            kind = _kind(schema["properties"][name], schema.get("$defs", {}))
            default = (
                "**required**"
                if field.is_required()
                else _default(field.get_default(call_default_factory=True))
            )
            rows.append((f"`{name}`", kind, default, field.description or ""))
        parts.append(f"### {title}\n\n" + table(("key", "value", "default", "meaning"), rows))
    return "\n".join(parts)


def _kind(schema: dict[str, Any], defs: dict[str, Any]) -> str:
    if "$ref" in schema:
        return _kind(defs[schema["$ref"].rsplit("/", 1)[1]], defs)
    if "anyOf" in schema:
        return " or ".join(
            dict.fromkeys(_kind(one, defs) for one in schema["anyOf"] if one.get("type") != "null")
        )
    if "enum" in schema:
        return ", ".join(f"`{word}`" for word in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    words = {"string": "text", "integer": "whole number", "number": "number", "boolean": "true/false"}
    kind = schema.get("type", "anything")
    if kind == "array":
        return f"list of {_kind(schema.get('items', {}), defs)}" if schema.get("items") else "list"
    return "mapping" if kind == "object" else words.get(str(kind), str(kind))


def _default(value: Any) -> str:
    if value is None or value in ({}, ()):
        return ""
    if isinstance(value, bool):
        return "`true`" if value else "`false`"
    return f"`{value.value if hasattr(value, 'value') else value}`"


def sampling_parameters() -> str:
    """The sampling parameters that are known, in one line."""
    from headrace.drive.sampling import KNOWN

    return ", ".join(f"`{name}`" for name in KNOWN) + ".\n"


def job_json() -> str:
    """The keys of job.json: those of the job, then those of an entry of its `sources`."""
    from headrace.drive.job import Job, Source

    heads = ("key", "what it is")
    parts = (("The job", Job), ("An entry of `sources`", Source))
    return "\n".join(f"### {title}\n\n" + table(heads, _attributes(kind)) for title, kind in parts)


def _attributes(kind: type) -> list[tuple[str, str]]:
    """Each attribute that the docstring of a class names, and its meaning in one line."""
    import dataclasses
    import inspect

    told = (inspect.getdoc(kind) or "").split("Attributes:\n")[1]
    found = re.findall(r"^    (\w[\w /]*): (.+(?:\n {8,}.+)*)", told, re.MULTILINE)
    meaning = {
        name: " ".join(text.split()).replace("None", "null")
        for names, text in found
        for name in names.split(" / ")
    }
    return [(f"`{field.name}`", meaning[field.name]) for field in dataclasses.fields(kind)]


def row_schema() -> str:
    """The columns of a finished shard."""
    from headrace.drive.store.shards import shard_schema

    rows = [
        (f"`{field.name}`", f"`{field.type}`", (field.metadata or {})[b"description"].decode())
        for field in shard_schema()
    ]
    return table(("column", "Parquet type", "what it is"), rows)


def failed_schema() -> str:
    """The fields of a line of failed/failed.jsonl."""
    from headrace.drive.store.rows import FailedRow

    return table(
        ("field", "type"), ((f"`{name}`", f"`{kind}`") for name, kind in FailedRow.__annotations__.items())
    )


def flags() -> str:
    """The row flags and what may be done about a flagged row."""
    from headrace.words import Flag, FlagPolicy

    rows = [(f"`{word}`", comment) for word, comment in _commented(Flag)]
    policies = [(f"`{word}`", comment) for word, comment in _commented(FlagPolicy)]
    return table(("flag", "what is wrong"), rows) + "\n" + table(("policy", "what is done"), policies)


def _commented(words: type) -> list[tuple[str, str]]:
    """Each value of an enumeration with the comment beside it in the source."""
    import inspect

    found = re.findall(r'= "(\w+)"  # (.+)', inspect.getsource(words))
    return [(word, comment) for word, comment in found]


def exit_codes() -> str:
    """The exit codes and the errors behind them."""
    from headrace import errors

    rows = [("0", "", "Done."), ("1", "", "A fault in headrace: the traceback is shown. Please report it.")]
    found = [
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, errors.HeadraceError)
    ]
    rows += [
        (str(kind.exit_code), f"`{kind.__name__}`", (kind.__doc__ or "").splitlines()[0])
        for kind in sorted(found, key=lambda one: one.exit_code)
        if kind is not errors.HeadraceError
    ]
    would_not_start = (
        str(errors.WOULD_NOT_START),
        "",
        "`headrace plan`: the server would not start with these flags; the plan says why.",
    )
    rows.insert(-1, would_not_start)
    return table(("code", "error in Python", "meaning"), rows)


def metrics() -> str:
    """What `--metrics-port` exports."""
    from headrace.report.metrics import METRICS

    rows = [
        (
            f"`{metric.name}{'_total' if metric.kind == 'counter' else ''}`",
            metric.kind,
            ", ".join(f"`{label}`" for label in metric.labels),
            metric.help,
        )
        for metric in METRICS
    ]
    return table(("name", "kind", "labels", "meaning"), rows)


def sample_view() -> str:
    """The live table of a made-up job, in a fenced block."""
    from rich.console import Console

    from headrace.drive.status import EndpointStatus, JobStatus, SourceStatus
    from headrace.report.job_view import live_view

    def server(
        port: int, state: str, in_flight: int, running: int, queued: int, rate: float, **more: Any
    ) -> Any:
        facts: dict[str, Any] = {
            "why": "",
            "errors": {},
            "median_latency_seconds": 48.0,
            "answered": 9_300,
            **more,
        }
        return EndpointStatus(
            url=f"http://127.0.0.1:{port}", state=state, in_flight=in_flight, limit=36, limit_origin="reported",
            cap=32, running=running, queued=queued, output_tokens_per_second=rate, **facts,
        )  # fmt: skip

    down = {
        "why": "refused the connection (12 times); next try in 8 s",
        "errors": {"dropped": 31},
        "answered": 8_100,
    }
    status = JobStatus(
        out="out/first", pid=4711, host="box", phase="running", message="", wall_time=0.0, elapsed_seconds=14_460.0,
        rows=120_000, done=27_112, failed=41, excluded=0, duplicates=230, pending=92_775, in_flight=72,
        in_flight_limit=72, done_this_run=27_112, tries_this_run=27_298, requests_per_second=1.61,
        output_tokens_per_second=4_025.0, output_tokens_per_second_finished=3_870.0, in_flight_tokens=88_000.0,
        settled=True, mean_output_tokens=2_400.0, median_latency_seconds=48.0, eta_seconds=56_100.0,
        flags={"truncated": 310, "repetition": 12}, errors={"dropped": 31}, failures={"refused": 41}, hedged=0,
        endpoints=[
            server(30000, "reachable", 36, 32, 4, 2_010.0),
            server(30001, "reachable", 36, 32, 4, 2_015.0),
            server(30002, "broken", 0, 0, 0, 0.0, **down),
        ],
        sources=[
            SourceStatus(name="math", rows=80_000, done=18_070, failed=41, excluded=0, mean_output_tokens=2_900.0, truncated=290),
            SourceStatus(name="chat", rows=40_000, done=9_042, failed=0, excluded=0, mean_output_tokens=1_400.0, truncated=20),
        ],
    )  # fmt: skip
    console = Console(width=80, color_system=None, force_terminal=False, legacy_windows=False)
    with console.capture() as captured:
        console.print(live_view(status, 80))
    text = "\n".join(line.rstrip() for line in captured.get().splitlines())
    return f"```text\n{text}\n```\n"
