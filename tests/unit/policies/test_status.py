from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from kube_sync.kube.collection import Item
from kube_sync.kube.placementpolicies import (
    KIND,
    PLACEMENT_POLICIES,
    PlacementPolicy,
    read_policy,
)
from kube_sync.kube.policymaps import STATUS
from kube_sync.objects import ObjectKey
from kube_sync.opa.client import OpaError
from kube_sync.policies.status import OK, StatusWriter, status_of
from tests.fakes.apiserver import FakeApiServer, fake_apiserver, patches
from tests.fakes.clients import CONFIGMAPS, key, kube_of
from tests.fakes.http import answer, held
from tests.unit.async_tools import LoopTime, Waits, running, until


class Leadership:
    """Whether this process writes, and how often that was asked for."""

    def __init__(self) -> None:
        self.is_mine = True
        self.asked = 0

    @property
    def held(self) -> bool:
        self.asked += 1
        return self.is_mine


@dataclass
class Subject:
    key: ObjectKey
    version: str


class Bench:
    def __init__(
        self,
        api: FakeApiServer,
        writer: StatusWriter,
        waits: Waits,
        leadership: Leadership,
    ) -> None:
        self.api = api
        self.writer = writer
        self.waits = waits
        self.leadership = leadership

    def configmap(self, name: str) -> Subject:
        version = self.api.put(CONFIGMAPS, key(name))["metadata"]["resourceVersion"]
        return Subject(key(name), version)

    def status(self, name: str) -> str | None:
        annotations = self.api.get(CONFIGMAPS, key(name))["metadata"].get("annotations") or {}
        found: str | None = annotations.get(STATUS)
        return found

    def object(self, name: str) -> PlacementPolicy:
        self.api.put(PLACEMENT_POLICIES, key(name), spec={"modules": []})
        found = self.api.get(PLACEMENT_POLICIES, key(name))
        version = found["metadata"]["resourceVersion"]
        body = json.dumps(found).encode()
        return read_policy(Item(key(name), found["metadata"]["uid"], version, body))

    @property
    def patches(self) -> int:
        return sum(map(patches(CONFIGMAPS), self.api.http.requests))


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncGenerator[Bench]:
    async with fake_apiserver() as api, kube_of(api, tmp_path) as client:
        api.define(CONFIGMAPS, "ConfigMap")
        api.define(PLACEMENT_POLICIES, KIND, builtin=False)
        waits = Waits()
        leadership = Leadership()
        writer = StatusWriter(client, leadership, backoff=waits.backoff())
        bench = Bench(api, writer, waits, leadership)
        async with running(bench.writer.run()):
            yield bench


async def test_holder_writes_what_is_wanted(bench: Bench) -> None:
    await bench.writer.annotate(bench.configmap("p"), OK)
    await until(lambda: bench.status("p") == OK)
    assert bench.patches == 1


async def test_without_the_lease_nothing_is_written_until_it_is_held(bench: Bench) -> None:
    bench.leadership.is_mine = False
    subject = bench.configmap("p")
    bench.writer.want(subject, "old")
    bench.writer.want(subject, "new")
    bench.writer.want(bench.configmap("q"), OK)
    await until(lambda: bench.leadership.asked)
    assert bench.patches == 0
    bench.leadership.is_mine = True
    bench.writer.wake()
    await until(lambda: (bench.status("p"), bench.status("q")) == ("new", OK))
    assert bench.patches == 2


async def test_conditions_of_a_placementpolicy_are_written_beside_statuses(bench: Bench) -> None:
    active = [{"type": "Active", "status": "True"}]
    bench.leadership.is_mine = False
    bench.writer.want(bench.configmap("p"), OK)
    bench.writer.want_status(bench.object("p"), {})
    bench.writer.want_status(bench.object("p"), {"conditions": active})
    bench.leadership.is_mine = True
    bench.writer.wake()
    await until(lambda: "status" in bench.api.get(PLACEMENT_POLICIES, key("p")))
    assert bench.status("p") == OK
    found = bench.api.get(PLACEMENT_POLICIES, key("p"))
    assert found["status"] == {"conditions": active}
    assert [m["manager"] for m in found["metadata"]["managedFields"]] == ["kube-sync-replicator"]


async def test_conditions_that_waited_for_the_lease_are_not_written_over_newer_ones(
    bench: Bench,
) -> None:
    """A policy that the former holder called stalled would be ready for a moment."""
    bench.leadership.is_mine = False
    bench.writer.want_status(bench.object("p"), {"conditions": [{"type": "Ready"}]})
    bench.writer.want(bench.configmap("q"), OK)
    bench.api.put(PLACEMENT_POLICIES, key("p"), status={"conditions": [{"type": "Stalled"}]})
    bench.leadership.is_mine = True
    bench.writer.wake()
    await until(lambda: bench.status("q") == OK)
    found = bench.api.get(PLACEMENT_POLICIES, key("p"))
    assert found["status"] == {"conditions": [{"type": "Stalled"}]}


