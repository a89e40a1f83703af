from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, cast

import pytest
from prometheus_client import REGISTRY

from kube_sync.errors import EpochLost
from kube_sync.objects import ObjectKey
from kube_sync.opa.client import OpaClient
from kube_sync.replicator import audit as audit_of
from kube_sync.replicator.audit import AUDIT_MODULE, Audit, audit_module
from kube_sync.replicator.projection import keeping, keeps_version, project
from tests.fakes.http import Recorded, answer, hang
from tests.fakes.opa import FakeOpa


class Held:
    """What a collection says of itself."""

    def __init__(self, name: str, **versions: str) -> None:
        self.name = name
        self.loaded = True
        self.versions = {ObjectKey("default", key): version for key, version in versions.items()}

    @property
    def object_count(self) -> int:
        return len(self.versions)

    def keys(self) -> Iterator[ObjectKey]:
        return iter(self.versions)

    def holds(self, key: ObjectKey) -> str | None:
        return self.versions.get(key)


class Changing:
    """An OPA that answers with what it is given, after something else happened."""

    def __init__(self, answered: bytes | None, meanwhile: Any = None) -> None:
        self.answered = answered
        self.meanwhile = meanwhile

    async def query(self, _path: str, _body: bytes) -> bytes | None:
        if self.meanwhile:
            self.meanwhile()
        return self.answered


async def _check(audit: Audit, *held: Held) -> None:
    await audit.check(cast("Any", held))


def stored(**versions: str) -> dict[str, Any]:
    return {
        name: {"metadata": {"name": name, "resourceVersion": version}}
        for name, version in versions.items()
    }


@pytest.fixture
async def audit(opa: FakeOpa, client: OpaClient) -> Audit:
    opa.data = {"kubernetes": {"things": {"default": stored(a="1", b="2")}}}
    await client.put_policy(AUDIT_MODULE, audit_module("kubernetes"))
    return Audit(client, "kubernetes")


def _differences(name: str) -> float:
    labels = {"resource": name}
    return REGISTRY.get_sample_value("kube_sync_audit_differences_total", labels) or 0


def asked(opa: FakeOpa) -> list[list[str]]:
    return [item for r in opa.http.requests if asks(r) for item in r.json()["input"]["items"]]


def asks(recorded: Recorded) -> bool:
    return recorded.path == "/v1/data/kube_sync/audit/versions"


async def test_equal_opa_passes(audit: Audit) -> None:
    await _check(audit, Held("things", a="1", b="2"))


@pytest.mark.parametrize(
    "held", [Held("things", a="1", c="3"), Held("things", a="2"), Held("others", a="1")]
)
async def test_opa_that_holds_something_else_loses_the_epoch(audit: Audit, held: Held) -> None:
    before = _differences(held.name)
    with pytest.raises(EpochLost, match=held.name):
        await _check(audit, held)
    assert _differences(held.name) == before + 1


async def test_object_without_a_version_is_only_asked_to_be_there(
    audit: Audit, opa: FakeOpa
) -> None:
    """The fields that the configuration names need not hold a resourceVersion."""
    del opa.data["kubernetes"]["things"]["default"]["a"]["metadata"]["resourceVersion"]
    await _check(audit, Held("things", a="", b="2"))
    with pytest.raises(EpochLost):
        await _check(audit, Held("things", c=""))


@pytest.mark.parametrize(
    ("paths", "keeps"),
    [
        ([("spec",)], False),
        ([("metadata",)], True),
        ([("metadata", "resourceVersion")], True),
        ([("metadata", "labels")], False),
    ],
)
def test_projection_is_asked_whether_it_keeps_the_version(
    paths: list[tuple[str, ...]],
    keeps: bool,  # noqa: FBT001 - a case of the test
) -> None:
    assert keeps_version(project)
    assert keeps_version(keeping(paths)) is keeps


async def test_empty_collection_is_asked_to_be_there(audit: Audit, opa: FakeOpa) -> None:
    with pytest.raises(EpochLost):
        await _check(audit, Held("others"))
    opa.data["kubernetes"]["others"] = {}
    await _check(audit, Held("others"))


async def test_collection_that_is_not_loaded_is_not_asked_after(audit: Audit) -> None:
    held = Held("others", a="1")
    held.loaded = False
    await _check(audit, held)


async def test_every_key_has_its_turn(
    audit: Audit, opa: FakeOpa, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_of, "_KEYS", 4)
    opa.data["kubernetes"] = {
        "things": {"default": stored(**{f"t{n}": "1" for n in range(5)})},
        "others": {"default": stored(o="1")},
    }
    things, others = Held("things", **{f"t{n}": "1" for n in range(5)}), Held("others", o="1")
    for _ in range(3):
        await _check(audit, things, others)
    names = [item[2] for item in asked(opa)]
    assert names == ["t0", "t1", "o", "t2", "t3", "o", "t4", "o"]


async def test_key_that_went_since_the_round_began_is_not_asked_after(
    audit: Audit, opa: FakeOpa, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_of, "_KEYS", 1)
    held = Held("things", a="1", b="2")
    await _check(audit, held)
    del held.versions[ObjectKey("default", "b")]
    await _check(audit, held)
    assert asked(opa) == [["things", "default", "a"]]


async def test_change_while_the_question_is_out_accuses_nobody() -> None:
    held = Held("things", a="1")
    changed = Changing(b'{"0":"2"}', lambda: held.versions.update({ObjectKey("default", "a"): "2"}))
    await _check(Audit(changed, "kubernetes"), held)
    withdrawn = Changing(b"{}", lambda: setattr(held, "loaded", False))
    await _check(Audit(withdrawn, "kubernetes"), held)


async def test_opa_without_the_module_says_nothing(audit: Audit, opa: FakeOpa) -> None:
    opa.restart()
    await _check(audit, Held("things", a="1"))


async def test_module_for_another_root_says_nothing(client: OpaClient, opa: FakeOpa) -> None:
    """It may be left from before the configuration changed."""
    await client.put_policy(AUDIT_MODULE, audit_module("elsewhere"))
    await _check(Audit(client, "kubernetes"), Held("things", a="1"))
    assert len(asked(opa)) == 1


@pytest.mark.parametrize("fault", [answer(503), answer(200, b"[]"), hang()])
async def test_answer_that_does_not_come_accuses_nobody(
    audit: Audit, opa: FakeOpa, monkeypatch: pytest.MonkeyPatch, fault: Any
) -> None:
    monkeypatch.setattr(audit_of, "_SECONDS", 0.01)
    opa.http.fault(asks, fault)
    await _check(audit, Held("things", c="3"))


async def test_answer_that_is_no_table_accuses_nobody() -> None:
    await _check(Audit(Changing(b"[1]"), "kubernetes"), Held("things", a="1"))


async def test_cancelled_audit_ends(audit: Audit, opa: FakeOpa) -> None:
    fault = opa.http.fault(asks, hang())
    task = asyncio.create_task(_check(audit, Held("things", a="1")))
    await fault.met.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
