from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Collection, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any, cast

import pytest

from kube_sync.errors import EpochLost, Retriable, first_of
from kube_sync.kube.collection import Event, Item, ResourceVersion
from kube_sync.objects import ObjectKey
from kube_sync.observability.readiness import Readiness
from kube_sync.opa.client import OpaClient
from kube_sync.replicator.bookkeeping import RootIndex
from kube_sync.replicator.mirror import Mirror
from kube_sync.replicator.writer import Writer
from tests.fakes.http import Delayed, Recorded, answer, hang, held, lose_answer
from tests.fakes.listing import Listing, listed
from tests.fakes.opa import FakeOpa, heartbeat, patched, puts, writes
from tests.unit.async_tools import PATIENCE, Waits, until

_NEVER = 3600.0
PROTOCOL = 3  # operations of a batch that are not about objects: the epoch, and two of the fence


def item(name: str, version: str = "1", namespace: str = "default") -> Item:
    body = json.dumps({"metadata": {"name": name}, "version": version}).encode()
    return Item(ObjectKey(namespace, name), f"uid-{name}", ResourceVersion(version), body)


def listing(*names: str) -> Listing:
    return Listing([item(name) for name in names], ResourceVersion("1"))


class Witnessed:
    """What a Writer says of its batches, with how many requests OPA had heard until then."""

    def __init__(self, opa: FakeOpa) -> None:
        self._opa = opa
        self.said: list[tuple[str, int]] = []

    def batch(self, changes: Mapping[str, Collection[ObjectKey]], number: int) -> None:
        said = [f"{name}/{key.name}" for name, keys in changes.items() for key in keys]
        self._say(f"{','.join(said)} {number}")

    @contextmanager
    def writing_whole(self, name: str) -> Generator[None]:
        self._say(f"{name} begins")
        yield
        self._say(f"{name} ends")

    def _say(self, what: str) -> None:
        self.said.append((what, len(self._opa.http.requests)))


class Bench:
    """A Writer with two Mirrors and an OPA."""

    def __init__(self, opa: FakeOpa, client: OpaClient, beat: float = _NEVER) -> None:
        self.opa = opa
        self.waits = Waits()
        self.readiness = Readiness()
        self.told: list[tuple[str, set[str]]] = []
        self.away: list[str | None] = []
        self.input_reader = Witnessed(opa)
        self.things = Mirror("things", ("kubernetes",), self.wake)
        self.others = Mirror("others", ("kubernetes",), self.wake)
        self.writer = Writer(
            client,
            "me",
            [self.things, self.others],
            self.readiness,
            self._written,
            RootIndex(client, "kubernetes", ["things", "others"]),
            backoff=self.waits.backoff(),
            heartbeat=beat,
            away=self.away.append,
            input_reader=cast("Any", self.input_reader),
        )
        self.task: asyncio.Task[Any] | None = None

    def wake(self) -> None:
        self.writer.wake()

    def _written(self, name: str, keys: Collection[ObjectKey]) -> None:
        self.told.append((name, {key.name for key in keys}))

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[asyncio.Task[Any]]:
        task = asyncio.create_task(self.writer.run())
        try:
            async with asyncio.timeout(PATIENCE):
                yield task
        finally:
            task.cancel()
            await asyncio.wait([task])

    @asynccontextmanager
    async def loaded(self, *names: str) -> AsyncGenerator[asyncio.Task[Any]]:
        listed(self.things, listing(*names))
        listed(self.others, listing())
        async with self.running() as task:
            await self.writer.loaded.wait()
            yield task

    def add(self, name: str, version: str = "2") -> None:
        found = item(name, version)
        self.things.apply(Event("ADDED", found.version, found))

    def delete(self, name: str) -> None:
        self.things.apply(Event("DELETED", ResourceVersion("9"), item(name)))

    async def until_written(self) -> None:
        await until(lambda: not self.things.pending)

    def steps(self) -> list[str]:
        return [f"{r.method} {r.path}" for r in self.opa.http.requests]


@pytest.fixture
def bench(opa: FakeOpa, client: OpaClient) -> Bench:
    return Bench(opa, client)


@pytest.fixture
def beating(opa: FakeOpa, client: OpaClient) -> Bench:
    """Like `bench`, with a heartbeat as often as the loop turns."""
    return Bench(opa, client, beat=0.001)


def read(recorded: Recorded) -> bool:
    return recorded.method == "GET"


