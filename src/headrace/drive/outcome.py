"""What one try came to: an HTTP answer, sorted by what can be done about it. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from headrace.drive.answer import Answer, parse_answer
from headrace.errors import InputError
from headrace.net.http import Response
from headrace.net.redact import redact

MAX_WORDS = 2000  # characters of a server's own words that are kept
# A server that is shut down or told to abort answers 200 with what it had: that is no answer.
BROKEN_OFF = frozenset({"abort", "error"})


@dataclass(frozen=True, slots=True)
class Answered:
    answer: Answer


@dataclass(frozen=True, slots=True)
class Later:
    """429 or 503: it is too busy."""

    status: int
    retry_after_seconds: float | None


@dataclass(frozen=True, slots=True)
class Refused:
    """Any other 4xx: this request can never succeed. `words` are the server's own."""

    status: int
    words: str


@dataclass(frozen=True, slots=True)
class Unauthorised:
    """401 or 403: no row's fault."""

    status: int


@dataclass(frozen=True, slots=True)
class ServerFault:
    """The server failed: another try, elsewhere, may succeed.

    Attributes:
        kind: `server_error`, `dropped`, `refused` (nothing listens), `timeout`, `stalled`, `bad_answer`,
            `open_files`, `stale` (see `HttpFailure`).
    """

    kind: str
    why: str
    status: int | None = None


Outcome = Answered | Later | Refused | Unauthorised | ServerFault


def outcome_of(response: Response, path: str, *, keep_token_ids: bool) -> Outcome:
    """What a complete HTTP answer to a request for `path` comes to."""
    status = response.status
    if status == 200:
        try:
            answer = parse_answer(path, response.body, keep_token_ids=keep_token_ids)
        except InputError as error:
            return ServerFault("bad_answer", str(error), status)
        if answer.finish_reason in BROKEN_OFF:
            return ServerFault(
                "server_error", f"broke the answer off (finish_reason {answer.finish_reason})", status
            )
        return Answered(answer)
    if status in (429, 503):
        return Later(status, response.retry_after_seconds)
    if status in (401, 403):
        return Unauthorised(status)
    words = words_of(response.body)
    if status == 408:
        return ServerFault("timeout", f"{status}: {words}", status)
    if 400 <= status < 500:
        return Refused(status, words)
    if status >= 500:
        return ServerFault("server_error", f"{status}: {words}", status)
    return ServerFault(
        "bad_answer", f"{status} where 200 was expected (redirects are not followed): {words}", status
    )


def words_of(body: bytes) -> str:
    """The server's own words in an error body (its message, if JSON), secrets redacted."""
    text = body[: 8 * MAX_WORDS].decode("utf-8", "replace")
    try:
        found: Any = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        found = None
    if isinstance(found, dict):
        error = found.get("error")
        for candidate in (error, found):
            if isinstance(candidate, dict):
                message = candidate.get("message") or candidate.get("detail")
                if isinstance(message, str):
                    text = message
                    break
        else:
            if isinstance(error, str):
                text = error
    return redact(" ".join(text[: 8 * MAX_WORDS].split()), MAX_WORDS) or "(nothing said)"
