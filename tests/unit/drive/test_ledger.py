"""The ledger: commits, snapshots, records and failures come back as they went in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.drive.store.changes import pack_changes, unpack_changes
from headrace.drive.store.identity import match, occurrences, settle_duplicates
from headrace.drive.store.ledger import Ledger
from headrace.drive.store.ledger_damage import LedgerDamaged
from headrace.drive.store.records import RECORD, RECORDS_PER_BLOCK, Keys
from headrace.drive.store.states import State
from tests.unit.drive.store_jobs import FastDisk

PROMPTS = 1000


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    """A ledger of 1,000 prompts; prompt n has row n + 1 and offset 100 n."""
    ledger = Ledger(tmp_path / "ledger.db", FastDisk())
    records = np.zeros(PROMPTS, dtype=RECORD)
    records["row"] = np.arange(1, PROMPTS + 1)
    records["offset"] = 100 * np.arange(PROMPTS)
    records["content"][:, 1] = np.arange(PROMPTS)
    blocks = [
        (number, records[number * RECORDS_PER_BLOCK :][:RECORDS_PER_BLOCK].tobytes())
        for number in range(-(-PROMPTS // RECORDS_PER_BLOCK))
    ]
    ledger.replace_index(
        blocks,
        np.zeros(PROMPTS, dtype=np.uint8),
        np.zeros(PROMPTS, dtype=np.uint16),
        np.array([[3, 999]], dtype=np.uint32),
        {"pinned": b"{}"},
        [(17, b'{"kind":"unreadable"}')],
    )
    yield ledger
    ledger.close()


def test_records_come_back_in_the_order_asked(ledger: Ledger) -> None:
    found = ledger.records([999, 0, 64])
    assert [(record.row, record.offset) for record in found] == [(1000, 99_900), (1, 0), (65, 6400)]
    assert found[2].content == bytes(8) + (64).to_bytes(8, "little")
    everything = np.concatenate(list(ledger.all_records(blocks_at_once=3)))
    assert everything["row"].tolist() == list(range(1, 1001))


def test_states_are_the_snapshot_and_the_commits_after_it(ledger: Ledger) -> None:
    ledger.commit([(State.DONE, [1, 2]), (State.FAILED, [5])], segment=0, length=100)
    states, sources, pairs = ledger.load()
    assert np.flatnonzero(states).tolist() == [1, 2, 5]
    ledger.put_snapshot(states, sources, pairs)
    ledger.commit([(State.PENDING, [5])])
    ledger.commit([(State.DONE, np.array([7]))], segment=1, length=50)
    ledger.seal(0, 2)
    states, _, pairs = ledger.load()
    assert np.flatnonzero(states).tolist() == [1, 2, 7]
    assert pairs.tolist() == [[3, 999]]
    assert ledger.segment_lengths == {1: 50}
    assert ledger.seqs_in_segment(0).tolist() == [1, 2]
    ledger.check()


def test_only_failures_that_stand_are_listed(ledger: Ledger) -> None:
    ledger.commit([(State.FAILED, [1, 2])], [(1, b"one"), (2, b"two")])
    ledger.commit([(State.FAILED, [1])], [(1, b"one again")])
    states = np.zeros(PROMPTS, dtype=np.uint8)
    states[[1, 17]] = State.FAILED, State.UNREADABLE
    assert list(ledger.failures(states)) == [b"one again", b'{"kind":"unreadable"}']


def test_a_batch_costs_few_bytes(ledger: Ledger) -> None:
    ledger.commit([(State.DONE, range(256))], segment=0, length=1)
    (size,) = ledger._reader.execute("SELECT sum(length(changes)) FROM commits").fetchone()
    assert size == 256 * 4 + 5


def test_what_is_no_ledger_is_called_damaged(tmp_path: Path) -> None:
    (tmp_path / "ledger.db").write_bytes(b"no database" * 1000)
    with pytest.raises(LedgerDamaged, match=r"ledger.db is damaged"):
        Ledger(tmp_path / "ledger.db", FastDisk())


@given(st.lists(st.tuples(st.sampled_from(list(State)), st.lists(st.integers(0, 2**32 - 1)))))
def test_changes_are_packed_and_unpacked(changes: list[tuple[State, list[int]]]) -> None:
    assert [(state, seqs.tolist()) for state, seqs in unpack_changes(pack_changes(changes))] == changes


def _keys(numbers: list[int]) -> Keys:
    """Keys of which many share one half and differ in the other."""
    return np.array([(number % 3, number // 3) for number in numbers], dtype=np.uint64).reshape(-1, 2)


@given(st.lists(st.integers(0, 12)))
def test_occurrences_count_the_rows_before(numbers: list[int]) -> None:
    assert occurrences(_keys(numbers)).tolist() == [numbers[:at].count(n) for at, n in enumerate(numbers)]


@given(st.lists(st.integers(0, 9)), st.lists(st.integers(0, 9)))
def test_match_finds_key_and_occurrence(old: list[int], new: list[int]) -> None:
    places = {(n, old[:at].count(n)): at for at, n in enumerate(old)}
    wanted = [places.get((n, new[:at].count(n)), -1) for at, n in enumerate(new)]
    found = match(_keys(old), occurrences(_keys(old)), _keys(new), occurrences(_keys(new)))
    assert found.tolist() == wanted


@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from(list(State)))))
def test_duplicates_have_one_primary_each(prompts: list[tuple[int, State]]) -> None:
    before = np.array([state for _, state in prompts], dtype=np.uint8)
    states, pairs = settle_duplicates(before, _keys([number for number, _ in prompts]))
    primary_of = {int(duplicate): int(primary) for primary, duplicate in pairs}
    for number in range(6):
        members = [at for at, (content, _) in enumerate(prompts) if content == number]
        asked = [at for at in members if states[at] == State.PENDING]
        waiting = [at for at in members if states[at] == State.DUPLICATE]
        answered = [at for at in members if prompts[at][1] == State.DONE]
        assert len(asked) + bool(answered) <= 1
        assert not waiting or {primary_of[at] for at in waiting} <= {*asked, *answered}
        to_ask = [at for at in members if prompts[at][1] in (State.PENDING, State.DUPLICATE)]
        assert sorted(asked + waiting) == to_ask
    untouched = [at for at, (_, s) in enumerate(prompts) if s not in (State.PENDING, State.DUPLICATE)]
    assert states[untouched].tolist() == before[untouched].tolist()
