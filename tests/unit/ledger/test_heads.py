"""The head of a ledger as it is noted on a Lease, and a ledger that is not the one it was."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from kube_sync.kube.lease import LEASES
from kube_sync.ledger.heads import Head, HeadNotes, head_of, noted_heads
from kube_sync.ledger.journal import Journal
from kube_sync.ledger.reading import reading
from kube_sync.ledger.store import Store
from kube_sync.objects import ObjectKey
from tests.fakes.apiserver import fake_apiserver
from tests.fakes.clients import kube_of
from tests.fakes.ledgers import START, decided, filled, verified
from tests.unit.async_tools import running, until

_HEAD, _LOST = "kube-sync.io/ledger-head", "kube-sync.io/lost-ledger-head"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


class _Lease:
    """A Lease whose holder notes on it; `renew` is one turn, `minute` later ones."""

    def __init__(self, journal: Journal) -> None:
        self.annotations: dict[str, str] = {}
        self.now = 0.0
        self.notes = HeadNotes(journal, clock=lambda: self.now)

    def renew(self) -> Mapping[str, str]:
        self.annotations |= self.notes.notes(self.annotations)
        return self.annotations

    def minute(self) -> Mapping[str, str]:
        self.now += 60
        return self.renew()


@asynccontextmanager
async def _replicator(path: Path) -> AsyncGenerator[tuple[Journal, _Lease]]:
    journal = Journal(path, max_age=1e12, max_size=1 << 40, patience=30)
    async with running(journal.run()):
        yield journal, _Lease(journal)


async def test_the_head_is_noted_at_once_and_then_every_minute(path: Path) -> None:
    async with _replicator(path) as (journal, lease):
        journal.enqueue(*decided("c1"))
        assert await journal.recorded()
        await until(lambda: lease.renew().get(_HEAD, "").startswith("1:"))
        journal.enqueue(*decided("c2"))
        assert await journal.recorded()
        assert lease.renew()[_HEAD].startswith("1:")
        lease.minute()
        await until(lambda: lease.renew()[_HEAD].startswith("2:"))
        assert lease.notes.shown == f"{_HEAD}={lease.annotations[_HEAD]}"
    head = head_of(lease.annotations[_HEAD])
    assert head is not None
    assert verified(path, head).faults == []
    assert _LOST not in lease.annotations


def _made_anew(path: Path) -> None:
    """Forge the end of a chain, with all that is derived from it."""
    path.unlink()
    filled(path, 9).close()


async def test_a_start_keeps_the_noted_head_that_its_ledger_does_not_have(path: Path) -> None:
    filled(path, 9).close()
    noted = verified(path).head
    _made_anew(path)
    store = Store(path)
    store.append([decided("forged")], START)
    store.close()
    row = noted.replace("9:", "8:")  # of another chain
    async with _replicator(path) as (journal, lease):
        lease.annotations[_HEAD] = row
        await until(lambda: _LOST in lease.renew())
        assert await journal.recorded()
        assert lease.annotations[_LOST] == row
        assert lease.annotations[_HEAD] != row
        lease.minute()
        await until(lambda: lease.renew()[_HEAD].startswith("11:"))
    with reading(path) as ledger:
        gap = ledger.history()[-1].entry
    assert gap.kind == "gap"
    assert f"row {row}, noted on the Lease, is not in the ledger" in gap.note
    lost = head_of(row, "Lease kube-sync/kube-sync-replicator")
    assert lost is not None
    assert verified(path, lost).faults == [
        "row 8: its hash is not the one that was noted (Lease kube-sync/kube-sync-replicator)"
    ]


async def test_a_chain_that_is_made_anew_while_it_is_written_is_found_within_a_minute(
    path: Path,
) -> None:
    async with _replicator(path) as (journal, lease):
        for number in range(3):
            journal.enqueue(*decided(f"c{number}"))
        assert await journal.recorded()
        await until(lambda: lease.renew().get(_HEAD, "").startswith("3:"))
        noted = lease.annotations[_HEAD]
        with closing(sqlite3.connect(path)) as db:
            for statement in ("DELETE FROM records WHERE seq > 1", "DELETE FROM objects"):
                db.execute(statement)
            db.commit()
        store = Store(path)
        store.append([decided("x", "other"), decided("y", "other"), decided("z", "other")], START)
        store.close()
        lease.minute()
        await until(lambda: lease.renew().get(_LOST) == noted)


async def test_heads_are_read_from_lease_and_events_and_what_cannot_be_asked_is_told(
    tmp_path: Path,
) -> None:
    digest = "ab" * 32
    async with fake_apiserver() as api, kube_of(api, tmp_path) as kube:
        api.define(LEASES, "Lease")
        where = ("kube-sync", "kube-sync-replicator")
        found = await noted_heads(kube, where, ["policies"], "")
        assert (found.heads, len(found.unknown)) == ((), 2)
        annotations = {_HEAD: f"7:{digest}", _LOST: "rubbish", _HEAD + "-other": f"9:{digest}"}
        api.put(LEASES, ObjectKey(*where), metadata={"annotations": annotations}, spec={})
        found = await noted_heads(kube, where, [], "")
        lease = "Lease kube-sync/kube-sync-replicator"
        expected = (Head(7, digest, f"{lease}, {_HEAD}"), Head(0, "", f"{lease}, {_LOST}"))
        assert found == (expected, ())
        (other,) = (await noted_heads(kube, where, [], "other")).heads
        assert other.row == 9
        absent = await noted_heads(kube, where, [], "third")
        assert absent.unknown == (f"{lease} has no annotation {_HEAD}-third",)
