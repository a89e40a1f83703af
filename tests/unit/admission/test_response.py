from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_sync.admission.response import allow, deny, patch, trespass
from kube_sync.admission.review import Review, parse_review
from kube_sync.decisions.decision import PLACEMENT, REQUESTED, Decision
from tests.fakes.reviews import (
    body,
    create,
    operations,
    patched,
    resource,
    response,
    stored,
    update,
)

REMEDIATOR = "system:serviceaccount:kube-sync:kube-sync-remediator"


def _review(annotations: dict[str, str] | None) -> Review:
    return create(resource(annotations))


def _noted(**asked_for: str | None) -> dict[str, str]:
    return {REQUESTED: json.dumps(asked_for, separators=(",", ":"), sort_keys=True)}


def test_nothing_to_change_is_admitted_without_a_patch() -> None:
    found = response(allow(_review({"a": "1"}), Decision({"a": "1"})))
    assert found == {"uid": "r1", "allowed": True}


def test_a_missing_map_is_created_whole() -> None:
    found = response(allow(_review(None), Decision({"a/b": "1", "c": "2"})))
    assert operations(found) == [
        {
            "op": "add",
            "path": "/metadata/annotations",
            "value": {"a/b": "1", "c": "2", REQUESTED: '{"a/b":null,"c":null}'},
        }
    ]


@pytest.mark.parametrize("length", [1, 1 << 17])  # as remembered, and as too large for that
def test_reviews_that_get_the_same_patch_get_their_own_uid(length: int) -> None:
    new, decision = resource({"a": "x" * length}), Decision({"a": "1"})
    for uid in ("r1", "r2"):
        found = json.loads(allow(parse_review(body(new, uid=uid)), decision))["response"]
        assert found["uid"] == uid
        whole = patched(new, operations(found))["metadata"]["annotations"]
        assert whole == {"a": "1"} | _noted(a="x" * length)


def test_same_values_create_the_map_only_where_there_is_none() -> None:
    decision = Decision({"a": "1"}, labels={"b": "2"})
    paths = [
        [operation["path"] for operation in operations(response(allow(review, decision)))]
        for review in (_review(None), _review({}), _review(None))
    ]
    note = f"/metadata/annotations/{REQUESTED.replace('/', '~1')}"
    created = ["/metadata/annotations", "/metadata/labels"]
    assert paths == [created, ["/metadata/annotations/a", note, "/metadata/labels"], created]


def test_only_keys_that_differ_are_touched() -> None:
    review = _review({"same": "1", "old": "x", "own": "y"})
    found = response(allow(review, Decision({"same": "1", "old": "2"})))
    assert operations(found) == [
        {
            "op": "add",
            "path": "/metadata/annotations/kube-sync.io~1requested",
            "value": '{"old":"x"}',
        },
        {"op": "add", "path": "/metadata/annotations/old", "value": "2"},
    ]


def test_slashes_and_tildes_in_keys_are_escaped() -> None:
    path = "/metadata/annotations/team.io~1a~0b~01"
    assert patch({}, {"team.io/a~b~1": "v"}) == [{"op": "add", "path": path, "value": "v"}]
    assert patch({"team.io/a~b~1": "v"}, {"team.io/a~b~1": None}) == [
        {"op": "remove", "path": path}
    ]


@pytest.mark.parametrize("current", [None, {}, {"other": "1"}])
def test_what_is_not_there_is_not_removed(current: dict[str, str] | None) -> None:
    """A JSON Patch fails whole where one of its operations does."""
    assert patch(current, {"a": None}) == []


@pytest.mark.parametrize(
    ("existing", "decided", "merged"),
    [
        ({"foo": "bar", "bar": "baz"}, {"foo": "bar-2"}, {"foo": "bar-2", "bar": "baz"}),
        (None, {"foo": "bar"}, {"foo": "bar"}),
        ({}, {"foo": "bar"}, {"foo": "bar"}),
        ({"foo": "bar"}, {"foo": "bar"}, {"foo": "bar"}),
        ({"foo": "bar"}, {"baz": "qux"}, {"foo": "bar", "baz": "qux"}),
        ({"foo": "bar"}, {}, {"foo": "bar"}),
        (None, {}, None),
    ],
)
def test_decided_annotations_are_merged_as_the_old_plugin_did(
    existing: dict[str, str] | None, decided: dict[str, str], merged: dict[str, str] | None
) -> None:
    assert patched(resource(existing), patch(existing, decided)) == resource(merged)
    found = stored(resource(existing), allow(_review(existing), Decision(decided)))
    found["metadata"].get("annotations", {}).pop(REQUESTED, None)
    assert found == resource(merged)