async def lost(task: asyncio.Task[Any]) -> None:
    with pytest.raises(EpochLost):
        await task


async def test_load_is_framed_by_the_epoch(bench: Bench, opa: FakeOpa) -> None:
    async with bench.loaded("a", "b"):
        assert bench.steps() == [
            "PUT /v1/data/kube_sync/epoch",
            "PATCH /v1/data",
            "GET /v1/data/kube_sync/collections/kubernetes",
            "PUT /v1/data/kube_sync/collections/kubernetes",
            "PUT /v1/data/kubernetes/things",
            "PUT /v1/data/kubernetes/others",
            "PATCH /v1/data",
        ]
        assert opa.http.requests[0].json() == {"me": "loading"}
        assert opa.data["kube_sync"] == {
            "epoch": {"me": "loaded"},
            "fence": {"me": {"0": True}},
            "collections": {"kubernetes": {"things": True, "others": True}},
        }
        assert set(opa.data["kubernetes"]["things"]["default"]) == {"a", "b"}
        assert bench.told == [("things", {"a", "b"}), ("others", set())]
        assert bench.readiness.conditions["data"] == "ok"


async def test_load_leaves_data_of_others_alone(bench: Bench, opa: FakeOpa) -> None:
    opa.data = {"kubernetes": {"mine": 1}, "other": {"a": 1}, "kube_sync": {"notes": 1}}
    async with bench.loaded():
        assert opa.data["kubernetes"]["mine"] == 1
        assert opa.data["other"] == {"a": 1}
        assert opa.data["kube_sync"]["notes"] == 1


async def test_load_replaces_what_an_earlier_epoch_left(bench: Bench, opa: FakeOpa) -> None:
    opa.data = {"kubernetes": {"things": {"default": {"stale": {}}}}}
    opa.data["kube_sync"] = {"epoch": {"earlier": "loaded"}}
    async with bench.loaded("a"):
        assert set(opa.data["kubernetes"]["things"]["default"]) == {"a"}
        assert opa.data["kube_sync"]["epoch"] == {"me": "loaded"}


async def test_collection_that_is_not_listed_withholds_the_end_of_the_load(
    bench: Bench, opa: FakeOpa
) -> None:
    """A policy must never see half a fleet."""
    listed(bench.things, listing("a"))
    async with bench.running():
        await until(lambda: bench.things.loaded)
        assert not bench.writer.loaded.is_set()
        assert opa.data["kube_sync"]["epoch"] == {"me": "loading"}
        assert "data" in bench.readiness.reasons
        listed(bench.others, listing("b"))
        await bench.writer.loaded.wait()
        assert set(opa.data["kubernetes"]) == {"things", "others"}


async def test_opa_restarted_in_mid_load_loses_the_epoch(bench: Bench, opa: FakeOpa) -> None:
    """PUT creates its parents: a new OPA would take the rest of the load without a word."""
    listed(bench.things, listing("a"))
    async with bench.running() as task:
        await until(lambda: bench.things.loaded)
        opa.restart()
        listed(bench.others, listing())
        await lost(task)
    assert not bench.writer.loaded.is_set()


async def test_change_is_one_patch_that_begins_with_the_epoch(bench: Bench, opa: FakeOpa) -> None:
    async with bench.loaded("a"):
        request = asyncio.create_task(opa.http.until_next(patched))
        await asyncio.sleep(0)
        bench.add("b")
        operations = (await request).json()
        assert operations[0] == {"op": "replace", "path": "/kube_sync/epoch/me", "value": "loaded"}
        assert [(o["op"], o["path"]) for o in operations[1:]] == [
            ("remove", "/kube_sync/fence/me/0"),
            ("add", "/kube_sync/fence/me/1"),
            ("add", "/kubernetes/things/default/b"),
        ]
        await bench.until_written()
        assert set(opa.data["kubernetes"]["things"]["default"]) == {"a", "b"}
        assert bench.told[-1] == ("things", {"b"})


async def test_each_batch_is_told_with_its_number_before_it_is_sent(
    bench: Bench, opa: FakeOpa
) -> None:
    async with bench.loaded("a"):
        fence = opa.data["kube_sync"]["fence"]["me"]
        bench.add("b")
        await bench.until_written()
        assert [found for found, _ in bench.input_reader.said[-1:]] == [
            f"things/b {int(*fence) + 1}"
        ]
        assert bench.input_reader.said[-1][1] == len(opa.http.requests) - 1
        assert [*opa.data["kube_sync"]["fence"]["me"]] == [str(int(*fence) + 1)]


