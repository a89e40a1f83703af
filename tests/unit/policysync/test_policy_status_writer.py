from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from kube_sync.objects import ObjectKey
from kube_sync.policysync.copies import CopyKey, Report
from kube_sync.runtime.backoff import Backoff
from tests.fakes.copies import AUTH, policy
from tests.fakes.http import answer, failing
from tests.fakes.hubs import Rig, rig_of, with_status
from tests.memory import remembered
from tests.unit.policysync.test_hubstate import World

LOGIN, KEY = policy(), ObjectKey("shop", "login")
NOTE = "kuadrant.io/policies-synced"


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncGenerator[Rig]:
    async with rig_of(tmp_path, grace_seconds=0) as found:
        yield found


def ancestors(rig: Rig) -> dict[str, str]:
    found = rig.policy(LOGIN).get("status", {}).get("ancestors", ())
    return {c["type"]: c["status"] for one in found for c in one["conditions"]}


async def test_a_kind_that_tells_by_ancestors_is_told_and_read_so(rig: Rig) -> None:
    with_status(rig.world, "ancestors")
    await rig.settle()
    for cluster in ("east", "west"):
        report = Report("web", "Enforced", "True", "Enforced", "", None)
        rig.placer.say(CopyKey(LOGIN, cluster), report)
    await rig.later(1)
    assert ancestors(rig) == {"kube-sync.io/Synced": "True", "Enforced": "True"}
    source = rig.state.source(LOGIN)
    assert source is not None
    assert source.ancestors
    assert "enforcedStatus" not in {field.name for field in source.feedback}


async def test_a_kind_without_a_status_is_annotated_alone(rig: Rig) -> None:
    rig.world.define()
    await rig.settle()
    assert rig.listed(LOGIN) == ["east", "west"]
    assert "status" not in rig.policy(LOGIN)


async def test_a_policy_that_is_gone_when_it_is_told_is_no_failure(rig: Rig) -> None:
    rig.api.delete(AUTH, KEY)
    assert len(await rig.settle()) == 2
    assert await rig.later(1) == []
    assert remembered(rig.hub, Backoff) == []


async def test_a_status_that_could_not_be_written_is_written_later(rig: Rig) -> None:
    rig.api.http.fault(lambda r: r.path.endswith("/status"), failing(500, "no"), times=2)
    await rig.settle()
    await rig.settle()
    assert "kube-sync.io/Synced" in rig.said(LOGIN)


async def _unlist(rig: Rig) -> list[str]:
    rig.world.decide("d1", "east")
    await rig.settle()
    World.listen(rig.world)
    rig.state.forget(AUTH)
    return await rig.later(2)


async def test_what_may_not_be_cleaned_is_left_behind_and_its_copies_go(rig: Rig) -> None:
    rig.api.http.fault(lambda r: r.method == "GET" and r.path.endswith("/login"), failing(403, "-"))
    assert await _unlist(rig) == ["remove login east"]
    assert rig.listed(LOGIN) == ["east"]


@pytest.mark.parametrize("code", [403, 404])
async def test_a_refusal_amid_the_cleaning_keeps_no_copy(rig: Rig, code: int) -> None:
    rig.world.decide("d1", "east")
    await rig.settle()
    rig.api.http.fault(lambda r: r.method == "PATCH", failing(code, "no"))
    rig.world.listen()
    rig.state.forget(AUTH)
    assert await rig.later(2) == ["remove login east"]


async def test_what_answers_no_object_or_is_gone_needs_no_cleaning(rig: Rig) -> None:
    rig.api.http.fault(
        lambda r: r.method == "GET" and r.path.endswith("/login"), answer(200, b"[]")
    )
    assert await _unlist(rig) == ["remove login east"]


async def test_a_deleted_policy_of_a_kind_listed_no_more_needs_no_cleaning(rig: Rig) -> None:
    rig.world.decide("d1", "east")
    await rig.settle()
    rig.api.delete(AUTH, KEY)
    rig.world.listen()
    rig.state.forget(AUTH)
    assert await rig.later(2) == ["remove login east"]


async def test_a_server_that_fails_amid_the_cleaning_has_it_begun_again(rig: Rig) -> None:
    rig.api.http.fault(
        lambda r: r.method == "GET" and r.path.endswith("/login"), failing(500, "no"), times=1
    )
    await _unlist(rig)
    await rig.settle()
    assert rig.placer.there == {}
    assert NOTE not in rig.policy(LOGIN)["metadata"]["annotations"]


async def test_how_it_stands_is_told_although_annotations_are_refused(rig: Rig) -> None:
    rig.api.http.fault(
        lambda r: r.method == "PATCH" and r.path.endswith("/login"),
        failing(422, "too long"),
        times=99,
    )
    await rig.settle()
    assert "kube-sync.io/Synced" in rig.said(LOGIN)
    assert NOTE not in rig.policy(LOGIN)["metadata"].get("annotations", {})
    before = len(rig.writes)
    await rig.later(1)
    assert len(rig.writes) > before, "it is tried again"


async def test_what_does_not_fit_in_the_annotation_is_told_by_the_condition_and_once_in_the_log(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kube_sync.policysync.policy_status_writer._MOST_PLACED", 80)
    told = f"the annotation {NOTE} has room for 1 of 2 clusters"
    with capture_logs() as logs:
        await rig.settle()
        for cluster in ("east", "west"):
            rig.placer.say(CopyKey(LOGIN, cluster))
        await rig.later(5)
        assert await rig.later(5) == []
    assert rig.listed(LOGIN) == ["east"]
    assert rig.said(LOGIN)["kube-sync.io/Synced"][2] == f"synced to east, west; {told}"
    cuts = [one["cut"] for one in logs if one["event"] == "annotation_cut"]
    assert cuts == [(told,)]
