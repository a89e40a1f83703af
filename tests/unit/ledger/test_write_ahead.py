"""What is told outlives a process that is killed before the ledger has it, and comes in once."""

from __future__ import annotations

import asyncio
import random
import resource
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kube_sync.decisions.decision import Decision
from kube_sync.decisions.evaluator import Outcome
from kube_sync.decisions.hub import DecisionHub
from kube_sync.decisions.input_reader import Basis, RecordedInput
from kube_sync.decisions.records import Source, Target
from kube_sync.ledger import journal as journal_module
from kube_sync.ledger import write_ahead as writing_ahead
from kube_sync.ledger.bases import collection_of, state_of
from kube_sync.ledger.command import check
from kube_sync.ledger.entries import Row
from kube_sync.ledger.heads import Compared
from kube_sync.ledger.journal import Journal
from kube_sync.ledger.reading import reading
from kube_sync.ledger.recording import Recall, Recorder
from kube_sync.ledger.store import Store
from kube_sync.ledger.write_ahead import Ahead
from tests.fakes.ledgers import WEB, decided, verified
from tests.unit.async_tools import running, until


def _basis(on: str) -> Basis:
    clusters = {"clusters": msgspec.json.encode({"fleet": {"c1": {"place": on}}})}
    return Basis(
        "kubernetes", "p", (("metadata", None),), {"web": None}, clusters, {"clusters": None}, {}
    )


