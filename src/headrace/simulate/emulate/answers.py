"""Answers in SGLang 0.5.12's words: whole bodies and stream events of the three request forms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from headrace.simulate.emulate.asked import Asked, Choice
from headrace.simulate.emulate.text import CHARACTERS_PER_TOKEN, END_TOKEN, filler, filler_ids

DONE = b"data: [DONE]\n\n"
_OPEN, _CLOSE = "<think>\n", "\n</think>\n\n"
_encode = msgspec.json.Encoder().encode


@dataclass(slots=True)
class Made:
    """What became of one choice. Times are clock seconds (durations) and Unix seconds (`received_at`)."""

    choice: Choice
    rid: str
    tokens: int
    aborted: bool
    received_at: float
    queue_seconds: float
    latency_seconds: float
    decode_seconds: float

    @property
    def reason(self) -> str:
        """The OpenAI finish reason."""
        return "abort" if self.aborted else "stop" if self.choice.stops else "length"

    @property
    def matched_stop(self) -> int | None:
        """The token that ended it."""
        return END_TOKEN if self.choice.stops and not self.aborted else None


def texts(asked: Asked, choice: Choice, tokens: int) -> tuple[str, str]:
    """Returns (reasoning, answer) of the first `tokens` tokens; inline thinking is part of the answer.

    Every token is four characters, so a longer prefix always begins with the shorter one.
    """
    thought_tokens = choice.reasoning_tokens
    if not asked.thinking:
        return "", _prefix(choice.bits, choice.output_tokens, tokens)
    thought = _prefix(choice.bits, thought_tokens, min(tokens, thought_tokens))
    rest = choice.output_tokens - thought_tokens
    answer = _prefix(choice.bits >> 20, rest, tokens - thought_tokens)
    if asked.separate:
        return thought, answer
    if tokens == 0:
        return "", ""
    close = _CLOSE if tokens > thought_tokens else ""
    return "", f"{_OPEN}{thought}{close}{answer}"


def _prefix(bits: int, whole_tokens: int, tokens: int) -> str:
    if tokens <= 0:
        return ""
    return filler(bits, whole_tokens)[: tokens * CHARACTERS_PER_TOKEN]


def _reasoning_tokens(asked: Asked, choice: Choice, tokens: int) -> int:
    """As the usage says: counted only where a reasoning parser is at work."""
    return min(tokens, choice.reasoning_tokens) if asked.separate else 0


def _usage(asked: Asked, made: list[Made], *, details: bool = True) -> dict[str, Any]:
    completion = sum(one.tokens for one in made)
    usage: dict[str, Any] = {
        "prompt_tokens": asked.prompt_tokens,
        "total_tokens": asked.prompt_tokens + completion,
        "completion_tokens": completion,
    }
    if details:
        usage["prompt_tokens_details"] = None
    usage["reasoning_tokens"] = sum(_reasoning_tokens(asked, one.choice, one.tokens) for one in made)
    return usage


def whole(asked: Asked, made: list[Made], created: int) -> bytes:
    """Returns the body of a finished request that did not stream."""
    if asked.path == "/generate":
        answers = [_generated(asked, one, finished=True) for one in made]
        return _encode(answers if asked.many else answers[0])
    chat = asked.path == "/v1/chat/completions"
    choices: list[dict[str, Any]] = []
    for index, one in enumerate(made):
        reasoning, answer = texts(asked, one.choice, one.tokens)
        choice: dict[str, Any] = {"index": index}
        if chat:
            choice["message"] = {
                "role": "assistant",
                "content": answer or None,
                "reasoning_content": reasoning or None,
                "tool_calls": None,
            }
        else:
            choice["text"] = answer
        choice |= {"logprobs": None, "finish_reason": one.reason, "matched_stop": one.matched_stop}
        choices.append(choice)
    return _encode(
        {
            "id": made[0].rid,
            "object": "chat.completion" if chat else "text_completion",
            "created": created,
            "model": asked.model,
            "choices": choices,
            "usage": _usage(asked, made),
            "metadata": {"weight_version": "default"},
        }
    )


def _generated(asked: Asked, one: Made, *, finished: bool) -> dict[str, Any]:
    """One /generate answer, cumulative; `finished` adds its end."""
    _, answer = texts(asked, one.choice, one.tokens)
    reason: dict[str, Any] | None = None
    if finished and one.aborted:
        reason = {"type": "abort", "message": "Aborted", "status_code": None, "err_type": None}
    elif finished and one.choice.stops:
        reason = {"type": "stop", "matched": END_TOKEN}
    elif finished:
        reason = {"type": "length", "length": one.tokens}
    about: dict[str, Any] = {
        "id": one.rid,
        "finish_reason": reason,
        "prompt_tokens": one.choice.prompt_tokens,
        "weight_version": "default",
        "num_retractions": 0,
        "queue_time": one.queue_seconds,
        "reasoning_tokens": 0,
        "completion_tokens": one.tokens,
        "cached_tokens": 0,
        "cached_tokens_details": None,
        "dp_rank": None,
    }
    if finished:
        end = one.received_at + one.latency_seconds
        about |= {
            "e2e_latency": one.latency_seconds,
            "request_received_ts": one.received_at,
            "api_server_dispatch_finish_ts": one.received_at,
            "request_finished_ts": end,
            "decode_throughput": one.tokens / one.decode_seconds if one.decode_seconds > 0 else 0.0,
            "response_sent_to_client_ts": end,
        }
    ids = filler_ids(one.choice.bits, one.choice.output_tokens)[: one.tokens]
    return {"text": answer, "output_ids": ids, "meta_info": about}


class Stream:
    """The events of one streaming request: feed it the progress of its choices."""

    def __init__(self, asked: Asked, rid: str, created: int) -> None:
        self._asked = asked
        self._rid = rid
        self._created = created
        self._sent: dict[int, tuple[int, int]] = {}  # choice → characters of (reasoning, answer) sent

    def progress(self, index: int, made: Made, *, finished: bool) -> bytes:
        """Returns the events for a choice that has `made.tokens` tokens by now; may be empty."""
        if self._asked.path == "/generate":
            answer = _generated(self._asked, made, finished=finished)
            if self._asked.many:
                answer["index"] = index
            return b"data: " + _encode(answer) + b"\n\n"
        reasoning, answer_text = texts(self._asked, made.choice, made.tokens)
        events: list[bytes] = []
        chat = self._asked.path == "/v1/chat/completions"
        if index not in self._sent:
            self._sent[index] = (0, 0)
            if chat:
                events.append(self._chat(index, {"role": "assistant", "content": ""}))
        seen_reasoning, seen_answer = self._sent[index]
        self._sent[index] = (len(reasoning), len(answer_text))
        new_reasoning, new_answer = reasoning[seen_reasoning:], answer_text[seen_answer:]
        if not chat:
            ending = (made.reason, made.matched_stop) if finished else (None, None)
            events.append(self._text(index, new_answer, *ending))
            return b"".join(events)
        if new_reasoning:
            events.append(self._chat(index, {}, reasoning=new_reasoning))
        if new_answer:
            events.append(self._chat(index, {"content": new_answer}))
        if finished:
            events.append(self._chat(index, {}, ending=(made.reason, made.matched_stop)))
        return b"".join(events)

    def end(self, made: list[Made]) -> bytes:
        """Returns the last events: the usage where it was asked for, and DONE."""
        if not self._asked.include_usage or self._asked.path == "/generate":
            return DONE
        chat = self._asked.path == "/v1/chat/completions"
        document = self._head(chat) | {
            "choices": [],
            "usage": _usage(self._asked, made, details=chat),
        }
        return b"data: " + _encode(document) + b"\n\n" + DONE

    def _head(self, chat: bool) -> dict[str, Any]:
        return {
            "id": self._rid,
            "object": "chat.completion.chunk" if chat else "text_completion",
            "created": self._created,
            "model": self._asked.model,
        }

    def _chat(
        self,
        index: int,
        delta: dict[str, Any],
        reasoning: str | None = None,
        ending: tuple[str | None, int | None] = (None, None),
    ) -> bytes:
        choice = {
            "index": index,
            "delta": {"reasoning_content": reasoning} | delta,
            "logprobs": None,
            "finish_reason": ending[0],
            "matched_stop": ending[1],
        }
        return b"data: " + _encode(self._head(True) | {"choices": [choice]}) + b"\n\n"

    def _text(self, index: int, text: str, reason: str | None, matched_stop: int | None) -> bytes:
        choice = {
            "index": index,
            "text": text,
            "logprobs": None,
            "finish_reason": reason,
            "matched_stop": matched_stop,
        }
        return b"data: " + _encode(self._head(False) | {"choices": [choice], "usage": None}) + b"\n\n"


def error_event(status: int, body: dict[str, Any]) -> bytes:
    """Returns a refusal as a streaming client gets it: one event, then DONE."""
    if "error" not in body:
        kind = "SERVICE_UNAVAILABLE" if status == 503 else body["type"]
        body = {"error": body | {"type": kind}}
    return b"data: " + _encode(body) + b"\n\n" + DONE


def plain(value: Any) -> Any:
    """Returns a struct or dataclass as plain JSON-able values."""
    return msgspec.to_builtins(value)