async def test_conditions_are_not_written_on_another_object_of_that_name(bench: Bench) -> None:
    former = bench.object("p")
    bench.api.delete(PLACEMENT_POLICIES, key("p"))
    bench.object("p")
    bench.writer.want_status(former, {"conditions": [{"type": "Active", "status": "True"}]})
    bench.writer.want(bench.configmap("q"), OK)
    await until(lambda: bench.status("q") == OK)
    assert "status" not in bench.api.get(PLACEMENT_POLICIES, key("p"))


@pytest.mark.parametrize("code", [404, 409])
async def test_configmap_that_changed_or_went_is_left_to_its_next_version(
    bench: Bench, code: int
) -> None:
    bench.api.http.fault(patches(CONFIGMAPS), answer(code))
    bench.writer.want(bench.configmap("p"), OK)
    bench.writer.want(bench.configmap("q"), OK)
    await until(lambda: bench.status("q") == OK)
    assert bench.patches == 2
    assert bench.waits.seconds == []


async def test_status_that_fails_again_and_again_keeps_no_other_from_being_written(
    bench: Bench,
) -> None:
    bench.api.http.fault(patches(PLACEMENT_POLICIES), answer(500, b"no"), times=99)
    bench.writer.want_status(bench.object("p"), {"conditions": []})
    bench.writer.want(bench.configmap("q"), OK)
    await until(lambda: bench.status("q") == OK)
    assert sum(map(patches(PLACEMENT_POLICIES), bench.api.http.requests)) < 10
    assert bench.waits.seconds


async def test_refused_status_is_told_and_delays_no_other(bench: Bench) -> None:
    bench.api.http.fault(patches(CONFIGMAPS), answer(403, b"no"))
    with capture_logs() as logs:
        bench.writer.want(bench.configmap("p"), OK)
        bench.writer.want(bench.configmap("q"), OK)
        await until(lambda: bench.status("q") == OK)
    assert [line["subject"] for line in logs if line["event"] == "status_not_written"] == [
        "ConfigMap default/p"
    ]


async def _refused_once(bench: Bench) -> None:
    bench.api.http.fault(patches(PLACEMENT_POLICIES), answer(403, b"no"))
    with capture_logs() as logs:
        bench.writer.want_status(bench.object("p"), {"conditions": []})
        await until(lambda: any(line["event"] == "status_not_written" for line in logs))


async def test_refused_status_is_written_once_it_is_allowed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing else would say that a role was mended, and whoever waits for a policy would hang."""
    time = LoopTime(monkeypatch)
    await _refused_once(bench)
    time.forward(60.0)
    await until(lambda: "status" in bench.api.get(PLACEMENT_POLICIES, key("p")))


async def test_refused_status_is_tried_again_however_often_others_are_written(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    time = LoopTime(monkeypatch)
    await _refused_once(bench)
    for name in ("q", "r"):
        time.forward(40.0)
        bench.writer.want(bench.configmap(name), OK)

        def is_written(name: str = name) -> bool:
            return bench.status(name) == OK

        await until(is_written)
    await until(lambda: "status" in bench.api.get(PLACEMENT_POLICIES, key("p")))


async def test_where_a_status_cannot_be_told_no_earlier_one_is_left_standing(bench: Bench) -> None:
    made = bench.api.put(
        CONFIGMAPS, key("p"), metadata={"annotations": {STATUS: OK, "mine": "x" * 100}}
    )
    bench.api.http.fault(patches(CONFIGMAPS), answer(422, b"Too long"))
    with capture_logs() as logs:
        bench.writer.want(Subject(key("p"), made["metadata"]["resourceVersion"]), "an error")
        await until(lambda: any(line["event"] == "status_not_written" for line in logs))
    assert bench.api.get(CONFIGMAPS, key("p"))["metadata"]["annotations"] == {"mine": "x" * 100}


async def test_unreachable_api_server_is_asked_again(bench: Bench) -> None:
    bench.api.http.fault(patches(CONFIGMAPS), answer(503), times=2)
    bench.writer.want(bench.configmap("p"), OK)
    await until(lambda: bench.status("p") == OK)
    assert bench.waits.seconds == [0.1, 0.2]


async def test_status_that_is_wanted_during_a_write_is_written_too(bench: Bench) -> None:
    gate = asyncio.Event()
    fault = bench.api.http.fault(patches(CONFIGMAPS), held(gate))
    subject = bench.configmap("p")
    bench.writer.want(subject, OK)
    await fault.met.wait()
    bench.writer.want(Subject(subject.key, str(int(subject.version) + 1)), "newer")
    gate.set()
    await until(lambda: bench.status("p") == "newer")


def test_status_of_no_failure_is_ok() -> None:
    assert status_of([]) == OK


def test_status_of_failures_names_every_cause() -> None:
    where = {"message": "bad", "location": {"file": "a/b/c"}}
    text = status_of([OpaError("invalid", "first", [where]), OpaError("x", "second")])
    assert json.loads(text) == {
        "status": "error",
        "error": {"code": "invalid", "message": "first", "errors": [where, {"message": "second"}]},
    }
