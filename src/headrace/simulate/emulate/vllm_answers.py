"""Answers in vLLM's words: whole bodies, stream events, refusals, the card of the model.

Shapes are those recorded of 0.32.0.
"""

from __future__ import annotations

from typing import Any

import msgspec

from headrace.simulate.emulate.answers import DONE, Made, texts
from headrace.simulate.emulate.asked import Asked, Refused, TooLong
from headrace.simulate.emulate.options import EmulatorOptions
from headrace.simulate.emulate.text import END_TOKEN

_encode = msgspec.json.Encoder().encode


def vllm_models(options: EmulatorOptions, created: int) -> dict[str, Any]:
    """The /v1/models document."""
    permission = {
        "id": f"modelperm-{created:016x}",
        "object": "model_permission",
        "created": created,
        "allow_create_engine": False,
        "allow_sampling": True,
        "allow_logprobs": True,
        "allow_search_indices": False,
        "allow_view": True,
        "allow_fine_tuning": False,
        "organization": "*",
        "group": None,
        "is_blocking": False,
    }
    card = {
        "id": options.model,
        "object": "model",
        "created": created,
        "owned_by": "vllm",
        "root": options.model,
        "parent": None,
        "max_model_len": options.context_length,
        "permission": [permission],
    }
    return {"object": "list", "data": [card]}


def unknown_model(asked: Asked, options: EmulatorOptions) -> Refused | None:
    """The refusal of a request for another model than the served one; None where it is the served one."""
    if asked.model == options.model:
        return None
    message = f"The model `{asked.model}` does not exist. Valid aliases: {options.model}."
    return Refused(404, _error(message, "NotFoundError", "model", 404))


def refused_by_vllm(refused: Refused) -> Refused:
    """Returns SGLang's refusal in vLLM's words."""
    if isinstance(refused, TooLong):
        # vLLM stops counting one token beyond the limit
        one_more = refused.limit + 1
        message = (
            f"This model's maximum context length is {refused.limit} tokens. However, your prompt contains "
            f"at least {one_more} input tokens, which exceeds this limit even without any output tokens. "
            f"Please reduce the length of the input prompt. (parameter=input_tokens, value={one_more})"
        )
        return Refused(400, _error(message, "BadRequestError", "input_tokens", 400))
    body = refused.body
    message, kind = str(body.get("message", "")), str(body.get("type", "BadRequestError"))
    return Refused(refused.status, _error(message, kind, None, refused.status))


def _error(message: str, kind: str, param: str | None, code: int) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def _usage(asked: Asked, made: list[Made], *, details: bool) -> dict[str, Any]:
    completion = sum(one.tokens for one in made)
    usage: dict[str, Any] = {
        "prompt_tokens": asked.prompt_tokens,
        "total_tokens": asked.prompt_tokens + completion,
        "completion_tokens": completion,
    }
    return usage | {"prompt_tokens_details": None, "completion_tokens_details": None} if details else usage


def _stop_reason(one: Made) -> int | None:
    return END_TOKEN if one.choice.stops and not one.aborted else None


def vllm_whole(asked: Asked, made: list[Made], created: int, version: str) -> bytes:
    """Returns the body of a finished request that did not stream."""
    chat = asked.path == "/v1/chat/completions"
    choices: list[dict[str, Any]] = []
    for index, one in enumerate(made):
        reasoning, answer = texts(asked, one.choice, one.tokens)
        choice: dict[str, Any] = {"index": index}
        if chat:
            choice["message"] = {
                "role": "assistant",
                "content": answer or None,
                "refusal": None,
                "annotations": None,
                "audio": None,
                "function_call": None,
                "reasoning": reasoning or None,
            }
        else:
            choice["text"] = answer
        choice |= {"logprobs": None, "finish_reason": one.reason, "stop_reason": _stop_reason(one)}
        choice |= {"token_ids": None, "routed_experts": None}
        if not chat:
            choice |= {"prompt_logprobs": None, "prompt_token_ids": None}
        choices.append(choice)
    document: dict[str, Any] = {
        "id": f"{'chatcmpl' if chat else 'cmpl'}-{made[0].rid[:16]}",
        "object": "chat.completion" if chat else "text_completion",
        "created": created,
        "model": asked.model,
        "choices": choices,
        "service_tier": None,
        "system_fingerprint": f"vllm-{version}",
        "usage": _usage(asked, made, details=True),
        "kv_transfer_params": None,
        "ec_transfer_params": None,
        "metrics": None,
    }
    if chat:
        document |= {"prompt_logprobs": None, "prompt_token_ids": None, "prompt_text": None}
    return _encode(document)


class VllmStream:
    """The events of one streaming request: feed it the progress of its choices."""

    def __init__(self, asked: Asked, rid: str, created: int, version: str) -> None:
        self._asked = asked
        self._chat = asked.path == "/v1/chat/completions"
        self._head = {
            "id": f"{'chatcmpl' if self._chat else 'cmpl'}-{rid[:16]}",
            "object": "chat.completion.chunk" if self._chat else "text_completion",
            "created": created,
            "model": asked.model,
        }
        self._fingerprint = f"vllm-{version}"
        self._sent: dict[int, tuple[int, int]] = {}  # choice → characters of (reasoning, answer) sent

    def progress(self, index: int, made: Made, *, finished: bool) -> bytes:
        """Returns the events for a choice that has `made.tokens` tokens by now."""
        events = b""
        if index not in self._sent:
            self._sent[index] = (0, 0)
            if self._chat:
                start = {"role": "assistant", "content": ""}
                choice = {"index": index, "delta": start, "logprobs": None, "finish_reason": None}
                events += self._event([choice], {"prompt_token_ids": None, "prompt_text": None})
        reasoning, answer = texts(self._asked, made.choice, made.tokens)
        seen_reasoning, seen_answer = self._sent[index]
        self._sent[index] = (len(reasoning), len(answer))
        ending: dict[str, Any] = {"finish_reason": None}
        if finished:
            ending = {"finish_reason": made.reason, "stop_reason": _stop_reason(made)}
        choice = {"index": index, "logprobs": None, **ending, "token_ids": None}
        if not self._chat:
            choice |= {"text": answer[seen_answer:]}
            return events + self._event([choice])
        delta = {"content": answer[seen_answer:]}
        if reasoning[seen_reasoning:]:
            delta = {"reasoning": reasoning[seen_reasoning:]} | ({} if not delta["content"] else delta)
        return events + self._event([choice | {"delta": delta}])

    def end(self, made: list[Made]) -> bytes:
        """Returns the last events: the usage where it was asked for, and DONE."""
        if not self._asked.include_usage:
            return DONE
        usage = _usage(self._asked, made, details=False)
        return self._event([], {"usage": usage, "system_fingerprint": self._fingerprint}) + DONE

    def _event(self, choices: list[dict[str, Any]], more: dict[str, Any] | None = None) -> bytes:
        return b"data: " + _encode(self._head | {"choices": choices} | (more or {})) + b"\n\n"
