from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from kube_sync.decisions.basis import Basis, DecisionBasis
from kube_sync.decisions.unwritten import UNWRITTEN_SECONDS
from kube_sync.opa.analysis.result import FieldRead, Reads
from tests.fakes.fleet import Fleet, Policy, reads
from tests.unit.async_tools import PATIENCE

BY_A = Policy(lambda body, cluster, _: f"{body.get('a')} in {cluster}", reads(("a",)))


def _place(body: dict[str, object], _cluster: object, _all: object) -> str:
    return str(body.get("a"))


ALONE = Policy(_place, reads(("a",), clusters=False))


def _revision(fleet: Fleet) -> int:
    return fleet.hub.basis.present.revision


def test_basis_says_what_the_decision_reads_of_its_input() -> None:
    found = Fleet(BY_A).hub.basis.present
    assert (found.instance, found.policy, found.paths) == ("me", "p", (("a",),))
    assert found.epoch == "e", "as OPA names it"
    assert found.current


def test_data_that_is_read_begins_a_revision_once_opa_has_it() -> None:
    fleet = Fleet(BY_A)
    before = _revision(fleet)
    fleet.change_cluster(1)
    assert _revision(fleet) == before + 1


def test_data_that_is_not_read_begins_none() -> None:
    fleet = Fleet(ALONE, n={"a": 1})
    before = _revision(fleet)
    fleet.change_cluster(1)
    fleet.put("n", a=2)
    fleet.write()
    assert _revision(fleet) == before


def test_answers_are_not_shared_while_policies_change() -> None:
    fleet = Fleet(BY_A)
    before = _revision(fleet)
    fleet.begin_policy(ALONE)
    changing = fleet.hub.basis.present
    fleet.end_policy()
    after = fleet.hub.basis.present
    assert (changing.paths, changing.reason) == (None, "policies are changing")
    assert before < changing.revision < after.revision
    assert after.paths == (("a",),)


def test_first_policies_are_awaited() -> None:
    found = DecisionBasis("me").present
    assert (found.paths, found.reason, found.current) == (None, "OPA is not loaded yet", False)


def test_change_that_opa_does_not_acknowledge_makes_the_basis_uncertain() -> None:
    twins = Policy(lambda *_: "x", reads(("a",), targets=True))
    fleet = Fleet(twins, n={"a": 1})
    fleet.put("n", a=2)
    fleet.tracker.wake()
    assert fleet.hub.basis.present.current
    fleet.clock += UNWRITTEN_SECONDS + 0.01
    assert not fleet.hub.basis.present.current
    fleet.write()
    assert fleet.hub.basis.present.current


@pytest.mark.parametrize("source", ["clusters", "clusters in shop"])
def test_stale_source_of_what_is_read_makes_the_basis_uncertain(source: str) -> None:
    fleet = Fleet(BY_A)
    fleet.hub.freshness.report("replicasets", "the watch ended")
    fleet.hub.freshness.report("OPA", "it is away")
    assert fleet.hub.basis.present.current
    fleet.hub.freshness.report(source, "the watch ended")
    assert not fleet.hub.basis.present.current
    fleet.hub.freshness.report(source, None)
    assert fleet.hub.basis.present.current


ELSEWHERE = FieldRead(("zones", None, "size"), whole=False, asked=())


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (reads(("a",), impure=["time.now_ns"]), "time.now_ns"),
        (reads(("a",), gave_up="m:3: too deep"), "too deep"),
        (reads(()), "the whole input"),
        (replace(reads(("a",)), foreign=(ELSEWHERE,)), "data.zones.*.size"),
    ],
)
def test_what_no_class_covers_is_not_shared_and_the_reason_is_given(
    found: Reads, reason: str
) -> None:
    basis = DecisionBasis("me")
    basis.share("p", found)
    assert basis.present.paths is None
    assert reason in basis.present.reason


async def test_basis_is_not_current_after_the_end_of_its_epoch() -> None:
    fleet = Fleet(BY_A)
    async with fleet.running():
        assert fleet.hub.basis.present.current
    found = fleet.hub.basis.present
    assert (found.current, found.paths) == (False, None)


async def test_waiting_ends_with_the_next_revision() -> None:
    fleet = Fleet(BY_A)
    known = fleet.hub.basis.present
    waiting = asyncio.ensure_future(fleet.hub.basis.after(known.instance, known.revision, PATIENCE))
    await fleet.settle()
    assert not waiting.done()
    fleet.change_cluster(1)
    assert (await waiting).revision == known.revision + 1


async def test_waiting_ends_after_its_time_with_what_is_known() -> None:
    basis = DecisionBasis("me")
    assert await basis.after("me", 0, 0.001) == Basis(
        "me", 0, reason="OPA is not loaded yet", current=False
    )


async def test_who_knows_another_instance_waits_for_nothing() -> None:
    fleet = Fleet(BY_A)
    found = await fleet.hub.basis.after("other", _revision(fleet), PATIENCE)
    assert found.instance == "me"
