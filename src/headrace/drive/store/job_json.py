"""job.json: what the last run on a job folder was asked to do, to be read by people and their scripts."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import msgspec

from headrace.drive.job import Job
from headrace.net.redact import redact_document


def job_as_json(job: Job) -> bytes:
    """The resolved job as indented JSON, paths absolute; no key nor password stands in it."""
    values = dataclasses.asdict(job)
    values["servers"] = [_without_password(url) for url in job.servers]
    document = redact_document(msgspec.to_builtins(values, enc_hook=_path))
    return msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"


def _path(value: Any) -> str:
    if isinstance(value, Path):
        return str(value)
    raise NotImplementedError(type(value))


def _without_password(url: str) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
