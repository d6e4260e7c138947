"""job.json: what the last run on a job folder was asked to do, to be read by people and their scripts."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import msgspec

from headrace.drive.job import Job
from headrace.net.redact import redact


def job_as_json(job: Job) -> bytes:
    """The resolved job as indented JSON, paths absolute; no key nor password stands in it."""
    values = dataclasses.asdict(job)
    values["servers"] = [_without_password(url) for url in job.servers]
    text = msgspec.json.format(msgspec.json.encode(values, enc_hook=_path), indent=2)
    return redact(text.decode()).encode() + b"\n"


def _path(value: Any) -> str:
    if isinstance(value, Path):
        return str(value)
    raise NotImplementedError(type(value))


def _without_password(url: str) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
