"""Takes secrets out of text before it is kept or shown."""

from __future__ import annotations

import re

# bearer tokens and anything that names itself a key, secret, password or token with a value behind it
_SECRETS = (
    re.compile(r"(?i)(bearer\s+)[A-Za-z0-9._~+/=-]{6,}"),
    re.compile(
        r"""(?i)((?:api[_-]?key|admin[_-]?api[_-]?key|secret|password|auth[_-]?token|hf[_-]?token)["']?\s*[:=]\s*["']?)[^\s"',}]{3,}"""
    ),
    re.compile(r"()\b(?:sk|hf)[-_][A-Za-z0-9_-]{16,}"),
)


_known: set[str] = set()
_MIN_SECRET = 4  # shorter ones would blacken ordinary words


def remember(secret: str) -> None:
    """Takes note of a secret of this process, to be redacted wherever it occurs, whatever its form."""
    if len(secret) >= _MIN_SECRET:
        _known.add(secret)


def redact(text: str) -> str:
    """The text with every known secret and every secret-looking value replaced by `[redacted]`."""
    for secret in _known:
        text = text.replace(secret, "[redacted]")
    for pattern in _SECRETS:
        text = pattern.sub(r"\1[redacted]", text)
    return text
