"""Where a server's key comes from: the environment or a file, never an argument, never kept."""

from __future__ import annotations

import os
from pathlib import Path

from headrace.drive.job import Job
from headrace.errors import UsageError

MAX_KEY_CHARACTERS = 8192  # servers refuse longer headers


def read_api_key(job: Job) -> str | None:
    """The bearer key that the job names, or None. Raises UsageError when it is named but no key."""
    if job.api_key_env is not None:
        return key_from_environment(job.api_key_env)
    if job.api_key_file is not None:
        return key_from_file(job.api_key_file)
    return None


def key_from_environment(name: str) -> str:
    """The key in the environment variable. Raises UsageError, which never shows it."""
    key = os.environ.get(name, "").strip()
    if not key:
        raise UsageError(f"environment variable {name} is not set or empty; export it first.")
    return _checked(key, f"environment variable {name}")


def key_from_file(path: Path) -> str:
    """The key that is the one line of the file. Raises UsageError, which never shows it."""
    if not path.is_file():
        raise UsageError(f"api_key_file: '{path}' is no file; write the key into it.")
    try:
        with open(path, encoding="utf-8", errors="replace") as lines:
            key = lines.read(2 * MAX_KEY_CHARACTERS).strip()
    except OSError as error:
        raise UsageError(
            f"api_key_file: '{path}' cannot be read: {error.strerror}; check its permissions."
        ) from None
    if not key:
        raise UsageError(f"api_key_file: '{path}' is empty; write the key into it.")
    return _checked(key, f"api_key_file '{path}'")


def _checked(key: str, origin: str) -> str:
    """The key, if it can stand in a header: printable ASCII on one line."""
    if len(key) > MAX_KEY_CHARACTERS:
        raise UsageError(
            f"{origin} holds more than {MAX_KEY_CHARACTERS:,} characters; it must hold one line with the key."
        )
    for at, letter in enumerate(key, 1):
        if not "!" <= letter <= "~":
            kind = "a line break" if letter in "\r\n" else f"U+{ord(letter):04X}"
            raise UsageError(
                f"{origin} holds {kind} as character {at} of {len(key)}; it must hold one line with the key, "
                "letters, digits and signs of ASCII."
            )
    return key
