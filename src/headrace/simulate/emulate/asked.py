"""Reading a request as SGLang 0.5.12 reads it, and refusing what it refuses, in its words.

Understood: chat (text and lists of parts), completions (text, ids, lists), /generate (text, ids, lists), `n`,
the output limits, `ignore_eos`, `min_tokens`/`min_new_tokens`, `seed`, `stream`, `stream_options`, `rid`,
`chat_template_kwargs.enable_thinking`, `separate_reasoning`. Let pass and without effect: temperature and its
kin, `stop`, tools, logprobs, grammars. Prompt tokens are estimated at four characters each.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from headrace.simulate.emulate import draws
from headrace.simulate.emulate.options import EmulatorOptions
from headrace.simulate.emulate.text import count_tokens

Path = Literal["/v1/chat/completions", "/v1/completions", "/generate"]
_HANDLERS = {
    "/v1/chat/completions": "openai_v1_chat_completions",
    "/v1/completions": "openai_v1_completions",
    "/generate": "generate_request",
}
_CHAT_OVERHEAD_TOKENS = 9  # template tokens around a chat
_MESSAGE_OVERHEAD_TOKENS = 4
_REASONING_SHARE = 0.6  # of the drawn tokens, when a chat thinks
_DEFAULT_COMPLETION_TOKENS = 16
_DEFAULT_GENERATE_TOKENS = 128
_encoder = msgspec.json.Encoder()


class Refused(Exception):
    """A request that the server answers with an error; `body` is the JSON-able answer.

    Attributes:
        in_stream: sent as an event under status 200: what the real server does to a streaming client.
    """

    def __init__(self, status: int, body: Mapping[str, Any], *, in_stream: bool = False) -> None:
        super().__init__(status)
        self.status = status
        self.body = body
        self.in_stream = in_stream


class TooLong(Refused):
    """A prompt of `tokens` where `limit` is the context length."""

    def __init__(
        self, status: int, body: Mapping[str, Any], in_stream: bool, tokens: int, limit: int
    ) -> None:
        super().__init__(status, body, in_stream=in_stream)
        self.tokens, self.limit = tokens, limit


@dataclass(slots=True)
class Choice:
    """One answer to be made.

    Attributes:
        bits: 64 bits that choose text and ids.
        prompt_tokens, output_tokens: as they will be counted.
        reasoning_tokens: the first so many of the output are thinking.
        stops: ends by itself; otherwise it is cut at the limit.
        asked_tokens: its limit, which the scheduler reserves by.
    """

    bits: int
    prompt_tokens: int
    output_tokens: int
    reasoning_tokens: int
    stops: bool
    asked_tokens: int = 0


@dataclass(slots=True)
class Asked:
    """A request, understood.

    Attributes:
        choices: in answer order: prompts first, `n` within each.
        many: /generate with a list of prompts, or n > 1, answers with a list.
        thinking: a chat that thinks; `separate`: its thinking comes as `reasoning_content`.
        prompt_tokens: of all prompts, each counted once.
    """

    path: Path
    model: str
    stream: bool
    include_usage: bool
    rid: str | None
    choices: list[Choice]
    many: bool
    thinking: bool
    separate: bool
    prompt_tokens: int


def understand(path: Path, content_type: str, body: bytes, options: EmulatorOptions) -> Asked:
    """Returns what a request asks. Raises Refused with the server's answer when it is not to be served."""
    document = _parsed(path, content_type, body)
    stream = bool(document.get("stream", False))
    sampling: Mapping[str, Any] = document
    if path == "/generate":
        sampling = document.get("sampling_params") or {}
        prompts, many = _generate_prompts(document, stream)
        limit = _integer(path, sampling, "max_new_tokens")
        limit = _DEFAULT_GENERATE_TOKENS if limit is None else limit
        minimum = _integer(path, sampling, "min_new_tokens") or 0
        thinking = False
    elif path == "/v1/completions":
        prompts, many = _completion_prompts(path, document)
        limit = _integer(path, document, "max_tokens")
        limit = _DEFAULT_COMPLETION_TOKENS if limit is None else limit
        minimum = _integer(path, document, "min_tokens") or 0
        thinking = False
    else:
        prompts, many = [_chat_prompt(path, document)], False
        limit = _integer(path, document, "max_completion_tokens") or _integer(path, document, "max_tokens")
        if limit and limit > options.context_length:
            raise _bad_request(
                path,
                f"max_completion_tokens is too large: {limit}."
                f"This model supports at most {options.context_length} completion tokens.",
            )
        minimum = _integer(path, document, "min_tokens") or 0
        template = document.get("chat_template_kwargs") or {}
        thinking = bool(template.get("enable_thinking", options.thinking))
    temperature = sampling.get("temperature")
    if isinstance(temperature, int | float) and temperature < 0:
        shown = temperature if path == "/generate" else float(temperature)
        raise _bad_request(path, f"temperature must be non-negative, got {shown}.", stream)

    separate = options.reasoning_parser is not None and document.get("separate_reasoning", True) is not False
    samples = max(1, _integer(path, sampling, "n") or 1)
    asked = Asked(
        path=path,
        model=str(document.get("model", options.model)),
        stream=stream,
        include_usage=bool((document.get("stream_options") or {}).get("include_usage", False)),
        rid=document["rid"] if isinstance(document.get("rid"), str) else None,
        choices=[],
        many=many or (path == "/generate" and samples > 1),
        thinking=thinking,
        separate=thinking and separate,
        prompt_tokens=sum(tokens for tokens, _ in prompts),
    )
    request_seed = str(sampling.get("seed", sampling.get("sampling_seed"))).encode()
    ignore_end = bool(sampling.get("ignore_eos", False))
    for tokens, prompt in prompts:
        room = _room(path, tokens, limit, options, stream)
        for sample in range(samples):
            bits = draws.fingerprint(options.seed, prompt, request_seed, b"%d" % sample)
            drawn = draws.output_tokens(
                bits, options.mean_output_tokens, options.output_spread, options.length_law
            )
            wanted = room if ignore_end else max(drawn, minimum)
            output = min(wanted, room)
            reasoning = min(output, max(1, int(drawn * _REASONING_SHARE))) if thinking else 0
            stops = not ignore_end and wanted <= room
            if stops and reasoning >= output:
                reasoning = output - 1
            asked.choices.append(Choice(bits, tokens, output, reasoning, stops, room))
    return asked


