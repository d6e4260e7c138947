"""OpenAI batch rows: `custom_id`, `method`, `url` and a whole request `body`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.drive.sources.turns import RowProblem, kind_of

CHAT_PATH = "/v1/chat/completions"
COMPLETIONS_PATH = "/v1/completions"


def looks_like_batch(row: Mapping[str, Any]) -> bool:
    """True for a row with a `body` object and one of the other batch columns."""
    return isinstance(row.get("body"), dict) and any(name in row for name in ("custom_id", "url", "method"))


def read_batch(row: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """The body as it will be sent (without `model`, `n` and `stream`), and the request path.

    Raises:
        RowProblem: another path or method, several answers or a stream asked for, or nothing to answer.
    """
    body = row.get("body")
    if not isinstance(body, dict):
        raise RowProblem(f"'body' is {kind_of(body)}, not a request body (an object)")
    method = row.get("method") or "POST"
    if method != "POST":
        raise RowProblem(f"'method' is {str(method)[:50]!r}; only POST can be sent")
    path = row.get("url") or (CHAT_PATH if "messages" in body else COMPLETIONS_PATH)
    if path not in (CHAT_PATH, COMPLETIONS_PATH):
        raise RowProblem(f"'url' is {str(path)[:200]!r}; known are {CHAT_PATH}, {COMPLETIONS_PATH}")
    if body.get("n") not in (None, 1):
        raise RowProblem(f"'body' asks for n = {body['n']}; one answer per request. Set `samples` instead")
    if body.get("stream"):
        raise RowProblem("'body' asks for a stream; headrace keeps whole answers. Take `stream` out")
    asked = "messages" if path == CHAT_PATH else "prompt"
    if (
        not isinstance(body.get(asked), list | str)
        or not body[asked]
        or (path == CHAT_PATH and not isinstance(body[asked], list))
    ):
        raise RowProblem(f"'body' has nothing to answer: `{asked}` is {kind_of(body.get(asked))} or empty")
    dropped = ("model", "n", "stream", "stream_options")
    return {name: value for name, value in body.items() if name not in dropped}, path