_keys = st.text("ab~/01.", max_size=6)
_maps = st.dictionaries(_keys, st.text(max_size=3), max_size=5)
_wishes = st.dictionaries(_keys, st.none() | st.text(max_size=3), max_size=5)


@given(existing=st.none() | _maps, wanted=_wishes)
def test_any_patch_fits_and_a_second_one_is_empty(
    existing: dict[str, str] | None, wanted: dict[str, str | None]
) -> None:
    after = patched(resource(existing), patch(existing, wanted))
    merged = {k: v for k, v in {**(existing or {}), **wanted}.items() if v is not None}
    assert after == resource(merged if merged or existing is not None else None)
    assert patch(after["metadata"].get("annotations"), wanted) == []


def test_a_denial_carries_the_reason_for_the_author() -> None:
    assert response(deny(_review(None), "no PCI; no EU")) == {
        "uid": "r1",
        "allowed": False,
        "status": {"code": 403, "message": "no PCI; no EU", "reason": "Forbidden"},
    }


def test_a_denial_for_want_of_a_decision_has_its_own_code() -> None:
    assert response(deny(_review(None), "OPA is away", 503))["status"]["code"] == 503


def test_a_deletion_is_admitted_without_a_patch_whatever_is_noted() -> None:
    old = resource({"a": "1"} | _noted(gone="2"))
    review = parse_review(body(None, operation="DELETE", oldObject=old))
    assert response(allow(review, Decision())) == {"uid": "r1", "allowed": True}


# Labels


@pytest.mark.parametrize("labels", [None, {}, {"app": "web"}, {"tier": "tin"}])
def test_decided_labels_are_merged_beside_annotations(labels: dict[str, str] | None) -> None:
    sent = resource({"a": "1"}, labels)
    found = stored(sent, allow(create(sent), Decision({"a": "1"}, labels={"tier": "gold"})))
    assert found == resource({"a": "1"}, (labels or {}) | {"tier": "gold"})


# Warnings


def test_warnings_of_the_policy_reach_whoever_asks() -> None:
    found = response(allow(_review(None), Decision(warnings=("no owner", "no cost centre"))))
    assert found == {"uid": "r1", "allowed": True, "warnings": ["no owner", "no cost centre"]}


def test_long_warnings_are_cut_with_a_sign_of_it() -> None:
    (found,) = response(allow(_review(None), Decision(warnings=("x" * 257,))))["warnings"]
    assert found == "x" * 255 + "…"
    (found,) = response(allow(_review(None), Decision(warnings=("y" * 256,))))["warnings"]
    assert found == "y" * 256


def test_too_many_warnings_are_cut_with_a_sign_of_it() -> None:
    found = response(allow(_review(None), Decision(warnings=("z" * 256,) * 20)))["warnings"]
    assert found == [*["z" * 256] * 15, "… and 5 more"]
    assert sum(map(len, found)) <= 4096


def test_warnings_are_one_line_each() -> None:
    """The API server drops what no HTTP header can hold."""
    found = response(allow(_review(None), Decision(warnings=("a\nb\x00c\td ü",))))["warnings"]
    assert found == ["a b c d ü"]


# What was asked for


def test_what_the_policy_replaces_is_noted_and_what_it_adds_too() -> None:
    sent = resource({"a": "mine"})
    found = stored(sent, allow(create(sent), Decision({"a": "1", "b": "2"})))
    assert found == resource({"a": "1", "b": "2"} | _noted(a="mine", b=None))


def test_a_note_goes_once_the_policy_gives_what_was_asked_for() -> None:
    held = resource({"a": "1"} | _noted(a="mine"))
    found = stored(held, allow(update(held, held), Decision({"a": "mine"})))
    assert found == resource({"a": "mine"})