class World:
    """A hub whose changes are written ahead and recorded."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.journal = Journal(
            path, max_age=1e9, max_size=1 << 40, again=0.01, patience=30, recall=Recall()
        )
        self.hub = DecisionHub("me", recorder=Recorder(self.journal, "me"))

    def decide(self, name: str, on: str | None, basis: Basis | None = None) -> None:
        evidence = None if basis is None else RecordedInput(f'{{"name":"{name}"}}'.encode(), basis)
        decision = None if on is None else Decision({"place": on})
        outcome = Outcome("u", decision, evidence=evidence)
        source = Source("clusters", "fleet/c2", 3)
        self.hub.publish(_target(name).gvr, _target(name).key, outcome, "data", "p1", source=source)

    def rows(self, name: str = "web") -> list[Row]:
        if not self.path.is_file():
            return []
        assert verified(self.path).faults == []
        with reading(self.path) as ledger:
            return [row for row in ledger.history(limit=1 << 30) if row.entry.name == name]

    def places(self, name: str = "web") -> list[str | None]:
        if not (rows := self.rows(name)):
            return []
        with reading(self.path) as ledger:
            texts = [ledger.text(row.entry.new) for row in rows]
        return [None if not t else msgspec.json.decode(t)["annotations"]["place"] for t in texts]

    def gaps(self) -> list[str]:
        with reading(self.path) as ledger:
            return [row.entry.note for row in ledger.history() if row.entry.kind == "gap"]


def _target(name: str) -> Target:
    return Target("apps", "v1", "replicasets", name, "shop")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


@contextmanager
def _held(path: Path) -> Iterator[None]:
    """Keep the ledger from being written: what comes is there ahead of it alone."""
    db = sqlite3.connect(path)
    db.execute("BEGIN IMMEDIATE")
    yield
    db.execute("ROLLBACK")
    db.close()


def _left_behind(world: World, folder: Path) -> World:
    """Return what is found by the process after one that was killed now."""
    _copy(world.path, folder)
    return World(folder / world.path.name)


def _copy(path: Path, folder: Path) -> None:
    folder.mkdir()
    for file in path.parent.glob("ledger.db*"):
        (folder / file.name).write_bytes(file.read_bytes())


async def _begun(world: World) -> None:
    """Have one decision in the ledger, so that what comes next is written ahead of it."""
    world.decide("web", "c1")
    assert await world.journal.recorded()
    await until(lambda: world.places() == ["c1"])


async def test_what_is_told_while_the_ledger_is_slow_is_recorded_by_the_next_process(
    path: Path, tmp_path: Path
) -> None:
    world = World(path)
    async with running(world.journal.run()):
        await _begun(world)
        with _held(path):
            one, two = _basis("c2"), _basis("c3")
            for on, basis in (("c2", one), ("c3", two), ("c2", one)):
                world.decide("web", on, basis)
            world.decide("db", "c1", one)
            world.hub.delete(_target("db"))
            assert await world.journal.recorded(), "it is ahead"
            after = _left_behind(world, tmp_path / "after")
        await until(lambda: world.rows("db") and world.rows("db")[-1].entry.kind == "gone")
    async with running(after.journal.run()):
        assert await after.journal.recorded()
        assert await after.journal.recorded()
    for one_ in (world, after):
        assert one_.places() == ["c1", "c2", "c3", "c2"]
        assert one_.gaps() == []
    for name in ("web", "db"):
        said = [[row.entry for row in found.rows(name)] for found in (world, after)]
        assert said[0] == said[1], "as if nobody had been killed"
    with reading(after.path) as ledger:
        entry = after.rows()[2].entry
        state = state_of(ledger.text(entry.data) or b"")
        parts = [ledger.text(part) or b"" for part in state.collections["clusters"]]
        assert ledger.text(entry.input) == b'{"name":"web"}'
    assert collection_of(parts) == two.collections["clusters"]


async def test_what_the_ledger_has_already_does_not_come_again(path: Path, tmp_path: Path) -> None:
    world = World(path)
    async with running(world.journal.run()):
        for on in ("c1", "c2", "c1", "c2"):
            world.decide("web", on)
            assert await world.journal.recorded()
        await until(lambda: len(world.places()) == 4)
        with _held(path):
            world.decide("web", "c1")
            assert await world.journal.recorded()
            after = _left_behind(world, tmp_path / "after")
    for again in (after, World(after.path)):
        async with running(again.journal.run()):
            await until(lambda found=again: len(found.places()) == 5)  # type: ignore[misc]
        assert again.places() == ["c1", "c2", "c1", "c2", "c1"]


async def test_what_others_have_written_since_is_not_undone_by_what_was_left(
    path: Path, tmp_path: Path
) -> None:
    world = World(path)
    async with running(world.journal.run()):
        await _begun(world)
        with _held(path):
            world.decide("web", "c2")
            world.decide("web", "c3")
            assert await world.journal.recorded()
            after = _left_behind(world, tmp_path / "after")
    store = Store(after.path)
    store.append([decided("c9")], 4e9)
    store.close()
    async with running(after.journal.run()):
        await until(after.gaps)
    (gap,) = after.gaps()
    assert '"entries":2' in gap
    assert "another one has written since" in gap
    with reading(after.path) as ledger:
        rows = ledger.history(WEB, limit=9)
    assert [row.entry.new for row in rows][-1] == decided("c9")[0].new


class _Refusing:
    """Stands for a file that takes nothing from some group on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.takes, self.tried, self._append = 1 << 30, 0, Store.append
        self.first: list[Callable[[], None]] = []  # what is done as it refuses for the first time

        def append(store: Store, *said: Any) -> Any:
            return self._appended(store, *said)

        monkeypatch.setattr(Store, "append", append)

    def _appended(self, store: Store, *said: Any) -> Any:
        self.tried += 1
        if self.takes == 0:
            while self.first:
                self.first.pop()()  # the file is open, and nobody writes to it
            msg = "disk is full"
            raise sqlite3.OperationalError(msg)
        self.takes -= 1
        return self._append(store, *said)


async def test_a_process_that_is_killed_while_it_begins_brings_nothing_twice(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing_ahead, "_LARGE", 1 << 20)  # it is not begun anew each time
    world, places = World(path), [f"c{1 + n % 3}" for n in range(600)]
    async with running(world.journal.run()):
        await _begun(world)
        for on in places[1:]:
            world.decide("web", on)
        assert await world.journal.recorded()
        await until(lambda: len(world.places()) == 600)
        second = _left_behind(world, tmp_path / "second")
    refusing = _Refusing(monkeypatch)
    refusing.takes = 1  # a group of 500 of those that the ledger has all
    refusing.first.append(lambda: _copy(second.path, tmp_path / "third"))
    async with running(second.journal.run()):
        await until(lambda: refusing.tried > 2)
        refusing.takes = 1 << 30
    third = World(tmp_path / "third" / path.name)
    async with running(third.journal.run()):
        third.decide("db", "c1")
        await until(lambda: third.places("db") == ["c1"])
    assert third.places() == places
    assert third.gaps() == []


