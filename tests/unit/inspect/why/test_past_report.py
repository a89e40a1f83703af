"""What stood of an object, as people and programs read it."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from kube_sync.decisions.decision import Decision
from kube_sync.decisions.explaining import Rule
from kube_sync.decisions.input_values import Input
from kube_sync.inspect.why.past import UNKNOWN, Past, Written
from kube_sync.inspect.why.past_report import past_as_json, past_as_text
from kube_sync.inspect.why.past_rules import Derived
from tests.fakes.ledgers import START, WEB
from tests.unit.inspect.plan.fleets import PLACEMENT, preferences

SENT = Written(
    held=False,
    time=START + 1,
    status="applied",
    answered=START + 2,
    approved="moves-1 shop/approvals",
    before={PLACEMENT: None, "a": None},
    after={PLACEMENT: preferences("c1"), "a": "b"},
)
HELD = Written(held=True, time=START + 3, status="budget", note="3 of 2; released by: time")
PAST = Past(
    WEB,
    START + 5,
    "decided",
    Decision({PLACEMENT: preferences("c1")}, reasons={"fleet/c2": "too far"}),
    since=START,
    until=START + 9,
    row=7,
    uid="u-web",
    cause="data: clusters fleet/c2",
    before=Decision({PLACEMENT: preferences("c2")}),
    policy="p1",
    trace="4bf9",
    modules={"p/a/b.rego": "package a"},
    writes=(SENT, HELD),
    held=HELD,
    notes=("the newest row is of then",),
)
DERIVED = Derived(
    rules=(Rule("p/a/b.rego", 3, "annotations", applied=True, text="annotations := {"),),
    inputs=(Input("metadata.labels.zone", None, whole=True, asked=()),),
)
MISSING = Derived(rules_failure="not known: nothing was recorded")


def test_what_stood_is_told_in_the_order_in_which_people_ask() -> None:
    assert (
        past_as_text(PAST, DERIVED, 100)
        == """\
replicasets.v1.apps shop/web at 1970-01-12T13:46:45.000Z
  decided  c1
  since    1970-01-12T13:46:40.000Z (row 7)
  until    1970-01-12T13:46:49.000Z
  before   c2
  because  data: clusters fleet/c2
  policy   p1
  trace    4bf9
  uid      u-web

held at that time
  1970-01-12T13:46:43.000Z  held: budget; 3 of 2; released by: time

written since then
  1970-01-12T13:46:41.000Z  applied; approved: moves-1 shop/approvals
    a: (absent) -> b
    federation.kubernetes.io/replica-set-preferences: (absent) -> c1

rules that made it
  p/a/b.rego:3  annotations := {

inputs that it read
  metadata.labels.zone  (absent)

what the policy said of clusters
  fleet/c2  too far

note: the newest row is of then"""
    )


def test_rules_that_are_not_known_leave_the_modules_that_may_have_them() -> None:
    text = past_as_text(replace(PAST, writes=(), held=None), MISSING, 100)
    assert "rules: not known: nothing was recorded\nits policy was made of\n  p/a/b.rego\n" in text
    assert "nothing was written or held of it since then" in text


@pytest.mark.parametrize(
    ("status", "line"),
    [
        ("gone", "  gone     the object was no more"),
        ("undefined", "  decided  nothing"),
        (UNKNOWN, "  decided  not known"),
        ("failed", "  failed   conflict (stands: -)"),
    ],
)
def test_what_is_no_decision_says_what_it_is(status: str, line: str) -> None:
    past = replace(PAST, status=status, decision=None, failure="conflict")
    assert line in past_as_text(past, Derived(), 100).splitlines()


def test_refusal_is_told_with_its_reasons() -> None:
    past = replace(PAST, status="refused", decision=Decision({}, ("no", "never")))
    assert "  refused  no; never\n" in past_as_text(past, Derived(), 100)


def test_write_without_an_answer_says_so() -> None:
    past = replace(PAST, writes=(replace(SENT, answered=None, status=""),), held=None)
    assert "sent, no answer was recorded by then; approved: mov" in past_as_text(past, DERIVED, 100)


def test_writes_beyond_the_newest_few_are_counted() -> None:
    past = replace(PAST, writes=(SENT,) * 8, held=None)
    assert "  … and 2 more writes (-o json)" in past_as_text(past, DERIVED, 100)


def test_nothing_that_was_recorded_moves_a_cursor() -> None:
    past = replace(PAST, cause="\x1b[2J", notes=("\x1b[2J",))
    assert "\x1b" not in past_as_text(past, DERIVED, 100)


def test_json_has_all_of_it() -> None:
    found = json.loads(past_as_json(PAST, DERIVED))
    assert found["v"] == 1
    assert found["object"] == {
        "collection": "replicasets.v1.apps",
        "namespace": "shop",
        "name": "web",
        "uid": "u-web",
    }
    assert (found["at"], found["since"], found["until"]) == (START + 5, START, START + 9)
    assert found["decision"]["reasons"] == {"fleet/c2": "too far"}
    assert found["modules"] == {"p/a/b.rego": "package a"}
    assert [one["status"] for one in found["writes"]] == ["applied", "budget"]
    assert found["held"]["time"] == START + 3
    assert found["trace"] == "4bf9"
    assert json.loads(past_as_json(replace(PAST, trace=""), DERIVED))["trace"] is None
    assert found["rules"][0]["row"] == 3