def test_a_change_is_what_is_asked_for_now() -> None:
    held = resource({"a": "1", "b": "1"} | _noted(a="mine", b=None))
    sent = resource({"a": "other", "b": "1"} | _noted(a="mine", b=None))
    found = stored(sent, allow(update(sent, held), Decision({"a": "1", "b": "1"})))
    assert found == resource({"a": "1", "b": "1"} | _noted(a="other", b=None))


def test_a_removal_asks_for_nothing() -> None:
    held = resource({"a": "1"} | _noted(a="mine"))
    sent = resource(None)
    found = stored(sent, allow(update(sent, held), Decision({"a": "1"})))
    assert found == resource({"a": "1"} | _noted(a=None))


@pytest.mark.parametrize("note", [{}, _noted(a="forged", x="y"), {REQUESTED: "?"}])
def test_an_update_of_the_note_itself_changes_nothing(note: dict[str, str]) -> None:
    held = resource({"a": "1"} | _noted(a="mine"))
    sent = resource({"a": "1"} | note)
    assert stored(sent, allow(update(sent, held), Decision({"a": "1"}))) == held


def test_a_request_outlives_a_policy_that_does_not_decide_its_key() -> None:
    held = resource({"a": "1"} | _noted(a="mine"))
    assert stored(held, allow(update(held, held), Decision())) == held


@pytest.mark.parametrize("asked_for", ["safe", None])
def test_a_note_of_a_create_cannot_hide_what_is_stored(asked_for: str | None) -> None:
    """The policy was shown the request, and might have refused what stands beside it."""
    sent = resource({"danger": "true"} | _noted(danger=asked_for))
    found = stored(sent, allow(create(sent), Decision()))
    assert found == resource({} if asked_for is None else {"danger": asked_for})


def test_a_note_of_a_pretended_remediator_cannot_hide_what_is_stored() -> None:
    held = resource({"a": "1"})
    sent = resource({"a": "1", "danger": "true"} | _noted(danger=None))
    review = update(sent, held, manager="kube-sync-remediator")
    assert stored(sent, allow(review, Decision({"a": "1"}))) == resource({"a": "1"})


def test_a_copied_manifest_brings_its_requests_along() -> None:
    sent = resource({"a": "1"} | _noted(a="mine"))
    assert stored(sent, allow(create(sent), Decision({"a": "1"}))) == sent


@pytest.mark.parametrize("note", ["", "{", "[]", "null", '{"a":1}', "[" * 100_000])
def test_a_note_that_cannot_be_read_goes(note: str) -> None:
    sent = resource({"a": "1", REQUESTED: note})
    assert stored(sent, allow(create(sent), Decision({"a": "1"}))) == resource({"a": "1"})


# Placements are not emptied

_WEST = '{"clusters":{"west":{"weight":1}}}'
_EAST = '{"clusters":{"east":{"weight":1}}}'
_NOWHERE = '{"clusters":{}}'


def test_an_update_does_not_empty_a_workload() -> None:
    """The fleet that the policy saw may be empty, and the remediator's PATCH is an update too."""
    held = resource({PLACEMENT: _WEST})
    answer = allow(update(held, held), Decision({PLACEMENT: _NOWHERE, "a": "1"}))
    assert stored(held, answer) == resource({PLACEMENT: _WEST, "a": "1"} | _noted(a=None))
    assert "placement is kept" in response(answer)["warnings"][0]


def test_an_update_gives_no_empty_placement_to_a_workload_without_one() -> None:
    """It runs wherever its federation puts it."""
    sent = resource({"a": "1"})
    answer = allow(update(sent, resource({})), Decision({PLACEMENT: '{"clusters":{}}'}))
    assert PLACEMENT not in stored(sent, answer)["metadata"]["annotations"]


def test_an_update_empties_a_workload_where_the_policy_says_that_it_may_be() -> None:
    held = resource({PLACEMENT: _WEST})
    answer = allow(update(held, held), Decision({PLACEMENT: _NOWHERE}, evict=True))
    assert stored(held, answer) == resource({PLACEMENT: _NOWHERE} | _noted(**{PLACEMENT: _WEST}))
    assert "warnings" not in response(answer)