async def test_what_others_overtook_is_not_believed_by_the_process_after_the_next_either(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(path)
    async with running(world.journal.run()):
        await _begun(world)
        with _held(path):
            for number in range(600):
                world.decide("web", f"c{number}")
            assert await world.journal.recorded()
            second = _left_behind(world, tmp_path / "second")
    store = Store(second.path)
    store.append([decided("c9")], 4e9)
    store.close()
    refusing = _Refusing(monkeypatch)
    refusing.takes = 1
    refusing.first.append(lambda: _copy(second.path, tmp_path / "third"))
    async with running(second.journal.run()):
        await until(lambda: refusing.tried > 2)
        refusing.takes = 1 << 30
    third = World(tmp_path / "third" / path.name)
    async with running(third.journal.run()):
        await until(third.gaps)
    (gap,) = third.gaps()
    assert '"entries":600' in gap
    with reading(third.path) as ledger:
        assert ledger.history(WEB)[-1].entry.new == decided("c9")[0].new


async def test_what_was_left_stands_on_its_data_also_where_the_file_takes_it_late(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(path)
    async with running(world.journal.run()):
        await _begun(world)
        with _held(path):
            for name, on in (("web", "c2"), ("db", "c2"), ("web", "c3")):
                world.decide(name, on, _basis(on))
            assert await world.journal.recorded()
            after = _left_behind(world, tmp_path / "after")
        await until(lambda: len(world.rows()) == 3)
    # What is tried again begins with a line whose data came before it, and ends with other data.
    monkeypatch.setattr(journal_module, "_GROUP", 3)
    refusing = _Refusing(monkeypatch)
    refusing.takes = 1
    async with running(after.journal.run()):
        await until(lambda: refusing.tried > 2)
        refusing.takes = 1 << 30
        await until(lambda: len(after.rows()) == 3)
    for name in ("web", "db"):
        said = [[row.entry.data for row in found.rows(name)] for found in (world, after)]
        assert said[0] == said[1]
    assert after.rows("db")[0].entry.data == after.rows()[1].entry.data != ""


async def test_what_cannot_be_written_ahead_is_waited_for(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing_ahead, "MOST_BYTES", 1_000)
    world = World(path)
    async with running(world.journal.run()):
        for number in range(200):
            world.decide("web", f"c{number}")
            assert await world.journal.recorded()
        await until(lambda: len(world.places()) == 200)
    assert world.places() == [f"c{n}" for n in range(200)]
    assert _size(path) < 2_000, "it is begun anew once the ledger has it"


def _size(path: Path) -> int:
    return path.with_name(f"{path.name}.ahead").stat().st_size


async def test_nobody_is_told_that_it_is_recorded_before_it_is_on_disk(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing_ahead, "MOST_BYTES", 1)  # there is no room after the first
    world = World(path)
    async with running(world.journal.run()):
        await _begun(world)
        with _held(path):
            world.decide("web", "c2")
            assert await world.journal.recorded(), "it is the first"
            world.decide("web", "c3")
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(world.journal.recorded(), 0.2)
        assert await world.journal.recorded()
        assert world.places() == ["c1", "c2", "c3"]


async def test_of_two_processes_one_writes_ahead(path: Path) -> None:
    one = World(path)
    other = World(path)
    async with running(one.journal.run()), running(other.journal.run()):
        one.decide("web", "c1")
        other.decide("db", "c1")
        assert await one.journal.recorded()
        assert await other.journal.recorded()
        assert other.places("db") == ["c1"], "it waited for the ledger"
        assert (one.journal.generation != 0, other.journal.generation) == (True, 0)


def _opened(path: Path) -> list[object]:
    found = Ahead(path)
    found.close()
    return [msgspec.msgpack.decode(item) for _, item in found.left]


def test_a_torn_end_is_no_part_of_it_and_nothing_comes_behind_it(path: Path) -> None:
    ahead = Ahead(path)
    for number in range(4):
        assert ahead.add([number, b"x" * 50]) == number + 1
    assert ahead.flush()
    first = path.stat().st_size
    assert [ahead.add([n, b"x" * 50]) for n in range(4, 6)] == [5, 6]
    assert ahead.flush()
    ahead.close()
    body = path.read_bytes()
    assert [item[0] for item in _opened(path)] == [*range(6)]  # type: ignore[index]
    for end in range(len(body)):
        path.write_bytes(body[:end])
        kept = [item[0] for item in _opened(path)]  # type: ignore[index]
        assert kept == ([] if end < first else [*range(4)])
    path.write_bytes(body[:-1])
    ahead = Ahead(path)
    generation = ahead.generation
    assert ahead.add(["late"]) == 0
    ahead.begin_anew()
    assert ahead.generation != generation
    assert ahead.add(["anew"]) == 1
    assert ahead.flush()
    ahead.close()
    assert _opened(path) == [["anew"]]


def test_any_byte_that_differs_ends_it(path: Path) -> None:
    ahead = Ahead(path)
    for number in range(3):
        ahead.add([number])
        assert ahead.flush()
    ahead.close()
    body, chance = path.read_bytes(), random.Random(3)  # noqa: S311 - a test
    for at in range(len(body)):
        torn = bytearray(body)
        torn[at] ^= 1 << chance.randrange(8)
        path.write_bytes(bytes(torn))
        kept = _opened(path)
        assert kept == [[0], [1], [2]][: len(kept)]
        assert len(kept) < 3


async def test_what_was_written_ahead_and_changed_by_hand_is_told_by_verify_and_by_a_gap(
    path: Path, tmp_path: Path
) -> None:
    """Else one bit is enough to have what a killed process told vanish in silence."""
    world = World(path)
    async with running(world.journal.run()):
        await _begun(world)
        with _held(path):
            for on in ("c2", "c3"):
                world.decide("web", on)
                assert await world.journal.recorded()
            _copy(path, tmp_path / "after")
    left = tmp_path / "after" / "ledger.db"
    said: list[str] = []

    def verify() -> bool:
        return check(str(left), Compared(()), said.append, said.append)

    assert verify()
    assert any("entries are written ahead of it and in no row yet" in line for line in said)
    ahead = left.with_name("ledger.db.ahead")
    body = ahead.read_bytes()
    ahead.write_bytes(body[:-1])
    assert verify(), "as a process that is killed leaves it"
    ahead.write_bytes(body[:-1] + bytes([body[-1] ^ 1]))
    assert not verify()
    assert said[-1] == f"{ahead}: it is not what was written ahead"
    after = World(left)
    async with running(after.journal.run()):
        assert await after.journal.recorded()
    assert after.places() == ["c1", "c2"]
    assert "what was written ahead is not what an earlier process wrote" in after.gaps()[0]


def test_a_full_disk_leaves_nothing_torn(path: Path) -> None:
    ahead = Ahead(path)
    ahead.add(["first"])
    assert ahead.flush()
    size, before = path.stat().st_size, resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 10, before[1]))
    try:
        assert ahead.add(["second" * 10])
        assert not ahead.flush()
        assert ahead.add(["third"]) == 0
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    assert path.stat().st_size == size
    assert not ahead.flush(), "until the ledger has all of it"
    ahead.begin_anew()
    assert ahead.add(["fourth"])
    assert ahead.flush()
    ahead.close()
    assert _opened(path) == [["fourth"]]


