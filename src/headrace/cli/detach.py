"""`headrace run --detach`: the same command in a session of its own, out of the terminal's reach."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.errors import StorageError

if TYPE_CHECKING:
    from headrace.drive.job import Job

LOG_NAME = "run.log"
POLL_SECONDS = 0.1


def run_detached(job: Job, arguments: Sequence[str]) -> int:
    """Starts the job in the background and waits until it says where it stands; 0, or its own exit code."""
    words = [word for word in arguments if word != "--detach"]
    log = job.out / LOG_NAME
    try:
        job.out.mkdir(parents=True, exist_ok=True)
        begin = log.stat().st_size if log.exists() else 0
        with open(log, "ab") as lines:
            child = subprocess.Popen(
                [sys.executable, "-m", "headrace", *words],
                stdin=subprocess.DEVNULL,
                stdout=lines,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=child_environment(os.environ),
            )
    except OSError as error:
        raise StorageError(f"cannot write {log}: {error.strerror}. Choose another --out.") from None
    code = wait_until_known(child.poll, lambda: _speaks(job.out, child.pid), time.sleep)
    if code is None:
        sys.stdout.write(f"The job runs in the background as process {child.pid}; its lines are in {log}.\n")
        sys.stdout.write(
            f"See it:   headrace status {job.out}\nStop it:  kill -INT {child.pid}   (drains first)\n"
        )
        return 0
    sys.stderr.write(_said_since(log, begin))
    if code == 0:
        sys.stdout.write(f"The job is finished already; see headrace status {job.out}.\n")
    return code if code >= 0 else 128 - code


def child_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of the detached run, told that hang-ups are not for it."""
    return {**environment, "HEADRACE_DETACHED": "1", "PYTHONUNBUFFERED": "1"}


def wait_until_known(
    poll: Callable[[], int | None], speaks: Callable[[], bool], sleep: Callable[[float], None]
) -> int | None:
    """None once the job speaks for itself; its exit code if it ends before."""
    while True:
        code = poll()
        if code is not None:
            return code
        if speaks():
            return None
        sleep(POLL_SECONDS)


def _speaks(out: Path, pid: int) -> bool:
    """Whether the snapshot in OUT is by this process and past its start."""
    import msgspec

    from headrace.drive.status import JobStatus

    try:
        status = msgspec.json.decode((out / "status.json").read_bytes(), type=JobStatus)
    except (OSError, msgspec.DecodeError):
        return False
    return status.pid == pid


def _said_since(log: Path, begin: int) -> str:
    """What the job said of its end in this attempt; else all that was written, at most 4,000 bytes.

    Another run may hold the folder and write into the same log meanwhile.
    """
    with open(log, "rb") as lines:
        lines.seek(begin)
        text = lines.read()[-4000:].decode("utf-8", "replace")
    return "".join(line for line in text.splitlines(True) if line.startswith("headrace: ")) or text
