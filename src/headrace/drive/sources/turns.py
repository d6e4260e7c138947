"""Chats as data sets write them (OpenAI `role`/`content`, ShareGPT `from`/`value`), as OpenAI messages."""

from __future__ import annotations

from typing import Any

import msgspec

from headrace.drive.prompts import Message
from headrace.errors import InputError, nearest

# Who speaks, by the names that data sets use.
ROLES = {
    "system": "system",
    "developer": "developer",
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "bot": "assistant",
    "model": "assistant",
    "tool": "tool",
    "observation": "tool",
    "function": "function",
}
_ASKING = frozenset(("user", "tool", "function"))
SYSTEM_ROLES = frozenset(("system", "developer"))


class RowProblem(InputError):
    """What is wrong with one row; becomes that row's error, and the file goes on."""


def looks_like_chat(value: object) -> bool:
    """True for a list whose first item is a turn, or JSON text that may be one."""
    if isinstance(value, str):
        return value.lstrip()[:1] == "["
    if not isinstance(value, list) or not value:
        return False
    first = value[0]
    return isinstance(first, dict) and ("role" in first or "from" in first)


def read_chat(value: object, column: str) -> tuple[Message, ...]:
    """The chat up to the turn that is to be answered: assistant turns at its end are cut off.

    Fields of a turn that are null are left out; other fields of an OpenAI turn stay (`tool_calls`, …).

    Raises:
        RowProblem: it is not a chat, or nothing in it asks for an answer.
    """
    if isinstance(value, str) and looks_like_chat(value):
        try:
            value = msgspec.json.decode(value)
        except (msgspec.DecodeError, RecursionError) as error:
            raise RowProblem(f"'{column}' holds text that is not a JSON chat: {error}") from error
    if not isinstance(value, list):
        raise RowProblem(f"'{column}' is {kind_of(value)}, not a list of turns")
    turns = [_turn(turn, number, column) for number, turn in enumerate(value, 1)]
    while turns and turns[-1]["role"] == "assistant":
        turns.pop()
    asking = [turn for turn in turns if turn["role"] in _ASKING]
    if not asking:
        raise RowProblem(f"'{column}' has nothing to answer: no user turn among its {len(value)} turns")
    content = asking[-1]["content"]
    if isinstance(content, str) and not content.strip() and asking[-1]["role"] == "user":
        raise RowProblem(f"'{column}' has nothing to answer: its last user turn is blank")
    return tuple(turns)


def kind_of(value: object) -> str:
    """What a JSON value is, in words."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, int | float):
        return f"the number {value}"
    if isinstance(value, str):
        return "text"
    return "a list" if isinstance(value, list) else "an object"


def _turn(turn: Any, number: int, column: str) -> Message:
    where = f"turn {number} of '{column}'"
    if not isinstance(turn, dict):
        raise RowProblem(f"{where} is {kind_of(turn)}, not an object with role and content")
    if turn.get("role") is not None:
        speaker, content = turn["role"], turn.get("content")
        others = {
            name: field
            for name, field in turn.items()
            if name not in ("role", "content", "from", "value") and field is not None
        }
    else:
        speaker, content, others = turn.get("from"), turn.get("value"), {}
    if not isinstance(speaker, str):
        raise RowProblem(f"{where} does not say who speaks: it has {', '.join(turn) or 'nothing'}")
    role = ROLES.get(speaker) or ROLES.get(speaker.lower())
    if role is None:
        raise RowProblem(
            f"{where} is spoken by '{speaker[:100]}', who is not known.{nearest(speaker[:100], ROLES)} "
            f"Known are {', '.join(ROLES)}"
        )
    if isinstance(content, str):
        pass
    elif isinstance(content, list):
        if not content or not all(isinstance(part, dict) for part in content):
            raise RowProblem(f"the content of {where} is a list, but not one of content parts (objects)")
        content = [{name: field for name, field in part.items() if field is not None} for part in content]
    elif content is not None or role != "assistant":
        raise RowProblem(f"the content of {where} is {kind_of(content)}, not text or a list of parts")
    return {"role": role, "content": content, **others}
