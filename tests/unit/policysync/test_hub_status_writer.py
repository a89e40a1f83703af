from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_sync.guard import Withheld
from kube_sync.kube.conditions import Condition
from kube_sync.objects import ObjectKey
from kube_sync.policysync.copies import MANAGER
from kube_sync.policysync.hub_status_writer import (
    CONTROLLER,
    conditions,
    entries,
    owned,
    removals_held,
)
from kube_sync.topology.raw_json import Malformed

WEB, API = ObjectKey("shop", "web"), ObjectKey("shop", "api")
SYNCED = Condition("kube-sync.io/Synced", "True", "Synced", "synced to east")
NOW, LATER = "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z"


def body(**status: Any) -> dict[str, Any]:
    return {"metadata": {"name": "p", "generation": 3}, "status": status}


def theirs(name: str = "web", controller: str = "example.com/other") -> dict[str, Any]:
    ref = {"namespace": "shop", "name": name}
    return {"ancestorRef": ref, "controllerName": controller, "conditions": []}


def managed(manager: str, *keys: str) -> dict[str, Any]:
    conditions = dict.fromkeys(keys, 1)
    return {"manager": manager, "fieldsV1": {"f:status": {"f:conditions": conditions}}}


def test_conditions_are_written_once() -> None:
    made = conditions(body(), [SYNCED], NOW)
    assert made == [{**SYNCED._asdict(), "observedGeneration": 3, "lastTransitionTime": NOW}]
    assert conditions(body(conditions=made), [SYNCED], LATER) is None


def test_conditions_of_ours_that_hold_no_more_are_taken_away() -> None:
    made = conditions(body(), [SYNCED], NOW)
    assert conditions(body(conditions=made), [], NOW) == []
    assert conditions(body(conditions=[{"type": "Accepted", "status": "True"}]), [], NOW) is None


def test_what_managed_fields_say_is_ours_is_ours() -> None:
    ours = managed(MANAGER, 'k:{"type":"Enforced"}', "k:{", ".")
    found = body(conditions=[{"type": "Enforced", "status": "True"}, {"type": "Accepted"}])
    others = managed("other", 'k:{"type":"Accepted"}')
    found["metadata"]["managedFields"] = [ours, others]
    assert owned(found) == {"Enforced"}
    assert conditions(found, [], NOW) == []


def test_entries_of_ancestors_stand_beside_those_of_others() -> None:
    made = entries(body(ancestors=[theirs()]), [WEB, API], [SYNCED], NOW)
    assert made is not None
    assert made[0] == theirs()
    assert [one["ancestorRef"]["name"] for one in made[1:]] == ["api", "web"]
    assert {one["controllerName"] for one in made[1:]} == {CONTROLLER}
    assert entries(body(ancestors=made), [WEB, API], [SYNCED], LATER) is None
    fewer = entries(body(ancestors=made), [WEB], [SYNCED], LATER)
    assert fewer == [made[0], made[2]]
    assert entries(body(ancestors=made), [], [], LATER) == [theirs()]
    assert entries(body(), [], [], NOW) is None
    assert len(entries(body(ancestors="?"), [WEB], [SYNCED], NOW) or ()) == 1


def test_what_nobody_can_read_among_ancestors_stays() -> None:
    odd = [1, {"controllerName": CONTROLLER, "ancestorRef": {"name": 5}}]
    made = entries(body(ancestors=odd), [WEB], [SYNCED], NOW)
    assert made is not None
    assert made[0] == 1
    assert len(made) == 2  # what is said to be ours and means nothing goes


@given(st.integers(0, 20), st.integers(0, 20))
def test_there_are_never_more_than_sixteen(others: int, ours: int) -> None:
    found = [theirs(f"t{n}") for n in range(min(others, 16))]
    gateways = [ObjectKey("shop", f"g{n}") for n in range(ours)]
    made = entries(body(ancestors=found), gateways, [SYNCED], NOW)
    assert made is None or len(made) <= 16
    if made is not None:
        assert [one for one in made if one["controllerName"] != CONTROLLER] == found
        assert entries(body(ancestors=made), gateways, [SYNCED], LATER) is None


def test_entries_that_fit_tell_of_gateways_that_are_left_out() -> None:
    gateways = [ObjectKey("shop", f"g{n:02}") for n in range(17)]
    made = entries(body(), gateways, [SYNCED], NOW) or []
    truncated = [one["message"] for entry in made for one in entry["conditions"][1:]]
    assert truncated == ["1 of 17 are left out since no more fit: [shop/g16]"] * 16


def test_what_was_observed_of_a_newer_generation_stays() -> None:
    made = entries({"metadata": {"generation": 4}}, [WEB], [SYNCED], NOW)
    assert entries(body(ancestors=made), [WEB], [SYNCED._replace(status="False")], LATER) is None


def test_held_removals_are_told_with_what_releases_them_but_not_those_of_a_moment() -> None:
    mass = Withheld("mass", "9 of 9 copies would be removed", "approve moves-1")
    unseen = Withheld("unseen", "not yet weighed", "the next look", 5.0)
    (said,) = removals_held({"east": mass, "west": mass, "north": unseen})
    assert said.message == (
        "east, west: 9 of 9 copies would be removed (released by: approve moves-1)"
    )
    assert said.status == "True"
    assert removals_held({"north": unseen}) == ()


def test_a_status_of_the_wrong_shape_is_malformed() -> None:
    with pytest.raises(Malformed):
        conditions(body(conditions=[1]), [SYNCED], NOW)