_DECIDING = """
import asyncio
import sys
from pathlib import Path

from tests.unit.ledger.test_write_ahead import World, _basis


async def decide() -> None:
    world, first = World(Path(sys.argv[1])), int(sys.argv[2])
    task = asyncio.create_task(world.journal.run())
    for number in range(first, 1_000_000):
        basis = _basis(f"c{number // 7}")
        for name in ("web", "db"):
            world.decide(name, f"c{number}", basis)
        assert await world.journal.recorded()
        print(number, flush=True)
        await asyncio.sleep(0.001)


asyncio.run(decide())
"""


def _killed(path: Path) -> int:
    """Kill six processes that decide, one after the other; return the last that was told."""
    chance, said = random.Random(5), -1  # noqa: S311 - a test
    for _ in range(6):
        with subprocess.Popen(
            [sys.executable, "-c", _DECIDING, str(path), str(said + 1)],
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout is not None
            for _ in range(chance.randrange(1, 200)):
                said = int(process.stdout.readline())
            process.send_signal(signal.SIGKILL)
            lines = process.stdout.read().splitlines()
            said = int(lines[-1]) if lines and lines[-1] else said
    return said


async def test_nothing_that_was_told_is_lost_or_told_twice_by_processes_that_are_killed(
    path: Path,
) -> None:
    said, world = await asyncio.to_thread(_killed, path), World(path)
    async with running(world.journal.run()):
        assert await world.journal.recorded()
    assert world.gaps() == []
    for name in ("web", "db"):
        places = world.places(name)
        # One more may have been written ahead than was told.
        numbers = [int(str(place)[1:]) for place in places]
        assert numbers == [*range(numbers[-1] + 1)]
        assert numbers[-1] - said in (0, 1)
        assert all(row.entry.input and row.entry.data for row in world.rows(name))
