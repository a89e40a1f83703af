from __future__ import annotations

import json
from functools import partial

import pytest

from kube_sync.admission.decision_client import Admitted, Denied, Verdict, placement
from kube_sync.admission.fleet import compared
from kube_sync.admission.response import allow
from kube_sync.admission.review import Review
from kube_sync.admission.revisions import Revise, RevisedDecider
from kube_sync.decisions.decision import PLACEMENT, Decision
from kube_sync.decisions.decision_reader import DecisionReader
from kube_sync.errors import Undecided
from kube_sync.guard import Inventory, Placements
from kube_sync.guard.placements import SELECTOR
from tests.fakes.reviewing import Judge
from tests.fakes.reviews import create, resource, response, stored, update

PLACEMENTS = Placements()
FLEET = Inventory(frozenset(["c001", "c002"]), ({"region": "eu"}, {}))
NEAREST = "the fleet has no cluster 'c003' (nearest: c001, c002)"
US = json.dumps([{"key": "region", "operator": "in", "values": ["us"]}])


def preferences(*clusters: str) -> str:
    return json.dumps({"clusters": {name: {"weight": 1} for name in clusters}})


def on(*clusters: str, evict: bool = False) -> Decision:
    return Decision({PLACEMENT: preferences(*clusters)}, warnings=("policy's",), evict=evict)


def with_fleet(fleet: Inventory | None) -> Revise:
    return partial(compared, placements=PLACEMENTS, fleet=lambda: fleet)


async def ask(review: Review, decision: Decision, fleet: Inventory | None = FLEET) -> Decision:
    judge = RevisedDecider(Judge(Admitted(decision)), with_fleet(fleet))
    verdict = await judge.verdict(review, 1.0)
    assert isinstance(verdict, Admitted)
    return verdict.decision


NEW = create(resource(None))
OLD = {PLACEMENT: preferences("c001")}
UPDATED = update(resource(OLD), resource(OLD))


async def test_new_object_on_unknown_clusters_is_admitted_as_decided_with_a_warning() -> None:
    found = await ask(NEW, on("c003"))
    body = allow(NEW, found)
    annotations = stored(resource(None), body)["metadata"]["annotations"]
    assert annotations[PLACEMENT] == preferences("c003")
    assert response(body)["warnings"] == [
        f"the policy places this on no cluster: {NEAREST}",
        "policy's",
    ]


async def test_unknown_clusters_beside_known_ones_are_a_warning() -> None:
    for review in (NEW, UPDATED):
        found = await ask(review, on("c002", "c003"))
        assert found.annotations == on("c002", "c003").annotations
        first, _ = found.warnings
        assert first == f"the policy places this on clusters that do not exist: {NEAREST}"


async def test_update_onto_unknown_clusters_keeps_the_placement_with_a_warning() -> None:
    found = await ask(UPDATED, on("c003"))
    assert found.annotations == OLD
    assert found.warnings[0] == (
        f"the policy places this on no cluster, its placement is kept: {NEAREST}"
    )


async def test_update_that_would_place_first_on_unknown_clusters_places_nowhere() -> None:
    found = await ask(update(resource(None), resource(None)), on("c003"))
    assert found.annotations == {}


async def test_update_by_a_selector_that_matches_no_cluster_keeps_what_there_is() -> None:
    selects = Decision({SELECTOR: US, PLACEMENT: preferences("c002")})
    found = await ask(UPDATED, selects)
    assert found.annotations == {PLACEMENT: preferences("c002")}
    (warning,) = found.warnings
    assert warning.endswith("none of 2 clusters has the labels that are selected")


async def test_eviction_is_carried_out_with_a_warning() -> None:
    found = await ask(UPDATED, on("c003", evict=True))
    assert found.annotations == on("c003").annotations
    assert NEAREST in found.warnings[0]


@pytest.mark.parametrize(
    ("decision", "fleet"),
    [(on("c003"), None), (on("c002"), FLEET), (on("c001"), FLEET), (Decision(), FLEET)],
)
async def test_what_is_known_or_not_compared_or_stays_as_it_is_gets_no_warning(
    decision: Decision, fleet: Inventory | None
) -> None:
    assert await ask(UPDATED, decision, fleet) is decision


async def test_placement_that_an_object_has_already_is_not_warned_of_again() -> None:
    has = resource({PLACEMENT: preferences("c003")})
    decision = on("c003")
    assert await ask(update(has, has), decision) is decision


@pytest.mark.parametrize("verdict", [Denied(("no",)), Admitted(on("c003"), ruled=True)])
async def test_other_verdicts_pass(verdict: Verdict) -> None:
    judge = RevisedDecider(Judge(verdict), with_fleet(FLEET))
    assert await judge.verdict(UPDATED, 1.0) is verdict


def test_unreadable_placement_is_no_decision_for_the_webhook() -> None:
    answer = json.dumps({"annotations": {PLACEMENT: {"clustrs": {}}}}).encode()
    with pytest.raises(Undecided, match="found the key `clustrs` instead of `clusters`"):
        placement(answer, DecisionReader(PLACEMENTS.unreadable))