def test_who_asks_for_another_placement_gets_the_one_that_is_kept_and_the_request_is_noted() -> (
    None
):
    held, sent = resource({PLACEMENT: _WEST}), resource({PLACEMENT: _EAST})
    answer = allow(update(sent, held), Decision({PLACEMENT: _NOWHERE}))
    found = stored(sent, answer)
    assert found == resource({PLACEMENT: _WEST} | _noted(**{PLACEMENT: _EAST}))
    assert stored(found, allow(update(found, found), Decision({PLACEMENT: _NOWHERE}))) == found


@pytest.mark.parametrize(
    ("has", "wanted"),
    [
        (_NOWHERE, '{"clusters":{"west":{"weight":0}}}'),
        ("east", _NOWHERE[:-1]),
        (_WEST, _EAST),
    ],
)
def test_any_other_placement_is_the_policys(has: str, wanted: str) -> None:
    held = resource({PLACEMENT: has})
    answer = allow(update(held, held), Decision({PLACEMENT: wanted}))
    assert stored(held, answer)["metadata"]["annotations"][PLACEMENT] == wanted
    assert "warnings" not in response(answer)


def test_a_new_workload_may_be_placed_nowhere() -> None:
    answer = allow(_review({PLACEMENT: _WEST}), Decision({PLACEMENT: _NOWHERE}))
    found = stored(resource({PLACEMENT: _WEST}), answer)
    assert found["metadata"]["annotations"][PLACEMENT] == _NOWHERE


# The guard

_HELD = resource({"a": "1", "free": "x"} | _noted(a="mine"), {"l": "1"})
_DECIDED = Decision({"a": "1"}, labels={"l": "1"})


@pytest.mark.parametrize(
    ("annotations", "labels", "named"),
    [
        ({"a": "other"}, {"l": "1"}, "annotation a"),
        ({}, {"l": "1"}, "annotation a"),
        ({"a": "1"}, {"l": "2"}, "label l"),
        ({"a": "1"}, None, "label l"),
        ({"a": "2"}, {"l": "2"}, "annotation a, label l"),
    ],
)
def test_who_changes_what_the_policy_decides_is_told_and_gets_it_back(
    annotations: dict[str, str], labels: dict[str, str] | None, named: str
) -> None:
    sent = resource(annotations | {"free": "y"}, labels)
    review = update(sent, _HELD)
    found = stored(sent, allow(review, _DECIDED, REMEDIATOR))
    assert (found["metadata"]["annotations"]["a"], found["metadata"]["labels"]) == ("1", {"l": "1"})
    warnings = response(allow(review, _DECIDED, REMEDIATOR))["warnings"]
    assert [line.partition(":")[0] for line in warnings] == named.split(", ")
    reason = trespass(review, _DECIDED, REMEDIATOR)
    assert reason == f"{named}: decided by the placement policy, only {REMEDIATOR} may change this"


@pytest.mark.parametrize(
    "review",
    [
        update(_HELD, _HELD),
        update(resource({"a": "1", "free": "y", "new": "z"}, {"l": "1", "m": "2"}), _HELD),
        update(_HELD, resource({"a": "0"})),  # to what the policy says
        update(resource({"a": "mine"}, {"l": "1"}), _HELD),  # the manifest, sent again
        update(resource({"a": "2"}), _HELD, REMEDIATOR),
        update(resource({"a": "2"}), _HELD, manager="kube-sync-remediator"),
        create(resource({"a": "2"}, {"l": "2"})),
        update(resource({"a": "0"}, {"l": "0"}), resource({"a": "0"}, {"l": "0"})),
    ],
)
def test_who_changes_nothing_of_the_policys_is_not_stopped(review: Review) -> None:
    assert trespass(review, _DECIDED, REMEDIATOR) is None
    assert "warnings" not in response(allow(review, _DECIDED, REMEDIATOR))


def test_who_may_change_it_is_told_even_where_nobody_is_configured() -> None:
    review = update(resource({"a": "2"}, {"l": "1"}), _HELD)
    assert str(trespass(review, _DECIDED)).endswith("only the remediator may change this")
