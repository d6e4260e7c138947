"""A prompt: what a source row asks, before it becomes a request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Message = Mapping[str, Any]  # role, content (str or list of parts), and whatever else chat APIs take


@dataclass(frozen=True, slots=True)
class PromptRow:
    """What one source row asks. Exactly one of `messages`, `text`, `body` is set.

    Attributes:
        row: 1-based row of its source.
        messages: a chat, ending in the turn to be answered (a trailing assistant turn is cut off).
        text: a plain prompt (sent as one user message over the chat API).
        body: a whole request body (OpenAI batch), sent as it is but for `model`.
        url: the request path that an OpenAI batch row names, or None.
        own_id: the value of the id column, or None.
        extra: the row's other columns.
    """

    row: int
    messages: tuple[Message, ...] | None = None
    text: str | None = None
    body: Mapping[str, Any] | None = None
    url: str | None = None
    own_id: str | None = None
    extra: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Locator:
    """Where the bytes of a source row lie, so that it can be read again.

    Attributes:
        file: position in the job's file table (0 is the spool in OUT/prompts).
        offset, length: bytes; the bytes are one JSON object.
    """

    file: int
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class Request:
    """One request, ready to send but for the model name.

    Attributes:
        path: URL path, e.g. /v1/chat/completions.
        body: JSON-able; has no `model` (the driver adds the served name).
        messages, text: what is asked, as it is kept in the output row.
    """

    path: str
    body: Mapping[str, Any]
    messages: tuple[Message, ...] | None
    text: str | None


@dataclass(frozen=True, slots=True)
class Prompt:
    """One row to be answered, loaded and ready: what the dispatcher hands to an endpoint.

    Attributes:
        seq: position in the job's index, 0-based; the ledger's name for it.
        id: as it will stand in `Row.id`.
        source: index into `Job.sources`.
        row, sample: as in `Row`.
    """

    seq: int
    id: str
    source: int
    row: int
    sample: int
    request: Request
    extra: Mapping[str, Any] | None
