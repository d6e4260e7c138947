"""The shape of what a job produces: one `Row` per prompt, and what happened to those that failed."""

from __future__ import annotations

from typing import Any

import msgspec

SOURCE_CHANGED = "source_changed"  # kind of a row whose bytes are no longer those that were scanned


class Row(msgspec.Struct, frozen=True, gc=False):
    """One answered prompt, as it lies in the open file and in the shards (same field names).

    Attributes:
        id: the row's identity: the user's own id, or 32 hex digits of the content hash (`-K` appended
            for the K-th exact duplicate, K ≥ 1; `#N` for the N-th further sample, N ≥ 1).
        source: name of the source in the job.
        row: 1-based row of the source, counted over its files in order.
        sample: n-index, 0-based.
        messages: what was asked, chat form; None for plain prompts. Content is a string, or the list
            of parts as JSON text.
        prompt: what was asked, plain form; None for chats.
        answer: the model's answer, without its reasoning.
        reasoning: the model's thinking, kept apart; None when there was none.
        finish_reason: as the server said it.
        flags: words of `headrace.words.Flag`.
        prompt_tokens, completion_tokens: as the server counted them; None where it did not.
        server, model: who answered.
        latency_seconds: of the try that succeeded; None where no number can say it.
        tries: requests sent for this row, this one included.
        finished_at: Unix seconds; None as above.
        tool_calls: JSON text, or None.
        token_ids: output token ids, where asked for and returned.
        extra: the source row's other columns, as JSON text, or None.
    """

    id: str
    source: str
    row: int
    sample: int
    messages: list[dict[str, str]] | None
    prompt: str | None
    answer: str
    reasoning: str | None
    finish_reason: str | None
    flags: list[str]
    prompt_tokens: int | None
    completion_tokens: int | None
    server: str
    model: str | None
    latency_seconds: float | None
    tries: int
    finished_at: float | None
    tool_calls: str | None = None
    token_ids: list[int] | None = None
    extra: str | None = None


class FailedRow(msgspec.Struct, frozen=True, gc=False):
    """One prompt that was given up, as it lies in failed/: who said what, and after how many tries.

    Attributes:
        kind: `refused` (4xx), `server_error`, `dropped`, `timeout`, `bad_answer` (the server's body could
            not be read), `rejected` (by a flag policy), `unreadable` (the source row), `source_changed`.
        reason: the server's own words (at most 2,000 characters), or what is wrong with the row.
        status: HTTP status, where there was one.
        answer: the rejected answer, for kind `rejected`.
    """

    id: str
    source: str
    row: int
    sample: int
    kind: str
    reason: str
    status: int | None
    server: str | None
    tries: int
    failed_at: float
    answer: str | None = None
    flags: list[str] = []


def as_json_text(value: Any) -> str:
    """The value as compact JSON text."""
    return msgspec.json.encode(value).decode()
