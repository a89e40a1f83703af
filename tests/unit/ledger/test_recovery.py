from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from kube_sync.ledger.entries import Entry, GapNote
from kube_sync.ledger.entry_queue import EntryWithTexts
from kube_sync.ledger.recovery import Recovery
from kube_sync.ledger.store import IngestPosition, Store
from kube_sync.ledger.write_ahead import Ahead
from tests.fakes.ledgers import START


class World:
    """A file that a process left, with the entries "a", "b" and "c" in it."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "ledger.db.ahead"
        ahead = Ahead(self.path)
        for name in "abc":
            ahead.add(name)
        ahead.flush()
        ahead.close()
        self.ahead = Ahead(self.path)
        self.store = Store(folder / "ledger.db")
        self.read: list[str] = []
        self.recovery = Recovery(self.ahead, self._recall, lambda: START)
        self.queued = [*self.recovery.entries()]

    def _recall(self, body: msgspec.Raw) -> Sequence[EntryWithTexts]:
        name = msgspec.msgpack.decode(body, type=str)
        self.read.append(name)
        if name == "b":
            msg = "of another version"
            raise msgspec.DecodeError(msg)
        return ((Entry(kind="start", name=name), ()),)

    def had(self, number: int, *, others: bool = False) -> None:
        self.recovery.opened(IngestPosition(self.ahead.generation, number, others))

    def said(self) -> list[Entry]:
        return [entry for late, _ in self.queued for entry, _ in late(self.store)]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def _names(found: list[Entry]) -> list[str]:
    return [one.name for one in found if one.kind == "start"]


def _lost(found: list[Entry]) -> list[int]:
    notes = (msgspec.json.decode(e.note, type=GapNote) for e in found if e.kind == "gap")
    return [note.entries for note in notes]


def test_what_was_left_comes_in_its_order_under_its_numbers(world: World) -> None:
    world.had(0)
    found = world.said()
    assert [number for _, number in world.queued] == [1, 2, 3, 0]
    assert (_names(found), _lost(found)) == (["a", "c"], [1])
    assert world.ahead.left == ()


def test_what_the_file_has_already_is_left_out(world: World) -> None:
    world.had(1)
    world.had(0)  # of a file that was opened later
    assert _names(world.said()) == ["c"]


def test_nothing_is_believed_where_another_process_has_written_since(world: World) -> None:
    world.had(1, others=True)
    assert world.recovery.is_doubtful(world.queued[:3])
    assert not world.recovery.is_doubtful(world.queued)
    found = world.said()
    assert (_names(found), _lost(found)) == ([], [2])
    world.recovery.settle(world.queued[:3])
    assert world.recovery.is_doubtful([])
    world.recovery.settle(world.queued)
    assert not world.recovery.is_doubtful([])


def test_group_that_is_tried_again_is_read_once(world: World) -> None:
    world.had(0)
    assert _names(world.said()) == _names(world.said())
    assert world.read == ["a", "b", "c"]


def test_file_that_nobody_opened_yet_is_told_nothing(world: World) -> None:
    assert _names(world.said()) == []
    assert not world.recovery.is_doubtful([])


def test_without_recall_there_is_nothing_to_recover(world: World) -> None:
    world.had(0, others=True)
    recovery = Recovery(Ahead(None), None, lambda: START)
    assert [*recovery.entries()] == []
    recovery.opened(IngestPosition(1, 1, others=True))
    assert not recovery.is_doubtful([])
