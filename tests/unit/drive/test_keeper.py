"""When answers that wait for the disk hold up the next request: by their number, and by their size."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from headrace.drive import keeper as keeper_module
from headrace.drive.keeper import MAX_BACKLOG_CHARACTERS, MAX_BACKLOG_ROWS, Keeper
from headrace.drive.store.rows import Row


class StuckWriter:
    """Stands for the writer's thread: takes rows, and writes them when the test says so."""

    def __init__(self, *_: object, **__: object) -> None:
        self.waiting = 0

    def submit_row(self, seq: int, row: Row) -> None:
        self.waiting += 1

    def backlog(self) -> int:
        return self.waiting


@pytest.fixture
def at_keeper(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[Keeper, StuckWriter], None]], None]:
    monkeypatch.setattr(keeper_module, "RowWriter", StuckWriter)

    def hold(scenario: Callable[[Keeper, StuckWriter], None]) -> None:
        async def main() -> None:
            keeper = Keeper(
                on_durable=lambda seqs: None, on_trouble=lambda said: None, on_failed=lambda error: None
            )
            keeper.begin(cast(Any, None), cast(Any, None))
            scenario(keeper, cast(StuckWriter, keeper._writer))

        asyncio.run(main())

    return hold


def row_of(characters: int) -> Row:
    return Row(
        id="1", source="p", row=1, sample=0, messages=None, prompt="x", answer="a" * characters,
        reasoning=None, finish_reason="stop", flags=[], prompt_tokens=1, completion_tokens=1, server="s",
        model=None, latency_seconds=1.0, tries=1, finished_at=0.0,
    )  # fmt: skip


def test_many_small_answers_wait_up_to_their_number(at_keeper: Any) -> None:
    def scenario(keeper: Keeper, writer: StuckWriter) -> None:
        for seq in range(MAX_BACKLOG_ROWS):
            keeper.save_row(seq, row_of(10))
        assert not keeper.is_behind()
        keeper.save_row(9999, row_of(10))
        assert keeper.is_behind()
        writer.waiting = 0
        assert not keeper.is_behind()

    at_keeper(scenario)


def test_large_answers_wait_up_to_their_size_from_the_first_on(at_keeper: Any) -> None:
    """Answers of 4 MB after thousands of small ones: two fit into 8 MiB, the third holds up the next."""

    def scenario(keeper: Keeper, writer: StuckWriter) -> None:
        for seq in range(2000):
            keeper.save_row(seq, row_of(10))
            writer.waiting = 0
        large = row_of(MAX_BACKLOG_CHARACTERS // 2)
        for seq, behind in enumerate((False, False, True)):
            keeper.save_row(seq, large)
            assert keeper.is_behind() is behind
        writer.waiting = 2
        assert not keeper.is_behind()

    at_keeper(scenario)
