from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

import pytest

from kube_sync.errors import EpochLost, Retriable
from kube_sync.kube.collection import Event, Item, ResourceVersion
from kube_sync.kube.configmaps import ConfigMap, ConfigMaps, read_configmap
from kube_sync.objects import ObjectKey
from kube_sync.observability.readiness import Readiness
from kube_sync.opa.client import OpaClient
from kube_sync.opa.paths import DataPath
from kube_sync.replicator.bookkeeping import RootIndex
from kube_sync.replicator.datamaps import NAME, DataMaps, LastGood
from kube_sync.replicator.writer import Writer
from tests.fakes.http import Recorded, answer, answered_late, lose_answer
from tests.fakes.listing import Listing, listed
from tests.fakes.opa import FakeOpa, patched, puts
from tests.memory import remembered
from tests.unit.async_tools import Waits, running, until

_NEVER = 3600.0


class Bench:
    """Data ConfigMaps of all namespaces, a Writer, and an OPA; `epoch` begins a new one."""

    def __init__(self, opa: FakeOpa, client: OpaClient) -> None:
        self.opa = opa
        self.client = client
        self.good = LastGood()
        self.versions = 0
        self.objects: dict[ObjectKey, Item] = {}
        self.statuses: dict[str, Any] = {}
        self.told: list[set[str]] = []
        self.waits = Waits()
        self.claims: list[DataPath] = []
        self.problems: dict[str, list[str]] | None = {}  # None: not known
        self.readiness = Readiness()
        self.epoch()

    def epoch(self) -> None:
        self.store = ConfigMaps("*", self.news, read_configmap)
        self.maps = DataMaps(
            self.client,
            [self.store],
            {"kubernetes", "system", "kube_sync"},
            self._want,
            self._written,
            good=self.good,
            claimed=self._claimed,
            problems=self._problems_of,
        )
        self.writer = Writer(
            self.client,
            "me",
            [],
            self.readiness,
            self._written,
            RootIndex(self.client, "kubernetes", []),
            documents=self.maps,
            backoff=self.waits.backoff(),
            heartbeat=_NEVER,
        )

    def _problems_of(self, key: ObjectKey) -> list[str] | None:
        return None if self.problems is None else self.problems.get(str(key), [])

    async def _claimed(self) -> Callable[[DataPath], bool]:
        return lambda place: place in self.claims

    def restart(self) -> None:
        """Be another process."""
        self.good = LastGood()
        self.epoch()

    def relist(self) -> None:
        listed(self.store, Listing([*self.objects.values()], ResourceVersion("1")))

    def news(self) -> None:
        self.maps.wake()
        self.writer.wake()

    def _want(self, found: ConfigMap, status: str) -> None:
        self.statuses[str(found.key)] = json.loads(status)

    def _written(self, name: str, keys: Collection[ObjectKey]) -> None:
        assert name == NAME
        self.told.append({str(key) for key in keys})

    def put(self, name: str, namespace: str = "shop", **data: str) -> None:
        self.versions += 1
        key, version = ObjectKey(namespace, name), ResourceVersion(str(self.versions))
        body = json.dumps({"metadata": {"name": name}, "data": data}).encode()
        self.objects[key] = Item(key, "uid", version, body)
        self.store.apply(Event("MODIFIED", version, self.objects[key]))

    def delete(self, name: str, namespace: str = "shop") -> None:
        found = self.objects.pop(ObjectKey(namespace, name))
        self.store.apply(Event("DELETED", found.version, found))

    async def settled(self) -> None:
        await until(lambda: self.writer.loaded.is_set() and not self.maps.pending)
        # What was pending is on its way now; the next change comes after it.
        await until(lambda: not self.opa.http.under_way)

    @property
    def requests(self) -> list[Recorded]:
        return self.opa.http.requests

    @property
    def held(self) -> Any:
        return self.opa.data.get("shop")

    @property
    def index(self) -> set[str]:
        return set(self.opa.data["kube_sync"]["datamaps"])