async def test_a_collection_that_is_written_whole_is_told_around_it(bench: Bench) -> None:
    async with bench.loaded("a"):
        bench.input_reader.said.clear()
        await bench.writer.drop(bench.others)
        await bench.writer.withdraw("others")
        (begun, before), (ended, after) = bench.input_reader.said
    assert (begun, ended) == ("others begins", "others ends")
    assert before < after


async def test_what_arrives_during_a_request_goes_out_as_one_patch(
    bench: Bench, opa: FakeOpa
) -> None:
    async with bench.loaded():
        gate = asyncio.Event()
        fault = opa.http.fault(patched, held(gate))
        bench.add("a")
        await fault.met.wait()
        seen = len(opa.http.requests)
        for version in range(3, 9):
            bench.add("b", str(version))
            bench.add("c", str(version))
        gate.set()
        await bench.until_written()
        (request,) = opa.http.requests[seen:]
        assert len(request.json()) == PROTOCOL + 2
        assert opa.data["kubernetes"]["things"]["default"]["b"]["version"] == "8"


async def test_many_changes_are_split_into_bounded_patches(bench: Bench, opa: FakeOpa) -> None:
    """OPA's PATCH is quadratic, and every reader waits for the writer."""
    async with bench.loaded():
        seen = len(opa.http.requests)
        names = [f"n{number}" for number in range(150)]
        listed(bench.things, listing(*names))
        listed(bench.others, listing(*names))
        await until(lambda: not bench.things.pending and not bench.others.pending)
        sizes = [len(request.json()) for request in opa.http.requests[seen:]]
        # A new namespace each.
        assert sizes == [PROTOCOL + 101, PROTOCOL + 101, PROTOCOL + 100]
        assert len(opa.data["kubernetes"]["others"]["default"]) == 150


async def test_a_writer_that_is_far_behind_sends_more_at_once(bench: Bench, opa: FakeOpa) -> None:
    async with bench.loaded():
        seen = len(opa.http.requests)
        listed(bench.things, listing(*(f"n{number}" for number in range(1250))))
        await until(lambda: not bench.things.pending)
        sizes = [len(request.json()) for request in opa.http.requests[seen:]]
        # A new namespace first.
        assert sizes == [PROTOCOL + 301, *[PROTOCOL + 100] * 9, PROTOCOL + 50]


async def test_removal_of_what_opa_never_held_sends_nothing(bench: Bench, opa: FakeOpa) -> None:
    async with bench.loaded("a"):
        seen = len(opa.http.requests)
        bench.delete("never")
        await bench.until_written()
        assert len(opa.http.requests) == seen


async def test_heartbeat_writes_nothing_but_the_epoch(beating: Bench, opa: FakeOpa) -> None:
    async with beating.loaded("a"):
        before = json.dumps(opa.data, sort_keys=True)
        request = await opa.http.until_next(patched)
        assert heartbeat(request)
        assert json.dumps(opa.data, sort_keys=True) == before
        assert not any(map(writes, opa.http.requests[6:]))


@pytest.mark.parametrize("how", ["restart", "wipe", "takeover", "replaced root"])
async def test_idle_opa_that_lost_the_epoch_is_noticed(
    beating: Bench, opa: FakeOpa, how: str
) -> None:
    async with beating.loaded("a") as task:
        match how:
            case "restart":
                opa.restart()
            case "wipe":
                opa.wipe()
            case "takeover":
                opa.put(("kube_sync", "epoch"), {"another": "loading"})
            case _:
                opa.put((), {"kubernetes": {}})
        await lost(task)


async def test_change_sent_to_a_restarted_opa_is_refused_whole(bench: Bench, opa: FakeOpa) -> None:
    async with bench.loaded("a") as task:
        opa.restart()
        bench.add("b")
        await lost(task)
    assert opa.data == {}


async def test_failure_is_tried_again_with_the_reason_on_the_readiness_page(
    bench: Bench, opa: FakeOpa
) -> None:
    reasons: list[str] = []
    waiting = bench.readiness.waiting

    def note(condition: str, reason: str) -> None:
        reasons.append(f"{condition}: {reason}")
        waiting(condition, reason)

    bench.readiness.waiting = note  # type: ignore[method-assign]
    async with bench.loaded("a"):
        opa.http.fault(patched, answer(503, b"busy", retry_after="9"))
        opa.http.fault(patched, answer(500, b"down"), times=2)
        bench.add("b")
        await bench.until_written()
    assert bench.waits.seconds == [9.0, 0.2, 0.4]
    assert any(reason.startswith("opa: ") and "503 busy" in reason for reason in reasons)
    assert bench.readiness.conditions["opa"] == "ok"
    assert set(opa.data["kubernetes"]["things"]["default"]) == {"a", "b"}


