"""Sampling parameters by their OpenAI names: which there are, what they may be, what /generate calls them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from headrace.errors import nearest
from headrace.words import Api


@dataclass(frozen=True, slots=True)
class Parameter:
    """One sampling parameter.

    Attributes:
        kind: `number`, `count` (whole number), `flag`, or another word of `_KINDS`.
        low, high: bounds, both allowed unless `above_low`.
        generate: its name in the `sampling_params` of SGLang's /generate, or None where it has none.
    """

    kind: str
    low: float = -math.inf
    high: float = math.inf
    above_low: bool = False
    generate: str | None = None


# What OpenAI's API, vLLM and SGLang take in a request body. Bounds are those that no engine goes beyond, but
# for temperature: OpenAI's API ends at 2, where vLLM and SGLang take any; what is above it is nearly always a
# slip, and makes noise of a whole data set.
KNOWN: Mapping[str, Parameter] = {
    "max_tokens": Parameter("count", 1, generate="max_new_tokens"),
    "max_completion_tokens": Parameter("count", 1, generate="max_new_tokens"),
    "min_tokens": Parameter("count", 0, generate="min_new_tokens"),
    "temperature": Parameter("number", 0, 2, generate="temperature"),
    "top_p": Parameter("number", 0, 1, above_low=True, generate="top_p"),
    "top_k": Parameter("count", -1, generate="top_k"),
    "min_p": Parameter("number", 0, 1, generate="min_p"),
    "presence_penalty": Parameter("number", -2, 2, generate="presence_penalty"),
    "frequency_penalty": Parameter("number", -2, 2, generate="frequency_penalty"),
    "repetition_penalty": Parameter("number", 0, above_low=True, generate="repetition_penalty"),
    "seed": Parameter("count", -(2**63), 2**63 - 1, generate="sampling_seed"),
    "stop": Parameter("texts", generate="stop"),
    "stop_token_ids": Parameter("counts", generate="stop_token_ids"),
    "bad_words": Parameter("texts"),
    "ignore_eos": Parameter("flag", generate="ignore_eos"),
    "skip_special_tokens": Parameter("flag", generate="skip_special_tokens"),
    "spaces_between_special_tokens": Parameter("flag", generate="spaces_between_special_tokens"),
    "include_stop_str_in_output": Parameter("flag"),
    "no_stop_trim": Parameter("flag", generate="no_stop_trim"),
    "logit_bias": Parameter("mapping", generate="logit_bias"),
    "logprobs": Parameter("flag or count", 0),
    "top_logprobs": Parameter("count", 0),
    "response_format": Parameter("mapping"),
    "reasoning_effort": Parameter("text"),
    "regex": Parameter("text", generate="regex"),
    "ebnf": Parameter("text", generate="ebnf"),
    "json_schema": Parameter("text", generate="json_schema"),
}

_INSTEAD: Mapping[str, str] = {
    "n": "one answer per request keeps rows apart. Say `samples` on the source",
    "best_of": "one answer per request keeps rows apart. Say `samples` on the source",
    "stream": "headrace keeps whole answers. Take it out",
    "stream_options": "headrace keeps whole answers. Take it out",
    "model": "it is the job's. Say `model` on the job",
    "messages": "it comes from the source's rows. Take it out",
    "prompt": "it comes from the source's rows. Take it out",
    "max_new_tokens": "the OpenAI name is used for every request form. Say `max_tokens`",
    "thinking": "it is the source's. Say `thinking` on the source",
    "enable_thinking": "it is the source's. Say `thinking` on the source",
    "chat_template_kwargs": "it is no sampling parameter. Say it in `extra_body`",
}
_NEVER_IN_BODY = ("n", "best_of", "stream", "stream_options", "model", "messages", "prompt")


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return _is_count(value) or (isinstance(value, float) and math.isfinite(value))


_KINDS: Mapping[str, tuple[str, Callable[[object], bool]]] = {
    "count": ("a whole number", _is_count),
    "number": ("a number", _is_number),
    "flag": ("true or false", lambda value: isinstance(value, bool)),
    "flag or count": ("true, false or a whole number", lambda v: isinstance(v, bool) or _is_count(v)),
    "text": ("text", lambda value: isinstance(value, str)),
    "mapping": ("a mapping", lambda value: isinstance(value, Mapping)),
    "texts": (
        "text or a list of texts",
        lambda v: isinstance(v, str) or (isinstance(v, list | tuple) and all(isinstance(t, str) for t in v)),
    ),
    "counts": (
        "a list of whole numbers",
        lambda v: isinstance(v, list | tuple) and all(map(_is_count, v)),
    ),
}


def check_sampling(sampling: Mapping[str, Any], api: Api = Api.CHAT) -> list[str]:
    """What is wrong with sampling parameters, a sentence or two each; empty when all is well.

    Null is unset. /generate has no name for some of what the OpenAI forms take.
    """
    problems: list[str] = []
    for name, value in sampling.items():
        if name in _INSTEAD:
            problems.append(f"sampling parameter '{name}' is not taken: {_INSTEAD[name]}")
        elif name not in KNOWN:
            problems.append(
                f"sampling parameter '{name}' is not known.{nearest(name, (*KNOWN, *_INSTEAD))} "
                "What an engine alone knows goes into `extra_body`"
            )
        elif value is None:
            continue
        elif api is Api.GENERATE and KNOWN[name].generate is None:
            problems.append(f"sampling parameter '{name}' has no name in /generate. Use `api: chat`")
        elif (problem := _check_value(KNOWN[name], value)) is not None:
            problems.append(f"sampling parameter '{name}' is {_shown(value)}; {problem}")
    if sampling.get("max_tokens") is not None and sampling.get("max_completion_tokens") is not None:
        problems.append("'max_tokens' and 'max_completion_tokens' mean the same. Keep one")
    return problems


def check_extra_body(extra_body: Mapping[str, Any]) -> list[str]:
    """What may not stand in `extra_body`, a sentence or two each; empty when all is well."""
    refused = [name for name in _NEVER_IN_BODY if name in extra_body]
    return [f"'{name}' may not stand in extra_body: {_INSTEAD[name]}" for name in refused]


def _check_value(parameter: Parameter, value: Any) -> str | None:
    words, fits = _KINDS[parameter.kind]
    if not fits(value):
        return f"it must be {words}"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if value > parameter.high or value < parameter.low or (parameter.above_low and value == parameter.low):
        near = f". The nearest is {max(parameter.low, min(parameter.high, value)):g}"
        return f"{limits(parameter)} is allowed{'' if parameter.above_low and value <= 0 else near}"
    return None


def limits(parameter: Parameter) -> str:
    """The bounds in words: `0 to 2`, `above 0, at most 1`, `at least -1`; "" where there are none."""
    low = "" if parameter.low == -math.inf else f"{parameter.low:g}"
    high = "" if parameter.high == math.inf else f"{parameter.high:g}"
    if parameter.above_low:
        return f"above {low}" + (f", at most {high}" if high else "")
    if low and high:
        return f"{low} to {high}"
    return f"at least {low}" if low else f"at most {high}" if high else ""


def _shown(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) and abs(value) < 1e6 else repr(value)


def settled(sampling: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters as they are sent: nulls left out, numbers as floats (1 and 1.0 are one prompt)."""
    return {
        name: float(value) if name in KNOWN and KNOWN[name].kind == "number" and _is_count(value) else value
        for name, value in sampling.items()
        if value is not None
    }
