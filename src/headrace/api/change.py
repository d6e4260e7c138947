"""Change the servers of a running job."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any


def fleet_add(servers: str | Sequence[str], job: str | Path) -> list[tuple[str, dict[str, Any]]]:
    """(server, the job's answer) for each server that a running job is given.

    Args:
        servers: URLs, port ranges too.
        job: output folder of the running job.

    Raises:
        UsageError: an address is wrong; nothing was asked of the job.
        UnreachableError: no job runs there.
        InputError: the job refused some; its own words. The others were changed.
    """
    return _fleet_change("add", servers, job)


def fleet_drain(servers: str | Sequence[str], job: str | Path) -> list[tuple[str, dict[str, Any]]]:
    """As `fleet_add`, for servers that get nothing new and finish what they have."""
    return _fleet_change("drain", servers, job)


def fleet_remove(servers: str | Sequence[str], job: str | Path) -> list[tuple[str, dict[str, Any]]]:
    """As `fleet_add`, for servers that are taken out at once; their work is asked of the others."""
    return _fleet_change("remove", servers, job)


def _fleet_change(
    action: str, servers: str | Sequence[str], job: str | Path
) -> list[tuple[str, dict[str, Any]]]:
    from headrace.errors import InputError

    replies = list(fleet_replies(action, [servers] if isinstance(servers, str) else servers, job))
    refusals = [str(answer["error"]) for _, answer in replies if "error" in answer]
    if refusals:
        raise InputError("; ".join(refusals))
    return replies


def fleet_replies(
    action: str, servers: Sequence[str], job: str | Path
) -> Iterator[tuple[str, dict[str, Any]]]:
    """As `fleet_add` and its like, each answer as it comes; a refusal is {"error": the job's words}.

    Args:
        action: `add`, `drain` or `remove`.

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
