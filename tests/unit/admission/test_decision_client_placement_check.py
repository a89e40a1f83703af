"""The validating pass for placement: what is stored is what the mutating pass made of it."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from kube_sync.admission.decision_client import Admitted, Denied, Undecidable
from kube_sync.admission.outcome import Outcome
from kube_sync.admission.requested_values import proven
from kube_sync.admission.response import allow
from kube_sync.admission.review import Review, parse_review
from kube_sync.admission.route import Route, placement_check, placement_route
from kube_sync.config import Admission
from kube_sync.decisions.decision import PLACEMENT, REQUESTED, Decision
from kube_sync.decisions.sealing import Seals
from tests.fakes.reviewing import Judge
from tests.fakes.reviews import (
    Json,
    body,
    create,
    operations,
    patched,
    resource,
    response,
    stored,
    update,
)

DECISION = Decision({PLACEMENT: "eu", "a": "1"}, labels={"tier": "gold"})
FORGED = {REQUESTED: '{"danger":null}'}


@pytest.fixture
def seals(tmp_path: Path) -> Seals:
    (tmp_path / "key").write_text("k" * 43, encoding="utf-8")
    return Seals(str(tmp_path / "key"))


def made(seals: Seals, decision: Decision = DECISION) -> Json:
    """Return an object as the mutating pass leaves it."""
    sent = resource({PLACEMENT: "us", "danger": "true"})
    return stored(sent, allow(create(sent), decision, "", seals))


async def check(
    review: Review, judge: Judge, seals: Seals, *, policy: bool = True
) -> tuple[Outcome, int]:
    way = placement_check(judge, lambda: policy, Admission(), seals=seals)
    return await _through(way, review), len(judge.asked)


async def _through(way: Route, review: Review) -> Outcome:
    review = way.preprocess(review)
    assert not way.passes(review)
    return way.read(review, await way.decider.verdict(review, 1.0))


async def test_what_is_sealed_is_admitted_and_nobody_is_asked(seals: Seals) -> None:
    outcome, asked = await check(create(made(seals)), Judge(), seals)
    assert (outcome.name, asked) == ("admitted", 0)
    assert response(outcome.body) == {"uid": "r1", "allowed": True}


async def test_a_placement_that_was_asked_for_just_so_is_sealed_too(seals: Seals) -> None:
    sent = resource({PLACEMENT: "eu"})
    found = stored(sent, allow(create(sent), Decision({PLACEMENT: "eu"}), "", seals))
    assert json.loads(found["metadata"]["annotations"][REQUESTED]).keys() == {REQUESTED}
    assert (await check(create(found), Judge(), seals))[1] == 0
    again = allow(create(found), Decision({PLACEMENT: "eu"}), "", seals)
    assert operations(response(again)) == []


@pytest.mark.parametrize(
    ("change", "named", "sealing"),
    [
        *(
            (change, named, sealing)
            for change, named in (
                ({PLACEMENT: "moon"}, PLACEMENT),
                ({PLACEMENT: None}, PLACEMENT),
                (FORGED, REQUESTED),
                ({"a": "2"}, "a"),
            )
            for sealing in (True, False)
        ),
        # Without a seal a request that was taken away leaves no trace.
        ({REQUESTED: None}, REQUESTED, True),
    ],
)
async def test_what_was_changed_since_is_asked_about_and_refused(
    seals: Seals, change: dict[str, str | None], named: str, *, sealing: bool
) -> None:
    seals = seals if sealing else Seals()
    found = made(seals)
    annotations = found["metadata"]["annotations"] | change
    found["metadata"]["annotations"] = {k: v for k, v in annotations.items() if v is not None}
    judge = Judge(Admitted(DECISION))
    outcome, asked = await check(create(found), judge, seals)
    assert asked == 1
    assert f"annotation {named}" in (outcome.refusal or "")
    assert response(outcome.body)["status"]["code"] == 403


async def test_without_a_seal_what_is_as_it_is_decided_is_admitted(seals: Seals) -> None:
    found = made(Seals())
    outcome, asked = await check(create(found), Judge(Admitted(DECISION)), Seals())
    assert (outcome.name, asked) == ("admitted", 1)
    found["metadata"]["labels"]["tier"] = "lead"
    outcome, _ = await check(create(found), Judge(Admitted(DECISION)), Seals())
    assert outcome.refusal == "label tier: decided by the placement policy, and changed since"
    nothing = create(resource({"mine": "1"}))
    outcome, asked = await check(nothing, Judge(Admitted(Decision())), seals)
    assert (outcome.name, asked) == ("admitted", 1)


async def test_without_a_policy_nobody_is_asked(seals: Seals) -> None:
    review = create(resource({PLACEMENT: "mine"} | FORGED))
    outcome, asked = await check(review, Judge(), seals, policy=False)
    assert (outcome.name, asked) == ("admitted", 0)


async def test_no_decision_is_a_refusal(seals: Seals) -> None:
    for verdict, code in ((Undecidable("down", "unreachable"), 503), (Denied(("no",)), 403)):
        outcome, _ = await check(create(resource({})), Judge(verdict), seals)
        assert response(outcome.body)["status"]["code"] == code


def status_write(new: Json, old: Json) -> Review:
    return parse_review(body(new, oldObject=old, operation="UPDATE", subResource="status"))


@pytest.mark.parametrize("path", ["admit", "validate"])
async def test_a_status_write_is_judged_as_the_update_that_is_left_of_it(
    seals: Seals, path: str
) -> None:
    review = status_write(resource(FORGED | {"a": "2"}, {"l": "2"}), resource({"b": "1"}))
    judge = Judge(Admitted(DECISION))
    if path == "admit":
        outcome = await _through(placement_route(judge, Admission(), seals=seals), review)
        kept = patched(resource(FORGED | {"a": "2"}), operations(response(outcome.body)))
        assert kept == resource({"a": "2"})
    else:
        outcome, _ = await check(review, judge, seals)
        assert REQUESTED in (outcome.refusal or "")
    (seen,) = judge.asked
    assert (seen.subresource, seen.annotations) == ("", {"a": "2"})
    left = msgspec.json.decode(seen.object)["metadata"]
    assert (left["annotations"], left["labels"]) == ({"a": "2"}, {"l": "2"})


async def test_a_status_write_that_the_policy_refuses_is_refused(seals: Seals) -> None:
    """Else an owner could make an object one that nobody decides on, and that stays for ever."""
    review = status_write(resource({"danger": "true"}), resource({}))
    for verdict, code in ((Undecidable("down", "unreachable"), 503), (Denied(("no",)), 403)):
        way = placement_route(Judge(verdict), Admission(), seals=seals)
        outcome = await _through(way, review)
        assert response(outcome.body)["status"]["code"] == code


@pytest.mark.parametrize("old", [None, 1, {}])
async def test_a_status_write_without_its_object_is_refused(seals: Seals, old: object) -> None:
    raw = msgspec.Raw(msgspec.json.encode(old))
    review = msgspec.structs.replace(status_write(resource({}), resource({})), old_object=raw)
    judge = Judge(Admitted(DECISION))
    outcome = await _through(placement_route(judge, Admission(), seals=seals), review)
    assert (outcome.name, judge.asked) == ("undecidable", [])


def test_a_note_that_is_not_sealed_is_left_out_of_what_is_judged(seals: Seals) -> None:
    old = made(seals)
    forged = resource(old["metadata"]["annotations"] | FORGED, {"tier": "gold"})
    review = proven(update(forged, old), seals)
    assert review.unproven
    assert REQUESTED not in (review.annotations or {})
    assert review.old_annotations == old["metadata"]["annotations"]
    for found in (review.object, msgspec.json.decode(review.request)["object"]):
        assert REQUESTED not in str(found)
    planted = proven(update(old, forged), seals)
    assert (planted.unproven, planted.annotations) == (False, old["metadata"]["annotations"])
    assert REQUESTED not in (planted.old_annotations or {})
    assert REQUESTED not in str(msgspec.json.decode(planted.request)["oldObject"])


def test_a_note_that_is_not_sealed_goes_with_the_next_update(seals: Seals) -> None:
    planted = resource({"danger": "true"} | FORGED)
    review = proven(update(planted, planted), seals)
    kept = stored(planted, allow(review, Decision(), "", seals))
    assert kept["metadata"]["annotations"] == {"danger": "true"}


def test_a_note_that_is_sent_with_a_create_is_a_request(seals: Seals) -> None:
    sent = resource({"danger": "true"} | FORGED)
    review = proven(create(sent), seals)
    assert not review.unproven
    kept = stored(sent, allow(review, Decision({PLACEMENT: "eu"}), "", seals))
    assert kept["metadata"]["annotations"].keys() == {PLACEMENT, REQUESTED}
