"""What this process may do and has at hand, settled before a job begins."""

from __future__ import annotations

import resource

from headrace.extras import require

OTHER_FILES = (
    96  # ledger, sources, shards, log, sockets of the libraries: what a run has open besides requests
)
FEW = 2048  # fewer requests in flight than this are worth a word, and fewer than were asked for


def allow_open_files() -> int:
    """Requests that may be in flight at once: this process's open files, raised to the limit, less others."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 65_536 if hard == resource.RLIM_INFINITY else min(hard, 65_536)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    if soft == resource.RLIM_INFINITY:
        soft = wanted
    return max(1, soft - OTHER_FILES)


def note_of_few_files(most: int, asked: int) -> list[str]:
    """A word to the user where this process may open few files; empty where it may open enough.

    Args:
        most: as from `allow_open_files`.
        asked: requests in flight that the job wants; 0 where it leaves that open.
    """
    if most >= max(FEW, asked):
        return []
    return [f"this process may open few files (`ulimit -n`): at most {most:,} requests are kept in flight"]


def require_arrow() -> None:
    """Raises UsageError when pyarrow, which writes the shards, is not installed."""
    require("pyarrow", "running a job")
