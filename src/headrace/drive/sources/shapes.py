"""How the rows of a source say what they ask: recognised from the first rows, or told by the user.

The order in which shapes are looked for (the first that at least half of the first rows have; else the
one that most of them have):

    1. an OpenAI batch row: `body` beside `custom_id`, `url` or `method`
    2. a chat: `messages`, then `conversations`, then `conversation`
    3. the column `prompt`
    4. Alpaca: `instruction` beside `input`, `context` or `output`
    5. the columns `question`, `instruction`, `problem`, `query`, `text`, `input`, `content`

Upper and lower case do not matter. A prompt column may hold a chat instead of text. A column `system` or
`system_prompt` is the system turn of a row that has none. The user's mapping comes before all this.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any

import msgspec

from headrace.drive.job import Source
from headrace.drive.prompts import Message, PromptRow
from headrace.drive.sources.batch import looks_like_batch, read_batch
from headrace.drive.sources.turns import SYSTEM_ROLES, RowProblem, kind_of, looks_like_chat, read_chat
from headrace.errors import UsageError, nearest

CHAT_COLUMNS = ("messages", "conversations", "conversation")
PROMPT_COLUMNS = ("prompt", "question", "instruction", "problem", "query", "text", "input", "content")
ALPACA_INPUTS = ("input", "context")
SYSTEM_COLUMNS = ("system", "system_prompt")
ID_COLUMNS = ("custom_id", "id")
BATCH_COLUMNS = ("body", "url", "method")
MAPPABLE = ("prompt", "messages", "conversations", "instruction", "input", "system")
OWN_ID_CHARACTERS_LIMIT = 1000


class ShapeKind(StrEnum):
    """What a row is made of."""

    PROMPT = "prompt"
    CHAT = "chat"
    ALPACA = "alpaca"
    BATCH = "batch"


class Shape(msgspec.Struct, frozen=True):
    """How the rows of a source are read.

    Attributes:
        kind: what the rows are made of.
        column: the column that asks; for Alpaca the instruction, for a batch the body.
        input: Alpaca's second column, put after the instruction and a blank line; may be missing in a row.
        system: the column of the system prompt; may be missing or blank in a row.
        own_id: the column of the user's own id, or None.
        own_id_required: the user named it, so a row without it is an error.
    """

    kind: ShapeKind
    column: str
    input: str | None = None
    system: str | None = None
    own_id: str | None = None
    own_id_required: bool = False

    def describe(self) -> str:
        """The shape in words, for `--dry-run`."""
        said = f"{self.kind} from '{self.column}'"
        if self.input:
            said += f" and '{self.input}'"
        if self.system:
            said += f", system prompt from '{self.system}'"
        if self.own_id:
            said += f", own id from '{self.own_id}'{'' if self.own_id_required else ' if unique'}"
        return said


def read_prompt(row: Mapping[str, Any], shape: Shape, number: int) -> PromptRow:
    """What the row asks; `number` is its 1-based row of the source.

    Raises:
        RowProblem: the row does not have the shape, or has nothing to answer.
    """
    messages: tuple[Message, ...] | None = None
    text: str | None = None
    body: dict[str, Any] | None = None
    url: str | None = None
    if shape.kind is ShapeKind.BATCH:
        body, url = read_batch(row)
    else:
        if shape.column not in row:
            raise RowProblem(_lacking(shape.column, row))
        asked = row[shape.column]
        if shape.kind is ShapeKind.CHAT or looks_like_turns(asked):
            messages = read_chat(asked, shape.column)
        else:
            text = _text(asked, shape.column)
            more = row.get(shape.input) if shape.input is not None else None
            if more is not None and _text(more, shape.input or "", may_be_blank=True).strip():
                text = f"{text}\n\n{more}"
        if shape.system is not None:
            messages, text = _with_system(row.get(shape.system), shape.system, messages, text)
    used = _used(shape)
    extra = {name: value for name, value in row.items() if name not in used}
    own_id = None if shape.own_id is None else _own_id(row, shape)
    return PromptRow(number, messages, text, body, url, own_id, extra or None)


def looks_like_turns(value: object) -> bool:
    """True for a chat that is a list (text that happens to begin with a bracket stays text)."""
    return isinstance(value, list) and looks_like_chat(value)


def own_id_column(shape: Shape) -> str | None:
    """The column that `PromptRow.own_id` comes from; whether it is unique is for the index to see."""
    return shape.own_id


def shape_for(rows: Sequence[Mapping[str, Any]], source: Source) -> Shape:
    """The shape of a source, from its first rows (at least one).

    Raises:
        UsageError: none is recognised, or the user's mapping does not fit; names the columns found.
    """
    found = list(dict.fromkeys(name for row in rows for name in row))
    problems = _mapping_problems(source, found)
    if problems:
        raise UsageError(problems)
    shape = _mapped(source, found) or _recognised(rows, found)
    if shape is None:
        raise UsageError(
            f"source '{source.name}' ({source.paths[0]}): no prompt found in the columns {_names(found)}. "
            f"Recognised are {', '.join((*CHAT_COLUMNS, *PROMPT_COLUMNS))} and OpenAI batch rows. "
            "Say which column asks: --columns prompt=NAME"
        )
    system = source.columns.get("system")
    if system is None and shape.kind is not ShapeKind.BATCH:
        system = next((name for word in SYSTEM_COLUMNS if (name := _named(word, found)) is not None), None)
    own_id = source.id_column
    if own_id is None:
        own_id = next((name for word in ID_COLUMNS if (name := _named(word, found)) is not None), None)
    return msgspec.structs.replace(
        shape,
        system=system if system != shape.column else None,
        own_id=own_id,
        own_id_required=source.id_column is not None,
    )


def _mapping_problems(source: Source, found: Sequence[str]) -> list[str]:
    columns = source.columns
    where = f"source '{source.name}' ({source.paths[0]})"
    problems = [
        f"{where}: '{word}' is nothing that a column can be mapped to.{nearest(word, MAPPABLE)} "
        f"Mappable are {', '.join(MAPPABLE)}"
        for word in columns
        if word not in MAPPABLE
    ]
    asking = [word for word in ("prompt", "messages", "conversations", "instruction") if word in columns]
    if len(asking) > 1:
        problems.append(f"{where}: both {' and '.join(asking)} are mapped; map the one that asks")
    if columns.get("input") and asking and asking != ["instruction"]:
        problems.append(f"{where}: `input` goes with `instruction`, not with `{asking[0]}`")
    wanted = [name for word, name in columns.items() if name or word != "system"]
    if source.id_column is not None:
        wanted.append(source.id_column)
    missing = [name for name in wanted if name not in found]
    said = f"the first rows have {_names(found)}."
    return problems + [f"{where}: no column '{name}'; {said}{nearest(name, found)}" for name in missing]


def _mapped(source: Source, found: Sequence[str]) -> Shape | None:
    columns = source.columns
    for word in ("messages", "conversations"):
        if word in columns:
            return Shape(ShapeKind.CHAT, columns[word])
    if "prompt" in columns:
        return Shape(ShapeKind.PROMPT, columns["prompt"])
    if "instruction" in columns:
        return Shape(ShapeKind.ALPACA, columns["instruction"], columns.get("input"))
    if "input" in columns:
        instruction = _named("instruction", found)
        if instruction is None or instruction == columns["input"]:
            return Shape(ShapeKind.PROMPT, columns["input"])
        return Shape(ShapeKind.ALPACA, instruction, columns["input"])
    return None


def _recognised(rows: Sequence[Mapping[str, Any]], found: Sequence[str]) -> Shape | None:
    best: Shape | None = None
    best_count = 0
    for shape, fits in _candidates(found):
        count = sum(map(fits, rows))
        if 2 * count >= len(rows) and count:
            return shape
        if count > best_count:
            best, best_count = shape, count
    return best


_Candidate = tuple[Shape, Callable[[Mapping[str, Any]], bool]]


def _candidates(found: Sequence[str]) -> list[_Candidate]:
    candidates: list[_Candidate] = []
    if "body" in found:
        candidates.append((Shape(ShapeKind.BATCH, "body"), looks_like_batch))
    candidates += [
        (Shape(ShapeKind.CHAT, name), _holds(name, looks_like_chat))
        for word in CHAT_COLUMNS
        if (name := _named(word, found)) is not None
    ]
    for word in PROMPT_COLUMNS:
        if (name := _named(word, found)) is not None:
            candidates.append((Shape(ShapeKind.PROMPT, name), _holds(name, _asks)))
        if word == "prompt" and (alpaca := _alpaca(found)) is not None:
            candidates.append((alpaca, _holds(alpaca.column, _asks)))
    return candidates


def _alpaca(found: Sequence[str]) -> Shape | None:
    instruction = _named("instruction", found)
    more = next((name for word in ALPACA_INPUTS if (name := _named(word, found)) is not None), None)
    if instruction is None or (more is None and _named("output", found) is None):
        return None
    return Shape(ShapeKind.ALPACA, instruction, more)


def _holds(name: str, fits: Callable[[object], bool]) -> Callable[[Mapping[str, Any]], bool]:
    return lambda row: fits(row.get(name))


def _asks(value: object) -> bool:
    return bool(value.strip()) if isinstance(value, str) else looks_like_turns(value)


def _named(word: str, found: Sequence[str]) -> str | None:
    """The column called `word`, exactly if there is one, else in other letters' case."""
    if word in found:
        return word
    return next((name for name in found if name.strip().lower() == word), None)


