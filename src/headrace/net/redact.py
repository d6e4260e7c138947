"""Takes secrets out of text and documents before they are kept or shown: one set of rules, for all writers.

What is a secret is told by its name (`api_key=…`, `--admin-api-key …`, `"password": "…"`, headers, query
strings, users in URLs), by its shape (`sk-…`, `hf_…`, AWS, GitHub, a private key, a JSON web token), or by
being known: keys of this process, and what its environment holds under such names.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final
from urllib.parse import quote

HIDDEN: Final = "[redacted]"
_LOOK_AHEAD = 400  # characters beyond a cut that are looked at, so that no half of a secret stays
_MIN_KNOWN = 4  # shorter ones would blacken ordinary words
_MIN_ENVIRONMENT = 8

# names that hold secrets, whatever stands before them: admin_api_key, ssl_keyfile_password, AWS_SECRET_…
_WORDS = (
    r"api[_ -]?keys?|apikey|secrets?|passw(?:or)?ds?|passwd|passphrase|credentials?|pwd"
    r"|(?:private|access|encryption|signing|account|license)[_-]?key"
    r"|(?:auth|access|refresh|id|session|security|bearer|hf|hub|hugging_?face|api|github|gh|gitlab|slack|wandb"
    r"|user|admin|service|client|bot|deploy)[_-]?token"
)
_NAME = rf"[\w.-]*?(?:{_WORDS})(?:[_-](?!env|file|path|name)\w{{1,20}})?(?![\w-])"
_QUOTE = r"(?:b?\\{0,3}[\"'`]|&quot;|&\#(?:x27|x22|39|34);)"
_NO_VALUE = r"(?!\[redacted|(?:None|null|NULL|nil|true|false|True|False|\*{3,}|\.{3})(?![\w-]))"
_VALUE = (
    rf"(?:[\[(]\s*{_QUOTE}[^\])]{{1,4000}}"  # a list of several
    rf"|(?P<quote>{_QUOTE}){_NO_VALUE}(?:(?!(?P=quote)).){{1,4000}}"
    rf"|{_NO_VALUE}[^\s\"'`,;&}}\])<>|]{{3,}})"
)
_TAGS = r"(?:\s*</?\w[^>]{0,80}>\s*)+"
_AFTER_NAME = (
    rf"(?:\s(?:provided|given|received|used))?"
    rf"(?:{_QUOTE}?\]?\s*(?:=>|:=|[:=]|{_TAGS})\s*|{_QUOTE}\s*,\s*(?={_QUOTE}))"
)
_SCHEMES = r"(?:basic|bearer|digest|token|negotiate|apikey)"
_LOOKS_SECRET = r"(?=[\w.~+/=-]*[A-Za-z])(?=[\w.~+/=-]*\d)[\w.~+/=-]{8,}"

_RULES: Final = tuple(
    re.compile(pattern, re.DOTALL)
    for pattern in (
        r"()-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----.*?(?:-----END[^-]{0,60}-----|\Z)",
        rf"(?i)((?:proxy-)?authorization{_AFTER_NAME}{_QUOTE}?(?:{_SCHEMES}\s+)?)"
        rf"(?!\[redacted|{_SCHEMES}\s)[^\s\"'`}}<]{{3,}}",
        r"(?i)((?:set-)?cookie[\"']?\s*:\s*[\"']?)(?!\s*\[redacted)[^\r\n\"']{3,}",
        r"(?i)(\bbearer\s+)[A-Za-z0-9._~+/=-]{6,}",
        r"(?i)(\bbasic\s+)[A-Za-z0-9+/]{8,}={1,2}",
        r"([A-Za-z][A-Za-z0-9+.-]{0,20}://)(?!\[redacted)[^\s/\"'<>]{1,300}@",
        r"(?<![\w/@.:-])()[\w.+-]{1,64}:[^\s:/@\"'\[]{3,128}@(?=localhost\b|[\w-]+[.:]\w)",
        r"(?i)([?&;](?:key|token|sig|signature|auth|code|pass|x-amz-[\w-]{1,40}|x-goog-[\w-]{1,40})=)"
        r"(?!\[redacted)[^&\s\"'<>]{3,}",
        rf"(?i)((?<!\w){_NAME}{_AFTER_NAME}){_VALUE}",
        rf"(?i)((?<!\S)--?{_NAME}\s+{_QUOTE}?)(?!-|\[redacted)[^\s\"'`]{{3,}}",
        rf"(?i)((?<!\w){_NAME}\s+{_QUOTE}?){_LOOKS_SECRET}",
        rf"(\b[A-Z0-9_]*TOKEN{_QUOTE}?\s*[:=]\s*{_QUOTE}?){_NO_VALUE}[^\s\"'`,;&}}\])<>|]{{6,}}",
        rf"(?i)((?<!\w)-{{0,2}}token{_QUOTE}?(?:\s*[:=]\s*|\s+){_QUOTE}?){_LOOKS_SECRET}",
        r"()\b(?:sk|pk|rk)[-_][A-Za-z0-9_-]{16,}",
        rf"()\bsk-{_LOOKS_SECRET}",  # short ones that people give their own servers
        r"()\b(?:hf|api_org)_[A-Za-z0-9]{16,}",
        r"()\b(?:AKIA|ASIA|AROA|AIDA)[A-Z0-9]{12,}",
        r"()\b(?:gh[pousr]_|github_pat_|xox[abeprs]-|glpat-|nvapi-|gsk_|npm_|pypi-|dckr_pat_|AIza|ya29\.|dop_v1_"
        r"|r8_|wandb_v1_|SG\.)[A-Za-z0-9_.-]{10,}",
        r"()\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)?",
    )
)
# none of the rules can match where none of these stands: most texts end here
_PERHAPS = re.compile(
    r"(?i)key|secret|passw|pwd|passphrase|token|auth|credential|cookie|bearer|basic|://|@|[?&;](?:sig|code|pass|x-)"
    r"|\b[srp]k[-_]|hf_|api_org_|A[KSRI][IO][AD]|gh[pousr]_|github_pat|xox|glpat|nvapi|gsk_|npm_|pypi-|dckr_|AIza|ya29"
    r"|dop_v1|r8_|wandb_|SG\.|eyJ|BEGIN "
)
_SECRET_NAME = re.compile(rf"(?i)(?:{_NAME})\Z")
_SECRET_VARIABLE = re.compile(rf"(?i)(?:{_NAME}|\w*_?TOKEN)\Z")

# of a flag or variable the name alone is known, so more of them count
_SECRET_SETTING = re.compile(r"(?i)key|token$|secret|password|passphrase|auth(?!o)|credential")
_NO_SECRET_SETTING = re.compile(
    r"(?i)tokenizer|max[-_].*token|num[-_].*token|tokens|monkey|authorit|[-_](?:file|path|env|name)$|sock$"
)

_known: set[str] = set()


def remember(secret: str) -> None:
    """Takes note of a secret of this process, to be redacted wherever it occurs, whatever its form."""
    if len(secret) >= _MIN_KNOWN:
        _known.update((secret, quote(secret, safe=""), json.dumps(secret)[1:-1]))


@lru_cache(maxsize=1)
def _read_environment() -> None:
    """Takes note of what the environment holds under names of secrets."""
    for name, value in os.environ.items():
        if len(value) >= _MIN_ENVIRONMENT and not value.startswith("/") and _SECRET_VARIABLE.match(name):
            remember(value)


def is_secret_setting(name: str) -> bool:
    """Whether a flag or an environment variable of this name may hold a secret."""
    return bool(_SECRET_SETTING.search(name)) and not _NO_SECRET_SETTING.search(name)


def redact(text: str, limit: int | None = None) -> str:
    """Returns the text with every known secret and every secret-looking value replaced by `[redacted]`.

    Args:
        limit: cut to so many characters; a little beyond is looked at, so that no half of a secret stays.
    """
    if limit is not None:
        text = text[: limit + _LOOK_AHEAD]
    _read_environment()
    for secret in _known:
        if secret in text:
            text = text.replace(secret, HIDDEN)
    if _PERHAPS.search(text):
        for rule in _RULES:
            text = rule.sub(_hide, text)
    return text if limit is None else text[:limit]


def _hide(found: re.Match[str]) -> str:
    quoted = found.groupdict().get("quote") or ""
    end = "@" if found[0].endswith("@") else ""
    return f"{found[1]}{quoted}{HIDDEN}{end}"


def redact_document(value: Any) -> Any:
    """Returns a document without secrets: those under their names, and those within texts."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, Mapping):
        return {key: HIDDEN if _hides(key, inner) else redact_document(inner) for key, inner in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        return [redact_document(inner) for inner in value]
    return value


def _hides(key: object, value: object) -> bool:
    """Whether the value under a key is a secret: a text, or several."""
    if not isinstance(key, str) or not _SECRET_NAME.match(key):
        return False
    return isinstance(value, str) or (
        isinstance(value, Iterable)
        and not isinstance(value, Mapping)
        and any(isinstance(one, str) for one in value)
    )


def without_user(text: str) -> str:
    """Returns the text with the user and password taken out of every URL."""
    return re.sub(r"(?<=://)[^/@\s]+@", "", text)