def too_long(path: Path, tokens: int, limit: int, streaming: bool) -> Refused:
    """The refusal of a prompt of `tokens` where `limit` is the context length."""
    message = f"The input ({tokens} tokens) is longer than the model's context length ({limit} tokens)."
    refused = _bad_request(path, message, streaming)
    return TooLong(refused.status, refused.body, refused.in_stream, tokens, limit)


def queue_full(streaming: bool) -> Refused:
    """The refusal when the queue is at its limit."""
    return Refused(
        503,
        {
            "object": "error",
            "message": "The request queue is full.",
            "type": "503",
            "param": None,
            "code": 503,
        },
        in_stream=streaming,
    )


def _room(path: Path, tokens: int, limit: int | None, options: EmulatorOptions, stream: bool) -> int:
    """Most output tokens of a prompt of `tokens`. Raises Refused when it does not fit."""
    context = options.context_length
    if tokens >= context:
        raise too_long(path, tokens, context, stream)
    if limit is not None and tokens + limit > context:
        raise _bad_request(
            path,
            f"Requested token count exceeds the model's maximum context length of {context} tokens. You "
            f"requested a total of {tokens + limit} tokens: {tokens} tokens from the input messages and "
            f"{limit} tokens for the completion. Please reduce the number of tokens in the input messages "
            "or the completion to fit within the limit.",
            stream,
        )
    pool = min(context, options.pool_tokens) - 1 - tokens - 1
    if pool < 1:
        raise too_long(path, tokens, min(context, options.pool_tokens), stream)
    return max(1, min(pool, limit if limit is not None else pool))