@pytest.fixture
def bench(opa: FakeOpa, client: OpaClient) -> Bench:
    return Bench(opa, client)


def marks_loaded(recorded: Recorded) -> bool:
    return patched(recorded) and recorded.json()[0]["value"] == "loaded"


async def test_each_key_is_a_value_below_namespace_and_name(bench: Bench) -> None:
    bench.put("limits", cpu='{"max": 4}', names='["a", 1.5, null]', **{"odd~1/%2F": "true"})
    bench.relist()
    async with running(bench.writer.run()):
        await bench.settled()
        value = {"cpu": {"max": 4}, "names": ["a", 1.5, None], "odd~1/%2F": True}
        assert bench.held == {"limits": value}
        assert bench.statuses == {"shop/limits": {"status": "ok"}}
        assert bench.index == {"shop/limits"}
        assert bench.told == [{"shop/limits"}]


async def test_all_is_written_before_the_epoch_counts_as_loaded(bench: Bench) -> None:
    """Data before policies."""
    bench.put("a", k="1")
    bench.put("b", k="2")
    async with running(bench.writer.run()):
        await bench.opa.http.until(lambda: any(map(puts("/v1/data/kube_sync"), bench.requests)))
        for _ in range(5):
            await bench.client.policies()
        assert bench.opa.data.keys() == {"kube_sync"}  # not listed yet
        bench.relist()
        await bench.settled()
    patches = [request for request in bench.requests if patched(request)]
    assert [marks_loaded(request) for request in patches] == [False, False, False, True]


async def test_dropped_key_goes_alone(bench: Bench) -> None:
    bench.put("limits", a="1", b="2")
    bench.relist()
    async with running(bench.writer.run()):
        await bench.settled()
        bench.put("limits", b="2")
        await until(lambda: bench.held == {"limits": {"b": 2}})


async def test_deleted_configmap_of_several_keys_goes_alone(bench: Bench) -> None:
    bench.opa.data = {"shop": {"theirs": 1}, "other": 2}
    bench.put("limits", a="1", b="2")
    bench.put("more", a="1")
    bench.relist()
    async with running(bench.writer.run()):
        await bench.settled()
        bench.delete("limits")
        await until(lambda: bench.held == {"theirs": 1, "more": {"a": 1}})
        assert bench.index == {"shop/more"}
        assert bench.opa.data["other"] == 2


async def test_unchanged_world_writes_nothing(bench: Bench) -> None:
    bench.put("limits", a="1")
    bench.relist()
    async with running(bench.writer.run()):
        await bench.settled()
        seen = len(bench.requests)
        bench.put("limits", a="1")  # as when its status was written
        bench.news()
        await bench.settled()
        assert bench.requests[seen:] == []


async def test_broken_value_keeps_the_last_good_one_and_says_which(bench: Bench) -> None:
    bench.put("limits", a="1", b="2")
    bench.relist()
    async with running(bench.writer.run()):
        await bench.settled()
        bench.put("limits", a="{not json", b="3")
        bench.put("other", a="4")
        await until(lambda: bench.held == {"limits": {"a": 1, "b": 3}, "other": {"a": 4}})
        status = bench.statuses["shop/limits"]
        assert (status["status"], status["error"]["code"]) == ("error", "invalid_json")
        assert status["error"]["message"].startswith("shop/limits/a: not JSON: ")
        (cause,) = status["error"]["errors"]
        assert cause["location"] == {"file": "shop/limits/a"}
        await until(lambda: bench.statuses.get("shop/other") == {"status": "ok"})
        bench.put("limits", a="5", b="3")
        await until(lambda: bench.statuses["shop/limits"] == {"status": "ok"})
        assert bench.held["limits"] == {"a": 5, "b": 3}