async def test_failure_around_the_load_is_tried_again(bench: Bench, opa: FakeOpa) -> None:
    opa.http.fault(puts("/v1/data/kube_sync/epoch"), answer(503))
    opa.http.fault(patched, answer(500))
    async with bench.loaded("a"):
        # Each success makes the next wait the first one again.
        assert bench.waits.seconds == [0.1, 0.1]
        assert set(opa.data["kubernetes"]["things"]["default"]) == {"a"}


async def test_failure_in_mid_load_loses_the_epoch_and_says_why(bench: Bench, opa: FakeOpa) -> None:
    """What was sent of the LIST is kept nowhere: only another LIST has it."""
    opa.http.fault(puts("/v1/data/kubernetes/things"), answer(500))
    listed(bench.things, listing("a"))
    listed(bench.others, listing())
    async with bench.running() as task:
        with pytest.raises(ExceptionGroup) as raised:
            await task
    assert isinstance(first_of(raised.value), EpochLost)
    assert "500" in bench.readiness.reasons["opa"]
    assert "OPA does not take what is written: " in str(bench.away[-1])


async def test_away_opa_is_told_until_it_is_back(bench: Bench, opa: FakeOpa) -> None:
    async with bench.loaded():
        opa.http.fault(patched, answer(503))
        bench.away.clear()
        bench.add("a")
        await bench.until_written()
        assert "503" in str(bench.away[0])
        assert bench.away[-1] is None


async def test_change_during_a_retry_is_not_lost(bench: Bench, opa: FakeOpa) -> None:
    async with bench.loaded():
        gate = asyncio.Event()

        def failing(recorded: Recorded) -> bool:
            if patched(recorded) and not gate.is_set():
                gate.set()
                bench.add("a", "newer")
                return True
            return False

        opa.http.fault(failing, answer(500))
        bench.add("a")
        await bench.until_written()
        assert opa.data["kubernetes"]["things"]["default"]["a"]["version"] == "newer"


@pytest.mark.parametrize("change", ["addition", "removal"])
async def test_batch_whose_answer_was_lost_is_found_written(
    bench: Bench, opa: FakeOpa, change: str
) -> None:
    """OPA has it, and refuses it a second time: the fence tells that from a lost epoch."""
    async with bench.loaded("a", "b"):
        seen = len(opa.http.requests)
        opa.http.fault(patched, lose_answer())
        bench.add("new") if change == "addition" else bench.delete("a")
        await bench.until_written()
        names = {"a", "b", "new"} if change == "addition" else {"b"}
        assert set(opa.data["kubernetes"]["things"]["default"]) == names
        assert bench.steps()[seen:] == [
            "PATCH /v1/data",
            "PATCH /v1/data",
            "GET /v1/data/kube_sync/fence/me",
        ]
        bench.add("next")
        await bench.until_written()
        assert "next" in opa.data["kubernetes"]["things"]["default"]


async def test_batch_that_opa_never_saw_is_sent_again(bench: Bench, opa: FakeOpa) -> None:
    async with bench.loaded("a"):
        opa.http.fault(patched, Delayed().handle)
        bench.delete("a")
        await bench.until_written()
        assert opa.data["kubernetes"]["things"] == {}
        assert not any(r.method == "GET" and "fence" in r.path for r in opa.http.requests)


async def test_batch_that_arrives_late_is_refused_whole(bench: Bench, opa: FakeOpa) -> None:
    """It was sent again meanwhile, and what it says is old."""
    async with bench.loaded("a"):
        delayed = Delayed()
        opa.http.fault(patched, delayed.handle)
        bench.add("a", "2")
        await bench.until_written()
        bench.add("a", "3")
        await bench.until_written()
        assert await delayed.arrive() == 404
        assert opa.data["kubernetes"]["things"]["default"]["a"]["version"] == "3"
        bench.add("a", "4")
        await bench.until_written()


