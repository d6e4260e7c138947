"""What a server answered: parsed, with the thinking kept apart from the answer on every path."""

from __future__ import annotations

from typing import Any

import msgspec

from headrace.errors import InputError
from headrace.net.redact import redact

OPEN_TAG, CLOSE_TAG = "<think>", "</think>"


class Answer(msgspec.Struct, frozen=True, gc=False):
    """One completion.

    Attributes:
        text: the answer without its reasoning; "" when there is none.
        reasoning: the thinking, from `reasoning_content`, `reasoning` or `<think>` tags; None when none.
        leaked: a think tag is left unclosed, or stands in the answer.
        tool_calls: JSON text, or None.
    """

    text: str
    reasoning: str | None
    leaked: bool
    finish_reason: str | None
    prompt_tokens: int | None
    completion_tokens: int | None
    model: str | None
    tool_calls: str | None
    token_ids: list[int] | None


class _Usage(msgspec.Struct, gc=False):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class _Message(msgspec.Struct, gc=False):
    content: Any = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: Any = None


class _Choice(msgspec.Struct, gc=False):
    message: _Message | None = None
    text: str | None = None
    finish_reason: str | None = None
    token_ids: list[int] | None = None


class _OpenAiAnswer(msgspec.Struct, gc=False):
    choices: list[_Choice]
    usage: _Usage | None = None
    model: str | None = None


class _MetaInfo(msgspec.Struct, gc=False):
    finish_reason: Any = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class _GenerateAnswer(msgspec.Struct, gc=False):
    text: str
    meta_info: _MetaInfo
    output_ids: list[int] | None = None


_openai = msgspec.json.Decoder(_OpenAiAnswer)
_generate = msgspec.json.Decoder(_GenerateAnswer)


def parse_answer(path: str, body: bytes, *, keep_token_ids: bool = False) -> Answer:
    """The completion in a 200 answer to a request for `path`.

    Raises:
        InputError: the body is not the JSON that this path answers (cut short, HTML, no choices).
    """
    try:
        if path == "/generate":
            return _from_generate(_generate.decode(body), keep_token_ids)
        return _from_openai(_openai.decode(body), keep_token_ids)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        shown = redact(body[:1000].decode("utf-8", "replace"), 200)
        raise InputError(
            f"the answer of {len(body)} bytes is not a completion: {error}. It begins: {shown!r}"
        ) from None


def _from_openai(answer: _OpenAiAnswer, keep_token_ids: bool) -> Answer:
    if not answer.choices:
        raise InputError("the answer has no choices")
    choice = answer.choices[0]
    message = choice.message
    if message is None:
        content, given_reasoning, tool_calls = choice.text or "", None, None
    else:
        content = _text_of(message.content)
        given_reasoning = message.reasoning_content or message.reasoning
        tool_calls = msgspec.json.encode(message.tool_calls).decode() if message.tool_calls else None
    text, reasoning, leaked = split_reasoning(content, given_reasoning)
    usage = answer.usage or _Usage()
    return Answer(
        text=text,
        reasoning=reasoning,
        leaked=leaked,
        finish_reason=choice.finish_reason,
        prompt_tokens=_count(usage.prompt_tokens),
        completion_tokens=_count(usage.completion_tokens),
        model=answer.model,
        tool_calls=tool_calls,
        token_ids=_ids(choice.token_ids) if keep_token_ids else None,
    )


def _from_generate(answer: _GenerateAnswer, keep_token_ids: bool) -> Answer:
    text, reasoning, leaked = split_reasoning(answer.text, None)
    finish = answer.meta_info.finish_reason
    if isinstance(finish, dict):
        finish = finish.get("type")
    return Answer(
        text=text,
        reasoning=reasoning,
        leaked=leaked,
        finish_reason=finish if isinstance(finish, str) else None,
        prompt_tokens=_count(answer.meta_info.prompt_tokens),
        completion_tokens=_count(answer.meta_info.completion_tokens),
        model=None,
        tool_calls=None,
        token_ids=_ids(answer.output_ids) if keep_token_ids else None,
    )


def _count(tokens: int | None) -> int | None:
    """A token count as it can be: what no request can have (negative, a billion) is as good as not told."""
    return tokens if tokens is not None and 0 <= tokens < 1_000_000_000 else None


def _ids(ids: list[int] | None) -> list[int] | None:
    """Token ids that fit the int32 of the shards; else none."""
    return ids if ids is not None and all(0 <= token < 1 << 31 for token in ids) else None


def _text_of(content: Any) -> str:
    """The text of a message content: a string, or the text parts of a list of parts."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        texts = (part.get("text") for part in content if isinstance(part, dict))
        return "".join(text for text in texts if isinstance(text, str))
    return ""


def split_reasoning(content: str, given: str | None) -> tuple[str, str | None, bool]:
    """(answer, reasoning, leaked) of a completion's text.

    Where the server has a reasoning parser, `given` is its part and the content is the answer. Else
    a leading `<think>…</think>` is cut off, and so is text up to a lone `</think>` (chat templates of
    thinking models open the tag in the prompt). A thought that never closes is all reasoning.
    """
    if given is not None:
        return content, given, OPEN_TAG in content or CLOSE_TAG in content
    close = content.find(CLOSE_TAG)
    begins_open = content.startswith(OPEN_TAG) or content.lstrip().startswith(OPEN_TAG)
    if close >= 0:
        thought = content[:close]
        if begins_open:
            thought = thought.lstrip()[len(OPEN_TAG) :]
        rest = content[close + len(CLOSE_TAG) :].lstrip("\n")
        leaked = OPEN_TAG in rest or CLOSE_TAG in rest or OPEN_TAG in thought
        return rest, thought.strip("\n"), leaked
    if begins_open:
        return "", content.lstrip()[len(OPEN_TAG) :].lstrip("\n"), True
    return content, None, OPEN_TAG in content
