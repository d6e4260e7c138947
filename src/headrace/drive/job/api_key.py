"""Where a server's key comes from: the environment or a file, never an argument, never kept."""

from __future__ import annotations

import os

from headrace.drive.job import Job
from headrace.errors import UsageError


def read_api_key(job: Job) -> str | None:
    """The bearer key that the job names, or None. Raises UsageError when it is named but not there."""
    if job.api_key_env is not None:
        key = os.environ.get(job.api_key_env, "")
        if not key:
            raise UsageError(
                f"the environment variable {job.api_key_env} (--api-key-env) is not set or empty"
            )
        return key.strip()
    if job.api_key_file is not None:
        try:
            key = job.api_key_file.read_text().strip()
        except OSError as error:
            raise UsageError(f"cannot read the key file {job.api_key_file}: {error.strerror}") from None
        if not key or "\n" in key:
            raise UsageError(f"the key file {job.api_key_file} must hold one line with the key")
        return key
    return None