async def test_late_batch_that_overtakes_its_retry_counts_as_written(
    bench: Bench, opa: FakeOpa
) -> None:
    async with bench.loaded("a"):
        delayed, gate = Delayed(), asyncio.Event()
        opa.http.fault(patched, delayed.handle)
        retry = opa.http.fault(patched, held(gate))
        bench.delete("a")
        await retry.met.wait()
        assert await delayed.arrive() == 204
        gate.set()
        await bench.until_written()
        assert opa.data["kubernetes"]["things"] == {}


async def test_fence_that_cannot_be_read_is_asked_again(bench: Bench, opa: FakeOpa) -> None:
    async with bench.loaded("a"):
        opa.http.fault(patched, lose_answer())
        opa.http.fault(read, answer(503))
        opa.http.fault(read, answer(200, b'{"result":[]}'))
        bench.delete("a")
        await bench.until_written()
        assert opa.data["kubernetes"]["things"] == {}


@pytest.mark.parametrize("how", ["the fence", "another's batch", "the collection"])
async def test_refused_batch_that_is_not_in_loses_the_epoch(
    bench: Bench, opa: FakeOpa, how: str
) -> None:
    async with bench.loaded("a") as task:
        match how:
            case "the fence":
                del opa.data["kube_sync"]["fence"]
            case "another's batch":
                opa.data["kube_sync"]["fence"]["me"] = {"7": True}
            case _:
                opa.data["kubernetes"] = {}
        bench.delete("a")
        await lost(task)


async def test_load_whose_end_was_lost_begins_to_count(bench: Bench, opa: FakeOpa) -> None:
    opa.http.fault(patched, lose_answer())
    async with bench.loaded("a"):
        bench.add("b")
        await bench.until_written()
        assert opa.data["kube_sync"]["fence"] == {"me": {"1": True}}


async def test_list_that_breaks_off_in_mid_load_is_sent_again_whole(
    bench: Bench, opa: FakeOpa
) -> None:
    """A 410 on a continue token: the epoch goes on, and OPA never sees the torn document."""
    await bench.things.page([item("torn")])
    listed(bench.others, listing())
    async with bench.running():
        await until(lambda: opa.data.get("kubernetes", {}).get("others") == {})
        bench.things.abandon()
        listed(bench.things, listing("a"))
        await bench.writer.loaded.wait()
    assert set(opa.data["kubernetes"]["things"]["default"]) == {"a"}
    assert bench.waits.seconds == []


def third(bench: Bench, *names: str) -> Mirror:
    mirror = Mirror("thirds", ("kubernetes",), bench.wake)
    listed(mirror, listing(*names))
    return mirror


async def test_collection_is_added_beside_the_others_and_followed(
    bench: Bench, opa: FakeOpa
) -> None:
    async with bench.loaded("a"):
        added = third(bench, "c")
        late = item("late")
        added.apply(Event("ADDED", late.version, late))
        before = len(opa.http.requests)
        await bench.writer.add(added)
        await until(lambda: not added.pending)
        assert set(opa.data["kubernetes"]["thirds"]["default"]) == {"c", "late"}
        assert opa.data["kube_sync"]["collections"]["kubernetes"]["thirds"] is True
        assert ("thirds", {"c"}) in bench.told
        assert bench.steps()[before : before + 2] == [
            "PATCH /v1/data",
            "PUT /v1/data/kubernetes/thirds",
        ]


async def test_collection_that_opa_refuses_is_not_added_and_loses_no_epoch(
    bench: Bench, opa: FakeOpa
) -> None:
    async with bench.loaded("a") as task:
        opa.http.fault(puts("/v1/data/kubernetes/thirds"), answer(503))
        refused = third(bench, "c")
        with pytest.raises(Retriable, match="503"):
            await bench.writer.add(refused)
        bench.add("b")
        await bench.until_written()
        assert "thirds" not in opa.data["kubernetes"]
        assert not task.done()
        await bench.writer.drop(refused)  # which it never held


async def test_adding_to_an_opa_that_was_wiped_writes_nothing_into_it(
    bench: Bench, opa: FakeOpa
) -> None:
    async with bench.loaded("a"):
        opa.restart()
        with pytest.raises(EpochLost):
            await bench.writer.add(third(bench, "c"))
        assert opa.data == {}


async def test_what_was_dropped_is_not_written_any_more(bench: Bench, opa: FakeOpa) -> None:
    async with bench.loaded("a"):
        bench.add("early")
        await bench.writer.drop(bench.things)
        bench.add("b")
        found = item("other")
        bench.others.apply(Event("ADDED", found.version, found))
        await until(lambda: not bench.others.pending)
        assert set(opa.data["kubernetes"]["things"]["default"]) == {"a"}
        assert bench.things.pending == 2


