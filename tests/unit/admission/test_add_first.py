"""An update that does not ask for another placement takes no cluster away."""

from __future__ import annotations

import json
from functools import partial

import pytest

from kube_sync.admission.add_first import without_moves
from kube_sync.admission.decision_client import Admitted, Denied, Verdict
from kube_sync.admission.outcome import placed, still_placed
from kube_sync.admission.requested_values import as_remediated
from kube_sync.admission.review import Review
from kube_sync.admission.revisions import RevisedDecider
from kube_sync.config import Admission
from kube_sync.decisions.decision import PLACEMENT, REQUESTED, Decision
from kube_sync.decisions.requested import FIELD_MANAGER
from kube_sync.decisions.sealing import Seals
from kube_sync.guard import ADDITION, Placements
from tests.fakes.reviewing import Judge
from tests.fakes.reviews import Json, create, resource, response, stored, update

WITHOUT_MOVES = partial(without_moves, placements=Placements(), remediator="remediator")
HEALTH = {"health.kube-sync.io/c2": "healthy"}


def preferences(*clusters: str) -> str:
    return json.dumps({"clusters": {name: {"weight": 1} for name in clusters}})


def on(*clusters: str, evict: bool = False) -> Decision:
    return Decision({PLACEMENT: preferences(*clusters), "tier": "gold"}, evict=evict)


async def decided(review: Review, decision: Decision) -> Decision:
    judge = RevisedDecider(Judge(Admitted(decision)), WITHOUT_MOVES)
    verdict = await judge.verdict(review, 1.0)
    assert isinstance(verdict, Admitted)
    return verdict.decision


async def result(new: Json, old: Json, decision: Decision, manager: str = "kubectl") -> Json:
    """Return the annotations that are stored, as both webhooks admit them."""
    review = update(new, old, manager=manager)
    found = await decided(review, decision)
    after = stored(new, placed(review, Admitted(found), Admission(), Seals()).body)
    check = as_remediated(update(after, old, manager=manager))
    verdict = Admitted(await decided(update(after, old, manager=manager), decision))
    assert response(still_placed(check, verdict, Admission(), Seals()).body)["allowed"]
    return dict(after["metadata"]["annotations"])


BOTH = {PLACEMENT: preferences("c1", "c2"), ADDITION: "{}"}


async def test_a_report_of_health_leaves_the_step_of_a_move_as_it_is() -> None:
    found = await result(resource(BOTH | HEALTH), resource(BOTH), on("c2"))
    assert found.items() >= (BOTH | HEALTH | {"tier": "gold"}).items()


async def test_an_update_of_something_else_begins_no_move() -> None:
    old = {PLACEMENT: preferences("c1")}
    found = await result(resource(old | {"x": "1"}), resource(old), on("c2"))
    assert found[PLACEMENT] == preferences("c1")
    assert REQUESTED not in json.loads(found.get(REQUESTED, "{}"))


async def test_what_the_owner_asked_for_before_is_no_new_request() -> None:
    """As a client that applies its manifest again."""
    old = BOTH | {REQUESTED: json.dumps({PLACEMENT: preferences("c9")})}
    new = old | {PLACEMENT: preferences("c9")}
    found = await result(resource(new), resource(old), on("c2"))
    assert found[PLACEMENT] == BOTH[PLACEMENT]
    assert json.loads(found[REQUESTED])[PLACEMENT] == preferences("c9")


async def test_an_owner_who_asks_for_another_placement_gets_what_is_decided_at_once() -> None:
    new = BOTH | {PLACEMENT: preferences("c3")}
    found = await result(resource(new), resource(BOTH), on("c3"))
    assert found[PLACEMENT] == preferences("c3")


@pytest.mark.parametrize("sent", [("c1", "c2"), ("c2",), ("c1",)])
async def test_the_remediator_writes_each_step(sent: tuple[str, ...]) -> None:
    new = BOTH | {PLACEMENT: preferences(*sent)}
    found = await result(resource(new), resource(BOTH), on("c2"), FIELD_MANAGER)
    assert found[PLACEMENT] == preferences(*sent)


@pytest.mark.parametrize("sent", [("c1", "evil"), ("evil",), ()])
async def test_who_claims_to_be_the_remediator_gets_no_other_cluster(sent: tuple[str, ...]) -> None:
    new = BOTH | {PLACEMENT: preferences(*sent)}
    found = await result(resource(new), resource(BOTH), on("c2"), FIELD_MANAGER)
    assert found[PLACEMENT] == BOTH[PLACEMENT]


async def test_the_remediator_may_not_remove_a_placement() -> None:
    without = {key: value for key, value in BOTH.items() if key != PLACEMENT}
    found = await result(resource(without), resource(BOTH), on("c2"), FIELD_MANAGER)
    assert found[PLACEMENT] == BOTH[PLACEMENT]


@pytest.mark.parametrize(
    ("old", "decision"),
    [
        ({}, on("c2")),  # a first placement
        ({PLACEMENT: preferences("c1")}, on("c1", "c2")),  # an addition
        ({PLACEMENT: preferences("c1")}, on("c1")),
        ({PLACEMENT: preferences("c1")}, on("*")),
        ({PLACEMENT: preferences("c1")}, on(evict=True)),
        ({PLACEMENT: preferences("*")}, on("c2")),  # it has no names to unite
    ],
)
async def test_what_is_no_move_between_named_clusters_is_decided_as_ever(
    old: dict[str, str], decision: Decision
) -> None:
    review = update(resource(old | {"x": "1"}), resource(old))
    assert await decided(review, decision) == decision


async def test_a_create_is_decided_as_ever() -> None:
    assert await decided(create(resource(BOTH)), on("c2")) == on("c2")


@pytest.mark.parametrize("verdict", [Denied(("no",)), Admitted(on("c2"), ruled=True)])
async def test_other_verdicts_are_passed_on(verdict: Verdict) -> None:
    judge = RevisedDecider(Judge(verdict), WITHOUT_MOVES)
    assert await judge.verdict(update(resource(BOTH), resource(BOTH)), 1.0) is verdict
