"""A running job as lines: one per moment, for logs, `grep` and `jq`."""

from __future__ import annotations

import msgspec

from headrace.drive.status import JobStatus
from headrace.report.figures import printable


def plain_line(status: JobStatus) -> str:
    """One line of `name=value`, numbers without separators; what is not known is left out."""
    reachable = sum(endpoint.state == "reachable" for endpoint in status.endpoints)
    parts = [
        _elapsed(status.elapsed_seconds),
        status.phase,
        f"done={status.done}",
        f"failed={status.failed}",
        f"pending={status.pending}",
        f"rows={status.rows}",
        f"in_flight={status.in_flight}/{status.in_flight_limit}",
        f"servers={reachable}/{len(status.endpoints)}",
    ]
    if status.requests_per_second is not None:
        parts.append(f"requests_per_second={status.requests_per_second:.2f}")
    if status.output_tokens_per_second is not None:
        parts.append(f"output_tokens_per_second={status.output_tokens_per_second:.0f}")
    if status.output_tokens_per_second_finished is not None and not status.settled:
        parts.append(f"finished_only={status.output_tokens_per_second_finished:.0f}")
    if status.eta_seconds is not None:
        parts.append(f"eta_seconds={status.eta_seconds:.0f}")
    for name, counts in (("flags", status.flags), ("errors", status.errors), ("failures", status.failures)):
        told = ",".join(f"{kind}:{number}" for kind, number in sorted(counts.items()) if number)
        if told:
            parts.append(f"{name}={told}")
    if status.other_rows:
        parts.append(f"other_rows={status.other_rows}")
    if status.message:
        parts.append(f"message={_quoted(status.message)}")
    return " ".join(parts)


def note_line(status: JobStatus, note: str) -> str:
    """What the job has noted of how it began, as a line between the plain ones."""
    return f"{_elapsed(status.elapsed_seconds)} note={_quoted(note)}"


def json_line(status: JobStatus) -> str:
    """The status document on one line."""
    return msgspec.json.encode(status).decode()


def found_line(status: JobStatus, live: bool, age_seconds: float) -> str:
    """The status document on one line, and before it how it was found.

    Args:
        live: a running job gave it; else it is the snapshot that one left.
        age_seconds: how old it is.
    """
    found = {"live": live, "age_seconds": round(age_seconds, 3), **msgspec.to_builtins(status)}
    return msgspec.json.encode(found).decode()


def _elapsed(seconds: float) -> str:
    """`[HH:MM:SS]` since this run began; hours go on beyond 24."""
    whole = int(max(seconds, 0.0))
    return f"[{whole // 3600:02}:{whole // 60 % 60:02}:{whole % 60:02}]"


def _quoted(text: str) -> str:
    return '"' + printable(text).replace("\\", "\\\\").replace('"', '\\"') + '"'
