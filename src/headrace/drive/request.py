"""From a prompt to the request that asks it, and the keys and ids by which it is known again.

What comes first where two say different things: a row's own body (OpenAI batch), then the source's
`extra_body`, then its `thinking` and `sampling`. `model` is never here: the driver adds the served name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Any

import msgspec

from headrace.drive.job import Job, Source
from headrace.drive.prompts import Message, PromptRow, Request
from headrace.drive.sampling import KNOWN, check_extra_body, check_sampling, settled
from headrace.drive.sources.batch import CHAT_PATH, COMPLETIONS_PATH
from headrace.drive.sources.shapes import Shape, ShapeKind
from headrace.drive.sources.turns import SYSTEM_ROLES
from headrace.errors import InputError
from headrace.words import Api

__all__ = [
    "build_request",
    "check_extra_body",
    "check_fit",
    "check_sampling",
    "content_key",
    "key_of_id",
    "own_key",
    "prompt_key",
    "row_id",
]

GENERATE_PATH = "/generate"
KEY_BYTES = 16
_KEY_SPACE = 1 << (8 * KEY_BYTES)
_MAX_TOKENS = ("max_tokens", "max_completion_tokens")
_CONTENT_ID = re.compile(r"([0-9a-f]{32})(?:-[1-9][0-9]*)?(?:#([1-9][0-9]*))?")


def build_request(prompt: PromptRow, source: Source, job: Job, sample: int = 0) -> Request:
    """The request for one sample of a prompt, ready to send but for `model`.

    A seed, where one is given, is counted up by `sample`. The system prompt of the source goes before
    chats that have none; a batch row's body is sent as it is, with the source's settings where it has none.

    Raises:
        InputError: the job's request form cannot ask this row (a chat needs the chat API).
    """
    if prompt.body is not None:
        return _batch_request(prompt, prompt.body, source, sample)
    if job.api is Api.CHAT:
        messages = prompt.messages
        if messages is None:
            messages = ({"role": "user", "content": prompt.text},)
        if source.system and not any(message["role"] in SYSTEM_ROLES for message in messages):
            messages = ({"role": "system", "content": source.system}, *messages)
        body = {"messages": messages, **_settings(source, sample)}
        return Request(CHAT_PATH, body, messages, None)
    if prompt.text is None:
        raise InputError(
            f"row {prompt.row:,} is a chat, and `api: {job.api}` asks plain prompts only: a chat needs the "
            "model's template. Use `api: chat`"
        )
    if job.api is Api.COMPLETIONS:
        return Request(
            COMPLETIONS_PATH, {"prompt": prompt.text, **_settings(source, sample)}, None, prompt.text
        )
    return Request(GENERATE_PATH, _generate_body(prompt.text, source, sample), None, prompt.text)


def check_fit(source: Source, shape: Shape, job: Job) -> list[str]:
    """Why the job's request form cannot ask this source, one sentence or two each; empty when it can."""
    if job.api is Api.CHAT or shape.kind is ShapeKind.BATCH:
        return []
    where = f"source '{source.name}'"
    problems = []
    if shape.kind is ShapeKind.CHAT or shape.system is not None or source.system:
        what = "holds chats" if shape.kind is ShapeKind.CHAT else "has a system prompt"
        problems.append(f"{where} {what}, and `api: {job.api}` has no template for them. Use `api: chat`")
    if source.thinking is not None:
        problems.append(f"{where} sets `thinking`, which `api: {job.api}` does not know. Use `api: chat`")
    return problems


def content_key(request: Request, sample: int = 0) -> bytes:
    """16 bytes that tell what is asked: path, body and sample, and nothing else.

    The order of columns and fields, the source's name, file and row, its other columns and the model do
    not matter. The keys of one prompt's samples are consecutive numbers (big-endian, modulo 2^128), so that
    the first sample's key can be had from any of them.
    """
    body = {name: value for name, value in request.body.items() if name not in ("model", "stream")}
    if sample:
        body = _with_seed(body, -sample)
    text = msgspec.json.encode((request.path, body), order="sorted")
    return _moved(blake2b(text, digest_size=KEY_BYTES).digest(), sample)


