"""Which column asks is seen from the first rows, or told by the user."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from headrace.drive.job import Source
from headrace.drive.prompts import PromptRow
from headrace.drive.sources import NoSpool, ShapeKind, own_id_column, peek, scan
from headrace.errors import UsageError


def source_of(folder: Path, *rows: Any, **settings: Any) -> Source:
    path = folder / "rows.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    return Source("s", (path,), **settings)


def only(source: Source) -> PromptRow:
    (row,) = scan(source, {source.paths[0]: 1}, NoSpool())
    assert row.prompt is not None, row.error
    return row.prompt


def error_of(source: Source) -> str:
    """The error of the last row."""
    row = list(scan(source, {source.paths[0]: 1}, NoSpool()))[-1]
    assert row.prompt is None
    assert row.error is not None
    return row.error


USER = {"role": "user", "content": "hi"}


@pytest.mark.parametrize(
    "column",
    ["prompt", "question", "instruction", "problem", "query", "text", "input", "content", "Question"],
)
def test_prompt_columns(tmp_path: Path, column: str) -> None:
    prompt = only(source_of(tmp_path, {column: "hi", "answer": "4", "completion": None}))
    assert (prompt.text, prompt.messages, prompt.body) == ("hi", None, None)
    assert prompt.extra == {"answer": "4", "completion": None}


@pytest.mark.parametrize(
    ("row", "column"),
    [
        ({"text": "t", "prompt": "p", "question": "q"}, "prompt"),
        ({"text": "t", "question": "q"}, "question"),
        ({"prompt": "p", "messages": [USER]}, "messages"),
        ({"messages": [USER], "conversations": [USER]}, "messages"),
        ({"conversation": [USER], "text": "t"}, "conversation"),
        ({"instruction": "i", "input": "", "output": "o", "text": "t"}, "instruction"),
        ({"prompt": "p", "instruction": "i", "output": "o"}, "prompt"),
        ({"prompt": "p", "PROMPT": "P"}, "prompt"),
        ({"messages": "not a chat", "text": "t"}, "text"),
        ({"prompt": None, "text": "t"}, "text"),
    ],
)
def test_order_in_which_columns_are_taken(tmp_path: Path, row: Mapping[str, Any], column: str) -> None:
    assert peek(source_of(tmp_path, row)).column == column


def test_what_half_of_the_first_rows_have_is_taken(tmp_path: Path) -> None:
    source = source_of(
        tmp_path, {"id": 1}, {"prompt": "a", "text": "x"}, {"text": "y"}, {"prompt": "b", "text": "z"}
    )
    assert peek(source).column == "prompt"


def test_messages_lose_the_answer_at_their_end(tmp_path: Path) -> None:
    turns = [
        {"role": "system", "content": "be kind"},
        USER,
        {"role": "assistant", "content": "yes?", "reasoning_content": "…"},
        {"role": "user", "content": "bye"},
        {"role": "assistant", "content": "bye!"},
    ]
    prompt = only(source_of(tmp_path, {"messages": turns, "source": "x"}))
    assert prompt.messages == tuple(turns[:4])
    assert prompt.text is None
    assert prompt.extra == {"source": "x"}


def test_tool_results_are_answered(tmp_path: Path) -> None:
    turns = [
        USER,
        {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]},
        {"role": "tool", "content": "5", "tool_call_id": "1"},
        {"role": "assistant", "content": "five"},
    ]
    assert only(source_of(tmp_path, {"messages": turns})).messages == (*turns[:3],)


def test_content_parts_stay(tmp_path: Path) -> None:
    turn = {"role": "user", "content": [{"type": "text", "text": "hi"}]}
    assert only(source_of(tmp_path, {"messages": [turn]})).messages == (turn,)


def test_sharegpt(tmp_path: Path) -> None:
    turns = [
        {"from": "system", "value": "s"},
        {"from": "human", "value": "a"},
        {"from": "gpt", "value": "b"},
        {"from": "Human", "value": "c"},
        {"from": "gpt", "value": "d"},
    ]
    prompt = only(source_of(tmp_path, {"id": "x1", "conversations": turns}))
    assert [(turn["role"], turn["content"]) for turn in prompt.messages or ()] == [
        ("system", "s"),
        ("user", "a"),
        ("assistant", "b"),
        ("user", "c"),
    ]
    assert prompt.own_id == "x1"


def test_conversations_with_role_and_content(tmp_path: Path) -> None:
    prompt = only(source_of(tmp_path, {"conversations": [USER, {"role": "assistant", "content": "x"}]}))
    assert prompt.messages == (USER,)


def test_a_chat_as_json_text_or_in_the_prompt_column(tmp_path: Path) -> None:
    assert only(source_of(tmp_path, {"messages": json.dumps([USER])})).messages == (USER,)
    assert only(source_of(tmp_path, {"prompt": [USER]})).messages == (USER,)
    assert only(source_of(tmp_path, {"prompt": "[1, 2] sum?"})).text == "[1, 2] sum?"


@pytest.mark.parametrize(
    ("more", "text"),
    [("Rome", "Translate\n\nRome"), ("", "Translate"), (None, "Translate"), (" ", "Translate")],
)
def test_alpaca(tmp_path: Path, more: str | None, text: str) -> None:
    prompt = only(source_of(tmp_path, {"instruction": "Translate", "input": more, "output": "o"}))
    assert prompt.text == text
    assert prompt.extra == {"output": "o"}


def test_openai_batch(tmp_path: Path) -> None:
    body = {"model": "m", "messages": [USER], "temperature": 0, "stream": False, "n": 1}
    row = {"custom_id": "r1", "method": "POST", "url": "/v1/chat/completions", "body": body}
    prompt = only(source_of(tmp_path, row))
    assert prompt.body == {"messages": [USER], "temperature": 0}
    assert (prompt.url, prompt.own_id) == ("/v1/chat/completions", "r1")
    plain = only(source_of(tmp_path, {"custom_id": "r1", "body": {"prompt": "hi"}}))
    assert plain.url == "/v1/completions"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"url": "/v1/embeddings"}, "/v1/embeddings"),
        ({"method": "GET"}, "only POST"),
        ({"body": {"messages": [USER], "n": 2}}, "samples"),
        ({"body": {"messages": [USER], "stream": True}}, "stream"),
        ({"body": {"messages": []}}, "nothing to answer"),
        ({"body": {"messages": "hi"}}, "nothing to answer"),
        ({"body": "x"}, "not a request body"),
    ],
)
def test_openai_batch_rows_that_cannot_be_sent(tmp_path: Path, change: Mapping[str, Any], words: str) -> None:
    row = {"custom_id": "r", "method": "POST", "url": "/v1/chat/completions", "body": {"messages": [USER]}}
    assert words in error_of(source_of(tmp_path, row, {**row, **change}))


def test_mapping(tmp_path: Path) -> None:
    row = {"prompt": "no", "ask": "yes", "sys": "s", "uid": 17}
    prompt = only(source_of(tmp_path, row, columns={"prompt": "ask", "system": "sys"}, id_column="uid"))
    assert prompt.messages == ({"role": "system", "content": "s"}, {"role": "user", "content": "yes"})
    assert prompt.own_id == "17"
    assert prompt.extra == {"prompt": "no"}


def test_mapping_of_instruction_and_input(tmp_path: Path) -> None:
    prompt = only(source_of(tmp_path, {"a": "A", "b": "B"}, columns={"instruction": "a", "input": "b"}))
    assert prompt.text == "A\n\nB"
    beside = only(source_of(tmp_path, {"instruction": "A", "extra": " B\n"}, columns={"input": "extra"}))
    assert beside.text == "A\n\n B\n"
    alone = only(source_of(tmp_path, {"text": "A", "b": "B"}, columns={"input": "b"}))
    assert alone.text == "B"


def test_system_column(tmp_path: Path) -> None:
    system = {"role": "system", "content": "s"}
    row = {"system": "s", "messages": [USER]}
    assert only(source_of(tmp_path, row)).messages == (system, USER)
    own = {"system": "s", "messages": [{"role": "system", "content": "own"}, USER]}
    assert only(source_of(tmp_path, own)).messages == ({"role": "system", "content": "own"}, USER)
    unmapped = only(source_of(tmp_path, row, columns={"system": ""}))
    assert unmapped.messages == (USER,)
    assert unmapped.extra == {"system": "s"}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"columns": {"prompt": "qestion"}}, "Did you mean 'question'"),
        ({"columns": {"promt": "question"}}, "Did you mean 'prompt'"),
        ({"columns": {"prompt": "question", "messages": "question"}}, "map the one that asks"),
        ({"columns": {"prompt": "question", "input": "x"}}, "goes with `instruction`"),
        ({"id_column": "uid"}, "no column 'uid'"),
    ],
)
def test_mappings_that_do_not_fit(tmp_path: Path, settings: Mapping[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        peek(source_of(tmp_path, {"question": "q", "x": 1}, **settings))


def test_no_shape_names_the_columns_found_and_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        peek(source_of(tmp_path, {"goal": "g", "n": 1}))
    for words in ("rows.jsonl", "'goal', 'n'", "messages", "--columns prompt=NAME"):
        assert words in str(caught.value)


def test_a_row_of_another_shape_names_itself_its_columns_and_the_way_out(tmp_path: Path) -> None:
    error = error_of(source_of(tmp_path, {"question": "q"}, {"questions": "x", "b": 1}))
    for words in (
        "row 2 (rows.jsonl, line 2)",
        "no column 'question'",
        "'questions', 'b'",
        "source of their own",
    ):
        assert words in error


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "null"),
        (5, "the number 5"),
        (True, "true or false"),
        ("", "blank"),
        (" \n", "blank"),
        ({"a": 1}, "an object"),
        ([], "a list"),
    ],
)
def test_prompts_that_ask_nothing(tmp_path: Path, value: object, words: str) -> None:
    assert words in error_of(source_of(tmp_path, {"prompt": "p"}, {"prompt": value}))


@pytest.mark.parametrize(
    ("turns", "words"),
    [
        ([], "nothing to answer"),
        ([{"role": "assistant", "content": "x"}], "nothing to answer"),
        ([{"role": "system", "content": "x"}], "nothing to answer"),
        ([{"role": "user", "content": " "}], "blank"),
        ([{"role": "user", "content": 5}], "the number 5"),
        ([{"role": "user"}], "null"),
        ([{"role": "asistant", "content": "x"}], "Did you mean 'assistant'"),
        ([{"who": "user"}], "does not say who speaks"),
        (["hi"], "turn 1 of 'messages' is text"),
        ([{"role": "user", "content": ["hi"]}], "content parts"),
        ("hello", "not a list of turns"),
        ("[{", "not a JSON chat"),
        (None, "null"),
    ],
)
def test_chats_that_ask_nothing(tmp_path: Path, turns: object, words: str) -> None:
    assert words in error_of(source_of(tmp_path, {"messages": [USER]}, {"messages": turns}))


def test_own_ids(tmp_path: Path) -> None:
    assert (
        only(source_of(tmp_path, {"prompt": "p", "id": 12345678901234567890123})).own_id
        == "12345678901234567890123"
    )
    assert only(source_of(tmp_path, {"prompt": "p", "id": None})).own_id is None
    assert only(source_of(tmp_path, {"prompt": "p", "id": 1.5})).own_id is None
    found = source_of(tmp_path, {"prompt": "p", "id": 1, "custom_id": "c"})
    assert only(found).own_id == "c"
    assert own_id_column(peek(found)) == "custom_id"
    assert only(found).extra == {"id": 1, "custom_id": "c"}
    assert peek(source_of(tmp_path, {"prompt": "p"})).own_id is None


@pytest.mark.parametrize("value", [None, "", True, 1.0, [], "x" * 1001])
def test_a_named_id_column_must_hold_an_id(tmp_path: Path, value: object) -> None:
    source = source_of(tmp_path, {"prompt": "p", "uid": 1}, {"prompt": "p", "uid": value}, id_column="uid")
    assert "the id 'uid'" in error_of(source)
    missing = source_of(tmp_path, {"prompt": "p", "uid": 1}, {"prompt": "p"}, id_column="uid")
    assert "no id column 'uid'" in error_of(missing)


def test_kinds_say_themselves(tmp_path: Path) -> None:
    shape = peek(source_of(tmp_path, {"instruction": "i", "input": "x", "id": 1}))
    assert shape.kind is ShapeKind.ALPACA
    assert shape.describe() == "alpaca from 'instruction' and 'input', own id from 'id' if unique"


@pytest.mark.parametrize(
    ("name", "column", "rows"), [("gsm8k_test", "question", 1319), ("humaneval", "prompt", 164)]
)
def test_well_known_sets_need_no_options(name: str, column: str, rows: int, shared: Path) -> None:
    source = Source(name, (shared / "prompts" / f"{name}.jsonl",))
    assert peek(source).column == column
    found = list(scan(source, {source.paths[0]: 1}, NoSpool()))
    assert [row.error for row in found if row.error] == []
    assert len(found) == rows