def _used(shape: Shape) -> frozenset[str]:
    """The columns that are in the prompt (or are its id by the user's word), so not in `extra`."""
    used = {shape.column, shape.input, shape.system, shape.own_id if shape.own_id_required else None}
    if shape.kind is ShapeKind.BATCH:
        used.update(BATCH_COLUMNS)
    return frozenset(name for name in used if name is not None)


def _text(value: object, column: str, may_be_blank: bool = False) -> str:
    if not isinstance(value, str):
        raise RowProblem(f"'{column}' is {kind_of(value)}, not text. Put it in quotes, or take the row out")
    if not may_be_blank and not value.strip():
        raise RowProblem(f"'{column}' is blank: nothing to answer")
    return value


def _with_system(
    value: object, column: str, messages: tuple[Message, ...] | None, text: str | None
) -> tuple[tuple[Message, ...] | None, str | None]:
    if value is None or value == "":
        return messages, text
    said = _text(value, column, may_be_blank=True)
    if not said.strip():
        return messages, text
    turn: Message = {"role": "system", "content": said}
    if messages is None:
        return (turn, {"role": "user", "content": text}), None
    if any(message["role"] in SYSTEM_ROLES for message in messages):
        return messages, text
    return (turn, *messages), text


def _own_id(row: Mapping[str, Any], shape: Shape) -> str | None:
    value = row.get(shape.own_id or "")
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, str) and value and len(value) <= OWN_ID_CHARACTERS_LIMIT:
        return value
    if not shape.own_id_required:
        return None
    if shape.own_id not in row:
        raise RowProblem(
            f"no id column '{shape.own_id}'; the row has {_names(list(row))}. Give the row an id"
        )
    said = f"{len(value)} characters long" if isinstance(value, str) else kind_of(value)
    raise RowProblem(
        f"the id '{shape.own_id}' is {said}; needed are 1 to {OWN_ID_CHARACTERS_LIMIT:,} characters "
        "or a whole number. Mend the id"
    )


def _lacking(column: str, row: Mapping[str, Any]) -> str:
    return (
        f"no column '{column}'; the row has {_names(list(row))}.{nearest(column, row)} "
        "Mend the row, or give rows of another shape as a source of their own"
    )


def _names(columns: Sequence[str]) -> str:
    shown = ", ".join(repr(name[:100]) for name in columns[:20])
    return (shown or "none") + (f" and {len(columns) - 20} more" if len(columns) > 20 else "")