def _parsed(path: Path, content_type: str, body: bytes) -> dict[str, Any]:
    if content_type != "application/json":
        problem: dict[str, Any] = {
            "loc": ["header", "content-type"],
            "msg": "Unsupported Media Type: Only 'application/json' is allowed",
            "type": "value_error",
        }
        raise _error(f"1 validation error:\n  {problem} [{problem}]", "Bad Request")
    try:
        document = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        problem = {
            "type": "json_invalid",
            "loc": ("body", 0),
            "msg": "JSON decode error",
            "input": {},
            "ctx": {"error": str(error)},
        }
        raise _invalid(path, problem) from error
    if not isinstance(document, dict):
        problem = {
            "type": "model_attributes_type",
            "loc": ("body",),
            "msg": "Input should be a valid dictionary or object to extract fields from",
            "input": document,
        }
        raise _invalid(path, problem)
    return document


def _chat_prompt(path: Path, document: dict[str, Any]) -> tuple[int, bytes]:
    messages = _field(path, document, "messages")
    if not isinstance(messages, list):
        raise _wrong_type(path, "messages", "list_type", "Input should be a valid list", messages)
    if not messages:
        raise _bad_request(path, "Messages cannot be empty.")
    tokens = _CHAT_OVERHEAD_TOKENS
    for message in messages:
        if not isinstance(message, dict):
            raise _wrong_type(path, "messages", "dict_type", "Input should be a valid dictionary", message)
        content = message.get("content")
        if isinstance(content, list):
            content = "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
        tokens += count_tokens(content or "") + _MESSAGE_OVERHEAD_TOKENS
    return tokens, _encoder.encode(messages)


def _completion_prompts(path: Path, document: dict[str, Any]) -> tuple[list[tuple[int, bytes]], bool]:
    prompt = _field(path, document, "prompt")
    if isinstance(prompt, list) and prompt and not isinstance(prompt[0], int):
        return [_counted(one) for one in prompt], True
    return [_counted(prompt)], False


def _generate_prompts(document: dict[str, Any], stream: bool) -> tuple[list[tuple[int, bytes]], bool]:
    given = document.get("text")
    if given is None:
        given = document.get("input_ids")
    if given is None:
        message = "Either text, input_ids or input_embeds should be provided."
        raise _bad_request("/generate", message, stream)
    if isinstance(given, list) and given and not isinstance(given[0], int):
        return [_counted(one) for one in given], True
    return [_counted(given)], False


def _counted(prompt: object) -> tuple[int, bytes]:
    """Token count and bytes of one prompt: a text, or a list of token ids."""
    if isinstance(prompt, list):
        return max(1, len(prompt)), _encoder.encode(prompt)
    text = str(prompt)
    return count_tokens(text), text.encode()


def _field(path: Path, document: dict[str, Any], name: str) -> Any:
    if name not in document:
        problem = {"type": "missing", "loc": ("body", name), "msg": "Field required", "input": document}
        raise _invalid(path, problem)
    return document[name]


def _integer(path: Path, document: Mapping[str, Any], name: str) -> int | None:
    value = document.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise _wrong_type(path, name, "int_type", "Input should be a valid integer", value)
    return value


def _wrong_type(path: Path, name: str, kind: str, message: str, value: object) -> Refused:
    return _invalid(path, {"type": kind, "loc": ("body", name), "msg": message, "input": value})


def _invalid(path: Path, problem: dict[str, Any]) -> Refused:
    """The validation error of the web framework under SGLang: a Python repr inside a message."""
    return _error(
        f"1 validation error:\n  {problem}\n\n  in {_HANDLERS[path]}\n    POST {path} [{problem}]",
        "Bad Request",
    )


def _bad_request(path: Path, message: str, streaming: bool = False) -> Refused:
    if path == "/generate":
        return Refused(400, {"error": {"message": message}}, in_stream=streaming)
    return _error(message, "BadRequestError")


def _error(message: str, kind: str) -> Refused:
    return Refused(400, {"object": "error", "message": message, "type": kind, "param": None, "code": 400})
