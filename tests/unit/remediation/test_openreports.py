"""Reports on a fake API server: one for each namespace with trouble, written when it changes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from kube_sync.errors import Retriable
from kube_sync.kube.collection import KubeCollection
from kube_sync.kube.fencedwriter import FencedWriter
from kube_sync.kube.openreports import LEFT_OUT, NAME, REPORTS, ReportApi
from kube_sync.kube.reflector import Reflector
from kube_sync.kube.slices import MANAGED_BY, OURS, SELECTOR
from kube_sync.objects import GroupVersionResource, ObjectKey
from kube_sync.remediation.decision_cache import Key
from kube_sync.remediation.holds import Wait, Waiting
from kube_sync.remediation.openreports import ReportKeeper
from tests.fakes.apiserver import FakeApiServer, fake_apiserver, patches
from tests.fakes.clients import REPLICASETS, key, kube_of
from tests.fakes.http import answer
from tests.unit.async_tools import Waits, running, until

LABELS = {MANAGED_BY: OURS}


class Bed:
    """What is held, the API server with the reports, and the keeper between the two."""

    def __init__(self, api: FakeApiServer, reports: ReportApi) -> None:
        self.api, self.api_of_reports = api, reports
        self.active = self.settled = True
        self.left = 60.0
        self.away = False
        self.notes: list[str] = []
        self.waiting = Waiting(lambda _key: None, lambda: 1000.0)
        self.keeper = ReportKeeper(
            self,
            reports,
            FencedWriter(lambda: self.left),
            self.kind_of,
            self.notes.append,
            most=2,
            seconds=7.0,
        )

    async def kind_of(self, _gvr: GroupVersionResource) -> str:
        await asyncio.sleep(0)
        if self.away:
            reason = "no discovery"
            raise Retriable(reason)
        return "ReplicaSet"

    def hold(self, name: str, kind: str, namespace: str = "shop", **more: Any) -> Key:
        held = REPLICASETS, key(name, namespace)
        changes = {"a/b": (None, "x")}
        self.waiting.put(held, Wait("u", kind, f"{kind} it is", "released", changes, **more))
        return held

    def report(self, namespace: str = "shop") -> Any:
        return self.api.objects(REPORTS).get(ObjectKey(namespace, NAME))

    @property
    def writes(self) -> int:
        requests = self.api.http.requests
        return sum(map(patches(REPORTS), requests)) + sum(r.method == "DELETE" for r in requests)


@pytest.fixture
async def bed(tmp_path: Path) -> AsyncGenerator[Bed]:
    async with fake_apiserver() as api, kube_of(api, tmp_path) as client:
        api.define(REPORTS, "Report", builtin=False)
        bed = Bed(api, ReportApi(client))
        source = KubeCollection(client, REPORTS, label_selector=SELECTOR)
        store = bed.keeper.reports
        async with running(Reflector("reports", source, store, lambda _: None).run()):
            await until(lambda: store.served)
            yield bed


async def test_each_namespace_with_trouble_has_one_report(bed: Bed) -> None:
    bed.hold("a", "errors")
    bed.hold("b", "mass", approve="moves-1", until=2.0)
    bed.hold("c", "rival", "pay", until=2.0)
    await bed.keeper.compare()
    shop, pay = bed.report(), bed.report("pay")
    assert [(r["category"], r["rule"], r["result"]) for r in shop["results"]] == [
        ("refused", "errors", "fail"),
        ("held", "mass", "warn"),
    ]
    assert shop["results"][1]["message"] == "mass it is (released)"
    assert shop["results"][1]["properties"] == {"approve": "moves-1", "changes": "a/b"}
    assert pay["results"][0]["message"] == "rival it is", "a time makes each round a write"
    assert pay["results"][0]["timestamp"] == {"seconds": 1000, "nanos": 0}
    assert pay["metadata"]["labels"] == LABELS
    assert bed.notes[-1] == "ok"
    written = filter(patches(REPORTS), bed.api.http.requests)
    assert {request.query["fieldManager"] for request in written} == {"kube-sync-openreports"}


@pytest.mark.parametrize(
    ("kind", "category", "result"),
    [
        ("errors", "refused", "fail"),
        ("failed", "refused", "error"),
        ("undefined", "refused", "error"),
        ("refused", "refused", "error"),
        ("forbidden", "refused", "error"),
        ("dry-run", "drifted", "fail"),
        ("manual", "drifted", "fail"),
        ("rival", "drifted", "fail"),
        ("budget", "held", "warn"),
        ("unhealthy", "held", "warn"),
    ],
)
async def test_hold_has_a_category_and_a_result(
    bed: Bed, kind: str, category: str, result: str
) -> None:
    bed.hold("a", kind)
    await bed.keeper.compare()
    (found,) = bed.report()["results"]
    assert (found["category"], found["result"]) == (category, result)


async def test_what_is_over_in_a_moment_or_outside_of_namespaces_is_not_reported(bed: Bed) -> None:
    bed.hold("a", "unseen")
    bed.hold("b", "adding")
    bed.hold("c", "mass", "")
    await bed.keeper.compare()
    assert bed.writes == 0


async def test_nothing_is_written_when_nothing_has_changed(bed: Bed) -> None:
    held = bed.hold("a", "mass")
    await bed.keeper.compare()
    await bed.keeper.compare()
    bed.waiting.drop(held)
    bed.hold("a", "mass")  # found anew, by a process that knows no times
    await bed.keeper.compare()
    assert bed.writes == 1


async def test_report_of_which_nothing_is_left_is_removed(bed: Bed) -> None:
    held = bed.hold("a", "mass")
    await bed.keeper.compare()
    bed.waiting.drop(held)
    await bed.keeper.compare()
    assert bed.report() is None
    await bed.keeper.compare()
    assert bed.writes == 2


async def test_report_that_is_no_longer_cut_does_not_say_so(bed: Bed) -> None:
    held = [bed.hold(name, "mass") for name in "abc"]
    await bed.keeper.compare()
    assert bed.report()["metadata"]["annotations"] == {LEFT_OUT: "1"}
    bed.waiting.drop(held[0])
    await bed.keeper.compare()
    *_, request = filter(patches(REPORTS), bed.api.http.requests)
    assert "annotations" not in request.json()["metadata"]  # an apply gives up what it lacks


async def test_report_that_somebody_changed_is_put_right(bed: Bed) -> None:
    bed.hold("a", "mass")
    await bed.keeper.compare()
    lie = {**bed.report(), "results": []}
    bed.api.put(REPORTS, ObjectKey("shop", NAME), **lie)
    store = bed.keeper.reports
    await until(lambda: not store.objects[ObjectKey("shop", NAME)].content["results"])
    await bed.keeper.compare()
    assert len(bed.report()["results"]) == 1


async def test_process_that_may_not_write_sends_nothing(bed: Bed) -> None:
    bed.hold("a", "mass")
    bed.left = 0.0
    await bed.keeper.compare()
    assert bed.writes == 0


async def test_process_that_has_not_looked_at_all_removes_nothing(bed: Bed) -> None:
    """As one that has just taken over: it holds nothing yet."""
    held = bed.hold("a", "mass")
    await bed.keeper.compare()
    bed.waiting.drop(held)
    bed.left = 0.0
    await bed.keeper.compare()
    bed.left, bed.settled = 60.0, False
    await bed.keeper.compare()
    assert bed.report() is not None
    bed.active, bed.settled = False, True
    await bed.keeper.compare()
    assert bed.report() is not None
    bed.active = True
    await bed.keeper.compare()
    assert bed.report() is None


async def test_process_that_has_looked_at_all_goes_on_while_more_comes(bed: Bed) -> None:
    await bed.keeper.compare()
    bed.settled = False
    bed.hold("a", "mass")
    await bed.keeper.compare()
    assert bed.report() is not None


async def test_trouble_with_one_namespace_keeps_no_other_from_its_report(bed: Bed) -> None:
    fault = bed.api.http.fault(patches(REPORTS), answer(403, b"no"), 2)
    bed.hold("a", "mass", "bad")
    bed.hold("a", "mass")
    await bed.keeper.compare()
    assert fault.times == 0
    assert (bed.report("bad"), bed.report()) == (None, None)
    assert bed.notes[-1].startswith("bad: ")
    await bed.keeper.compare()
    assert bed.report("bad")["summary"]["warn"] == bed.report()["summary"]["warn"] == 1
    assert bed.notes[-1] == "ok"


async def test_trouble_ends_with_the_namespace(bed: Bed) -> None:
    """The API server refuses a report in a namespace that is being deleted."""
    bed.api.http.fault(patches(REPORTS), answer(403, b"it is being terminated"))
    held = bed.hold("a", "mass")
    await bed.keeper.compare()
    assert bed.notes[-1].startswith("shop: ")
    bed.waiting.drop(held)
    await bed.keeper.compare()
    assert bed.notes[-1] == "ok"


async def test_without_discovery_nothing_is_written_and_it_is_said(bed: Bed) -> None:
    bed.hold("a", "mass")
    bed.away = True
    await bed.keeper.compare()
    await bed.keeper.compare()
    assert (bed.writes, bed.notes[-1]) == (0, "no discovery")
    bed.away = False
    await bed.keeper.compare()
    assert (bed.writes, bed.notes[-1]) == (1, "ok")


async def test_kind_that_is_missing_is_said_once_and_waited_for(
    bed: Bed, capsys: pytest.CaptureFixture[str]
) -> None:
    store = bed.keeper.reports
    bed.hold("a", "mass")
    store.finish(known=False)
    store.finish(known=False)
    await bed.keeper.compare()
    assert bed.writes == 0
    assert capsys.readouterr().out.count("reports_not_served") == 1
    store.finish(known=True)
    await bed.keeper.compare()
    assert bed.writes == 1


async def test_rounds_are_as_far_apart_as_configured(bed: Bed) -> None:
    waits = Waits()
    keeper = ReportKeeper(
        bed,
        bed.api_of_reports,
        FencedWriter(lambda: 60.0),
        bed.kind_of,
        bed.notes.append,
        most=2,
        seconds=7.0,
        sleep=waits.sleep,
    )
    async with running(keeper.run()):
        await until(lambda: len(waits.seconds) > 2)
    assert set(waits.seconds) == {7.0}