@pytest.mark.parametrize("text", ["", "x", "{", "NaN", "1 2", "[" * 5000 + "]" * 5000])
async def test_what_is_no_json_is_refused(bench: Bench, text: str) -> None:
    bench.put("limits", a=text)
    bench.relist()
    async with running(bench.writer.run()):
        await bench.settled()
        assert bench.held is None
        assert bench.statuses["shop/limits"]["error"]["code"] == "invalid_json"


async def test_last_good_value_survives_a_new_epoch_and_a_new_process(bench: Bench) -> None:
    bench.put("limits", a="1")
    bench.relist()
    async with running(bench.writer.run()):
        await bench.settled()
    bench.put("limits", a="{")
    bench.opa.restart()
    for begin in (bench.epoch, bench.restart):
        begin()
        bench.relist()
        async with running(bench.writer.run()):
            await bench.settled()
            assert bench.held == {"limits": {"a": 1}}
            assert bench.statuses["shop/limits"]["status"] == "error"


async def test_what_was_deleted_meanwhile_is_gone_after_a_restart(bench: Bench) -> None:
    bench.put("limits", a="1", b="2")
    bench.put("kept", a="1")
    bench.relist()
    async with running(bench.writer.run()):
        await bench.settled()
    del bench.objects[ObjectKey("shop", "limits")]
    bench.opa.data["shop"]["theirs"] = 1
    bench.restart()
    bench.relist()
    async with running(bench.writer.run()):
        await bench.settled()
        assert bench.held == {"kept": {"a": 1}, "theirs": 1}
        assert bench.index == {"shop/kept"}


async def test_deleted_configmap_that_never_was_in_opa_writes_nothing(bench: Bench) -> None:
    bench.put("limits", a="{")
    bench.relist()
    async with running(bench.writer.run()):
        await bench.settled()
        seen = len(bench.requests)
        bench.delete("limits")
        await bench.settled()
        gone = ObjectKey("shop", "limits")
        await until(lambda: gone not in remembered(bench.maps, ObjectKey))
        assert bench.requests[seen:] == []


async def test_index_of_what_is_not_there_does_no_harm(bench: Bench) -> None:
    """Somebody removed it by hand: a plain remove would fail, and the epoch with it, for ever."""
    bench.opa.data = {"kube_sync": {"datamaps": {"shop/gone": True, "odd": {}}}}
    bench.relist()
    async with running(bench.writer.run()):
        await bench.settled()
        assert bench.index == {"odd"}
        assert bench.held == {}


async def test_index_never_touches_what_is_reserved_by_now(bench: Bench) -> None:
    """The root of what is replicated may have been another one."""
    bench.opa.data = {
        "kube_sync": {"datamaps": {"kubernetes/clusters": True}},
        "kubernetes": {"clusters": {"a": 1}},
    }
    bench.relist()
    async with running(bench.writer.run()):
        await bench.settled()
        assert bench.opa.data["kubernetes"] == {"clusters": {"a": 1}}


async def test_index_that_cannot_be_read_holds_the_load(bench: Bench) -> None:
    bench.opa.data = {"kube_sync": {"datamaps": ["no"]}}
    bench.relist()
    async with running(bench.writer.run()):
        await until(lambda: "index" in bench.readiness.reasons.get("opa", ""))
        bench.opa.data["kube_sync"]["datamaps"] = {}
        await bench.settled()


@pytest.mark.parametrize("namespace", ["kubernetes", "system"])
async def test_reserved_namespace_is_refused_with_the_reason(bench: Bench, namespace: str) -> None:
    bench.put("clusters", namespace, a="1")
    bench.put("limits", a="1")
    bench.relist()
    async with running(bench.writer.run()):
        await bench.settled()
        assert namespace not in bench.opa.data
        status = bench.statuses[f"{namespace}/clusters"]
        assert status["error"]["message"].endswith(f"data.{namespace} is reserved")
        assert bench.held == {"limits": {"a": 1}}