def prompt_key(messages: Iterable[Mapping[str, Any]] | None, text: str | None) -> bytes | None:
    """16 bytes that tell which prompt is asked, whatever the sampling and the request form.

    A plain prompt and a chat of that one user turn are the same prompt. Content that is no text counts as the
    JSON text of its parts, as rows keep it.

    Returns:
        None where rows do not keep all that is asked: turns with tool calls, prompts of token ids.
    """
    if messages is None:
        if text is None:
            return None
        turns = [("user", text)]
    else:
        turns = []
        for message in messages:
            if any(value is not None and name not in ("role", "content") for name, value in message.items()):
                return None
            content = message.get("content")
            if not isinstance(content, str):
                content = "" if content is None else msgspec.json.encode(content).decode()
            turns.append((str(message.get("role", "")), content))
    return blake2b(msgspec.json.encode(turns), digest_size=KEY_BYTES, person=b"prompt").digest()


def own_key(own_id: str, sample: int = 0) -> bytes:
    """16 bytes that tell a sample of a prompt by the user's own id; never equal to a content key."""
    digest = blake2b(own_id.encode(), digest_size=KEY_BYTES, person=b"own-id").digest()
    return _moved(digest, sample)


def row_id(key_or_own_id: bytes | str, occurrence: int = 0, sample: int = 0) -> str:
    """The id as it stands in `Row.id`: from the user's own id, or from the content key of this sample.

    Args:
        occurrence: 0 for the first of several exact duplicates, K for the K-th further one.
        sample: n-index; the key must be that of this sample.
    """
    key = key_or_own_id
    base = key if isinstance(key, str) else _moved(key, -sample).hex()
    return f"{base}{f'-{occurrence}' if occurrence else ''}{f'#{sample}' if sample else ''}"


def key_of_id(text: str) -> bytes | None:
    """The content key that `row_id` made this id from; None for an id that is not of that form."""
    found = _CONTENT_ID.fullmatch(text)
    if found is None:
        return None
    return _moved(bytes.fromhex(found[1]), int(found[2] or 0))


def _moved(key: bytes, count: int) -> bytes:
    if not count:
        return key
    return ((int.from_bytes(key) + count) % _KEY_SPACE).to_bytes(KEY_BYTES)


def _settings(source: Source, sample: int) -> dict[str, Any]:
    """Sampling, thinking and extra body, as they stand flat in an OpenAI body."""
    settings = settled(source.sampling)
    if source.thinking is not None:
        settings["chat_template_kwargs"] = {"enable_thinking": source.thinking}
    return _with_seed(_over(settings, source.extra_body), sample)


def _over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """`below` where `above` says nothing; the fields of `chat_template_kwargs` are laid over one by one."""
    if any(name in above for name in _MAX_TOKENS):  # two names, one meaning: never send both
        below = {name: value for name, value in below.items() if name not in _MAX_TOKENS}
    both = {**below, **above}
    name = "chat_template_kwargs"
    if isinstance(below.get(name), Mapping) and isinstance(above.get(name), Mapping):
        both[name] = {**below[name], **above[name]}
    return both


def _with_seed(body: dict[str, Any], count: int) -> dict[str, Any]:
    """The body with its seed counted up, wherever the request form keeps it."""
    if not count:
        return body
    for name in ("seed", "sampling_seed"):
        seed = body.get(name)
        if isinstance(seed, int) and not isinstance(seed, bool):
            body = {**body, name: seed + count}
    if isinstance(body.get("sampling_params"), dict):
        body = {**body, "sampling_params": _with_seed(body["sampling_params"], count)}
    return body


def _batch_request(prompt: PromptRow, own: Mapping[str, Any], source: Source, sample: int) -> Request:
    chat = prompt.url != COMPLETIONS_PATH
    below = _over(settled(source.sampling), source.extra_body)
    if chat and source.thinking is not None:
        below = _over({"chat_template_kwargs": {"enable_thinking": source.thinking}}, below)
    body = _with_seed(_over(below, own), sample)
    messages: tuple[Message, ...] | None = tuple(own["messages"]) if chat else None
    text = own["prompt"] if not chat and isinstance(own["prompt"], str) else None
    return Request(CHAT_PATH if chat else COMPLETIONS_PATH, body, messages, text)


def _generate_body(text: str, source: Source, sample: int) -> dict[str, Any]:
    named = {
        (KNOWN[name].generate or name if name in KNOWN else name): value
        for name, value in settled(source.sampling).items()
    }
    extra = dict(source.extra_body)
    own = extra.pop("sampling_params", None)
    if isinstance(own, Mapping):
        named = {**named, **own}
    return {"text": text, "sampling_params": _with_seed(named, sample), **extra}
