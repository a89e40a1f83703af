from __future__ import annotations

from pathlib import Path

import pytest

from kube_sync.ledger import entry_queue
from kube_sync.ledger.entries import Entry, GapNote
from kube_sync.ledger.entry_queue import EntryQueue, EntrySource
from kube_sync.ledger.store import Store
from tests.fakes.ledgers import START


def _late(name: str) -> EntrySource:
    return lambda _store: ((Entry(kind="start", name=name), ()),)


def _queue(kept: int = 10) -> EntryQueue:
    return EntryQueue(kept, lambda: START)


def _names(queue: EntryQueue, tmp_path: Path) -> list[tuple[str, int]]:
    store = Store(tmp_path / "ledger.db")
    group = queue.group(100)
    store.close()
    return [
        (said[0].name or said[0].kind, number) for late, number in group for said in late(store)
    ]


def test_entries_stay_in_their_order_until_they_are_settled(tmp_path: Path) -> None:
    queue = _queue()
    assert queue.put(_late("a"), lambda: 7)
    assert queue.put(_late("b"))
    assert _names(queue, tmp_path) == [("a", 7), ("b", 0)]
    assert queue.settle(1) is None
    assert _names(queue, tmp_path) == [("b", 0)]
    assert (queue.accepted, queue.settled, queue.alone) == (2, 1, 2)


def test_gap_that_is_put_first_counts_as_not_written_ahead(tmp_path: Path) -> None:
    queue = _queue()
    queue.put(_late("a"), lambda: 1)
    queue.put_first(GapNote(0, 0, START, "torn"))
    assert _names(queue, tmp_path) == [("gap", 0), ("a", 1)]
    assert (queue.accepted, queue.alone) == (2, 1)


def test_what_is_lost_while_the_file_fails_is_a_gap_behind_what_is_kept(tmp_path: Path) -> None:
    queue = _queue(kept=1)
    queue.failing = "disk full"
    assert queue.put(_late("a"))
    assert not queue.put(_late("lost"), pytest.fail)
    assert not queue.put(_late("lost"))
    assert queue.losing
    queue.failing = None
    assert not queue.put(_late("lost"))  # what came later must not be before the gap
    assert queue.settle(1) == GapNote(3, START, START, "disk full")
    assert not queue.losing
    assert _names(queue, tmp_path) == [("gap", 0)]
    assert (queue.accepted, queue.settled) == (2, 1)


def test_burst_that_is_too_much_is_a_gap_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry_queue, "BURST", 1)
    queue = _queue()
    assert [queue.put(_late("a")) for _ in range(2)] == [True, False]
    lost = queue.settle(1)
    assert lost is not None
    assert lost.reason == "too many entries at once"


def test_action_is_done_only_if_nothing_is_to_be_written() -> None:
    queue, done = _queue(), list[str]()
    queue.if_settled(lambda: done.append("empty"))
    queue.put(_late("a"))
    queue.if_settled(lambda: done.append("waiting"))
    queue.settle(1)
    queue.if_settled(lambda: done.append("settled"))
    assert done == ["empty", "settled"]