async def test_what_opa_refuses_delays_no_other_and_says_why(bench: Bench) -> None:
    bench.opa.owned = [("shop", "bundled", "x")]
    bench.put("bundled", x="1")
    bench.put("limits", a="1")
    bench.relist()
    async with running(bench.writer.run()):
        await bench.settled()
        assert bench.held == {"limits": {"a": 1}}
        assert "owned by bundle" in bench.statuses["shop/bundled"]["error"]["message"]
        bench.opa.owned = []
        bench.put("bundled", x="2")
        await until(lambda: bench.statuses["shop/bundled"] == {"status": "ok"})


async def test_what_opa_refuses_is_told_since_a_place_was_made_for_it(bench: Bench) -> None:
    def refusal(recorded: Recorded) -> bool:
        return patched(recorded) and b'"/shop/limits"' in recorded.body

    bench.relist()
    async with running(bench.writer.run()):
        await bench.settled()
        error = b'{"code": "invalid_parameter", "message": "no"}'
        bench.opa.http.fault(refusal, answer(400, error, kind="application/json"))
        bench.put("limits", a="1")
        await until(lambda: bench.statuses)
        await bench.settled()
        assert bench.held == {"limits": {}}
    assert bench.told == [{"shop/limits"}]
    assert bench.maps.unsettled.pending == 0


@pytest.mark.parametrize("method", ["PUT", "PATCH"])
async def test_what_is_under_way_is_unsettled_until_it_is_told(bench: Bench, method: str) -> None:
    """OPA may decide on it before its answer is here."""
    bench.put("same", a="1")
    bench.put("limits", a="1")
    bench.relist()
    async with running(bench.writer.run()):
        await bench.settled()
        for change in (partial(bench.put, "limits", a="2"), partial(bench.delete, "limits")):
            bench.told.clear()
            answered = asyncio.Event()
            fault = bench.opa.http.fault(lambda r: r.method == method, answered_late(answered))
            change()
            await fault.met.wait()
            assert (bench.maps.unsettled.keys, bench.told) == ({ObjectKey("shop", "limits")}, [])
            answered.set()
            await until(lambda: bench.told)
            assert bench.maps.unsettled.pending == 0
            await bench.settled()


async def test_namespace_that_is_no_object_in_opa_is_told(bench: Bench) -> None:
    bench.opa.data = {"shop": 5}
    bench.put("limits", a="1")
    bench.relist()
    async with running(bench.writer.run()):
        await bench.settled()
        assert bench.statuses["shop/limits"]["error"]["code"] == "resource_conflict"
        assert bench.held == 5


async def test_removal_that_opa_refuses_is_given_up(bench: Bench) -> None:
    bench.put("limits", a="1")
    bench.relist()
    async with running(bench.writer.run()):
        await bench.settled()
        bench.opa.owned = [("shop",)]
        bench.delete("limits")
        bench.put("more", namespace="other", a="1")
        await until(lambda: bench.opa.data.get("other") == {"more": {"a": 1}})


async def test_configmap_that_lost_its_keys_is_removed(bench: Bench) -> None:
    bench.put("limits", a="1")
    bench.relist()
    async with running(bench.writer.run()):
        await bench.settled()
        bench.put("limits")
        await until(lambda: bench.held == {})
        assert bench.index == set()
        assert bench.told[-1] == {"shop/limits"}


@pytest.mark.parametrize("fault", [answer(503), lose_answer()])
@pytest.mark.parametrize("method", ["PUT", "PATCH"])
async def test_write_that_fails_is_tried_again(bench: Bench, method: str, fault: Any) -> None:
    bench.relist()
    async with running(bench.writer.run()):
        await bench.settled()
        bench.opa.http.fault(lambda r: r.method == method, fault)
        bench.put("limits", a="1")
        await until(lambda: bench.held == {"limits": {"a": 1}} and not bench.readiness.reasons)
        bench.opa.http.fault(lambda r: r.method == method, answer(503))
        bench.delete("limits")
        await until(lambda: bench.held == {} and not bench.readiness.reasons)