async def test_drop_waits_for_the_patch_that_is_under_way(bench: Bench, opa: FakeOpa) -> None:
    async with bench.loaded("a"):
        gate = asyncio.Event()
        fault = opa.http.fault(patched, held(gate))
        bench.add("b")
        await fault.met.wait()
        dropping = asyncio.create_task(bench.writer.drop(bench.things))
        for _ in range(20):
            await asyncio.sleep(0)
        assert not dropping.done()
        gate.set()
        await dropping
        assert set(opa.data["kubernetes"]["things"]["default"]) == {"a", "b"}


@pytest.mark.parametrize("there", [True, False])
async def test_withdrawn_collection_is_removed_whether_it_is_there_or_not(
    bench: Bench, opa: FakeOpa, *, there: bool
) -> None:
    async with bench.loaded("a"):
        await bench.writer.drop(bench.things)
        if not there:
            del opa.data["kubernetes"]["things"]
        await bench.writer.withdraw("things")
        assert set(opa.data["kubernetes"]) == {"others"}
        assert opa.data["kube_sync"]["collections"] == {"kubernetes": {"others": True}}


async def test_withdrawal_from_an_opa_that_was_wiped_writes_nothing_into_it(
    bench: Bench, opa: FakeOpa
) -> None:
    async with bench.loaded("a"):
        opa.restart()
        with pytest.raises(EpochLost):
            await bench.writer.withdraw("things")
        assert opa.data == {}


async def test_document_that_is_sent_whole_is_waited_for_when_it_is_not_wanted_any_more(
    bench: Bench, opa: FakeOpa
) -> None:
    """Else OPA may apply it after what comes next."""
    async with bench.loaded("a"):
        gate = asyncio.Event()
        fault = opa.http.fault(puts("/v1/data/kubernetes/thirds"), held(gate))
        adding = asyncio.create_task(bench.writer.add(third(bench, "c")))
        await fault.met.wait()
        adding.cancel()
        for _ in range(20):
            await asyncio.sleep(0)
        assert not adding.done()
        gate.set()
        with pytest.raises(asyncio.CancelledError):
            await adding
        assert "thirds" in opa.data["kubernetes"]


async def test_document_that_is_not_whole_is_given_up_when_it_is_not_wanted_any_more(
    bench: Bench, opa: FakeOpa
) -> None:
    async with bench.loaded("a"):
        mirror = Mirror("thirds", ("kubernetes",), bench.wake)
        await mirror.page([item("c")])
        adding = asyncio.create_task(bench.writer.add(mirror))
        await mirror.first_load()
        await until(lambda: b"thirds" in opa.http.requests[-1].body)
        for _ in range(20):
            await asyncio.sleep(0)
        adding.cancel()
        with pytest.raises(asyncio.CancelledError):
            await adding
        assert "thirds" not in opa.data["kubernetes"]


async def test_opa_that_never_answers_is_waited_for_no_longer_than_a_moment(
    bench: Bench, opa: FakeOpa, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kube_sync.replicator.writer._SETTLE_SECONDS", 0.01)
    async with bench.loaded("a"):
        fault = opa.http.fault(puts("/v1/data/kubernetes/thirds"), hang())
        adding = asyncio.create_task(bench.writer.add(third(bench, "c")))
        await fault.met.wait()
        adding.cancel()
        with pytest.raises(asyncio.CancelledError):
            await adding


async def test_epoch_stands_once_opa_was_asked_for_it(bench: Bench, opa: FakeOpa) -> None:
    """Without waiting for the heartbeat, which never comes here."""
    async with bench.loaded("a"):
        beats = sum(map(heartbeat, opa.http.requests))
        await bench.writer.verify_epoch()
        assert sum(map(heartbeat, opa.http.requests)) == beats + 1


async def test_epoch_of_a_restarted_opa_does_not_stand(bench: Bench, opa: FakeOpa) -> None:
    async with bench.loaded("a") as task:
        opa.restart()
        with pytest.raises(EpochLost):
            await bench.writer.verify_epoch()
        await lost(task)
        # Whoever asks later must not wait for an answer that nobody gives any more.
        with pytest.raises(EpochLost):
            await bench.writer.verify_epoch()