async def test_opa_that_was_wiped_is_noticed(bench: Bench) -> None:
    bench.put("limits", a="1")
    bench.relist()
    task = asyncio.create_task(bench.writer.run())
    await bench.settled()
    bench.opa.wipe()
    bench.put("limits", a="2")
    with pytest.raises(EpochLost):
        await task


async def test_load_that_failed_half_way_goes_on(bench: Bench) -> None:
    """What the first attempt wrote counts as an earlier epoch's."""
    bench.put("a", k="1")
    bench.put("b", k="2")
    bench.relist()
    sent: list[Sequence[bytes]] = []

    async def send(operations: Sequence[bytes]) -> None:
        sent.append(operations)
        if len(sent) == 2:
            msg = "later"
            raise Retriable(msg)
        bench.opa.patch([json.loads(operation) for operation in operations])

    with pytest.raises(Retriable):
        await bench.maps.load(send)
    await bench.maps.load(partial(send))
    assert bench.held == {"a": {"k": 1}, "b": {"k": 2}}


async def test_document_where_a_policy_is_to_come_waits_until_policies_are_in_force(
    bench: Bench,
) -> None:
    bench.claims = [("shop", "taken")]
    bench.put("taken", x="1")
    bench.put("limits", a="1")
    bench.relist()
    async with running(bench.writer.run()):
        await bench.settled()
        assert bench.held == {"limits": {"a": 1}}
        bench.put("limits", a="2")
        await until(lambda: bench.held == {"limits": {"a": 2}})
        assert "shop/taken" not in bench.statuses
        bench.maps.policies_loaded()
        bench.writer.wake()
        await until(lambda: bench.held == {"limits": {"a": 2}, "taken": {"x": 1}})
        await until(lambda: bench.statuses.get("shop/taken") == {"status": "ok"})


async def test_document_that_opa_holds_is_not_taken_away_for_a_policy_that_is_to_come(
    bench: Bench,
) -> None:
    bench.put("taken", x="1")
    bench.relist()
    async with running(bench.writer.run()):
        await bench.settled()
    bench.claims = [("shop", "taken")]
    bench.restart()
    bench.relist()
    async with running(bench.writer.run()):
        await bench.settled()
        assert bench.held == {"taken": {"x": 1}}


async def test_what_policies_say_against_a_document_is_in_the_status(bench: Bench) -> None:
    """The document is in OPA all the same: policies that see what is wrong refuse by it."""
    bench.put("limits", maxx="4")
    bench.relist()
    async with running(bench.writer.run()):
        await bench.settled()
        bench.problems = {"shop/limits": ["maxx is no parameter"]}
        bench.news()
        await until(lambda: bench.statuses["shop/limits"]["status"] == "error")
        error = bench.statuses["shop/limits"]["error"]
        assert (error["code"], error["message"]) == (
            "invalid_parameters",
            "shop/limits: maxx is no parameter",
        )
        assert bench.held == {"limits": {"maxx": 4}}
        bench.problems = {}
        bench.news()
        await until(lambda: bench.statuses["shop/limits"] == {"status": "ok"})


async def test_status_waits_until_it_is_known_what_policies_say(bench: Bench) -> None:
    bench.problems = None
    bench.put("limits", max="4")
    bench.put("broken", max="{")
    bench.relist()
    async with running(bench.writer.run()):
        await bench.settled()
        assert bench.statuses.keys() == {"shop/broken"}
        bench.problems = {}
        bench.news()
        await until(lambda: bench.statuses.get("shop/limits") == {"status": "ok"})


async def test_status_is_wanted_once_for_each_version(bench: Bench) -> None:
    bench.put("limits", max="4")
    bench.relist()
    async with running(bench.writer.run()):
        await bench.settled()
        bench.statuses.clear()
        bench.news()
        await bench.settled()
        assert bench.statuses == {}
