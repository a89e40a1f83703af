"""An answer as people and programs read it."""

from __future__ import annotations

import json
from dataclasses import replace

from kube_sync.decisions.decision import Decision
from kube_sync.decisions.evaluator import Outcome
from kube_sync.decisions.explaining import Rule
from kube_sync.decisions.input_values import Input
from kube_sync.inspect.plan.extra_documents import CanaryInEffect
from kube_sync.inspect.why.change import ABSENT, Change
from kube_sync.inspect.why.contrast import Objection, ObservedValue
from kube_sync.inspect.why.explanation import ClusterResult, WhyReport
from kube_sync.inspect.why.report import NOTHING, as_json, as_text
from kube_sync.inspect.why.search import DecisiveChange, Search
from kube_sync.kube.policymaps import PolicyMap
from kube_sync.objects import ObjectKey
from kube_sync.opa.sides import Side
from tests.unit.inspect.plan.fleets import PLACEMENT, ZONE, item, preferences, zoned

C1, C2 = ObjectKey("fleet", "c1"), ObjectKey("fleet", "c2")
SAW = (ObservedValue('cluster.metadata.labels["zone"]', '"us"'), ObservedValue("input.x", None))
AGAINST = Objection("p/a/b.rego", 7, "_fit", "a ==\n\tb", holds=False, saw=SAW)
TOLD = WhyReport(
    "replicasets",
    ObjectKey("shop", "web"),
    Outcome("u-web", Decision({PLACEMENT: preferences("c1")})),
    decided=("c1",),
    has=("c1", "c2"),
    pending=f"would be written: {PLACEMENT}",
    rules=(Rule("p/a/b.rego", 3, "annotations", applied=True, text="annotations := {"),),
    inputs=(Input("metadata.labels.zone", None, whole=True, asked=()),),
    cluster_results=(
        ClusterResult(C1, chosen=True),
        ClusterResult(C2, chosen=False, objections=(AGAINST,)),
    ),
    compared="compared with those that are chosen",
)
TURN = DecisiveChange(
    Change("cluster", ("metadata", "labels", ZONE), "us", "eu"),
    item(zoned("c2", "eu")),
    ("c1", "c2"),
)
GONE = DecisiveChange(
    Change("object", ("spec", "zone"), "eu", ABSENT), item(zoned("c2", "eu")), ("c2",)
)


def why_not(*found: DecisiveChange, tried: int = 7, possible: int = 7) -> WhyReport:
    return replace(
        TOLD, cluster_results=TOLD.cluster_results[1:], search=Search(found, tried, possible)
    )


def test_answer_is_told_in_the_order_in_which_people_ask() -> None:
    assert (
        as_text(TOLD, 100)
        == """\
replicasets shop/web
  decided  c1
  has      c1, c2
  so       would be written: federation.kubernetes.io/replica-set-preferences

rules that made it
  p/a/b.rego:3  annotations := {

inputs that it read
  metadata.labels.zone  (absent)

clusters
  fleet/c1  chosen
  fleet/c2  not chosen
    p/a/b.rego:7
      does not hold: a == b
        cluster.metadata.labels["zone"] is "us"
        input.x is not there
  (compared with those that are chosen)"""
    )


def test_canary_that_decides_is_told_with_its_side() -> None:
    key = ObjectKey("p", "a-candidate")
    of = PolicyMap(key, "1", {}, None, stage="canary", stands_for=ObjectKey("p", "a"))
    told = replace(TOLD, canary=CanaryInEffect(of, Side("p/a", "0.1", frozenset({"shop"}))))
    line = "  by       ConfigMap p/a-candidate, a canary of 10 % of all objects and all in shop"
    assert as_text(told, 100).splitlines()[2] == line
    assert json.loads(as_json(told))["canary"] == {
        "configmap": "p/a-candidate",
        "stands_for": "p/a",
        "share": "0.1",
        "namespaces": ["shop"],
    }
    assert json.loads(as_json(TOLD))["canary"] is None


def test_trace_is_told_where_one_is_known() -> None:
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    told = replace(TOLD, trace=trace)
    assert as_text(told, 100).splitlines()[4] == f"  trace    {trace}"
    assert json.loads(as_json(told))["trace"] == trace
    assert json.loads(as_json(TOLD))["trace"] is None


def test_smallest_change_comes_with_what_else_to_ask_and_with_how_much_was_tried() -> None:
    text = as_text(why_not(TURN, GONE), 60)
    assert text.index("clusters") < text.index("smallest change") < text.index("rules that made it")
    assert (
        """
smallest change that puts it on c2 (7 changes tried, all there are, evaluated anew)
  cluster fleet/c2
    metadata.labels["example.com/zone"]: "us" -> "eu"
    then decided: c1, c2
    what else it moves: kube-sync what-if c2.labels.example.com/zone=eu
others that do
  replicasets shop/web
    spec.zone: "eu" -> (absent)
    then decided: c2
"""
        in text
    )


def test_search_that_found_nothing_says_how_far_it_went() -> None:
    assert "no single change that was tried puts it on c2 (7 changes tried, all there are)" in (
        as_text(why_not(), 100)
    )
    assert "(300 changes tried, 12 more are beyond --tries)" in as_text(
        why_not(tried=300, possible=312), 100
    )


def test_what_cannot_be_told_is_said_to_be_so() -> None:
    silent = ClusterResult(C2, chosen=False)
    nothing = replace(
        TOLD, cluster_results=(silent,), rules_failure="too long", inputs_failure="unknown"
    )
    text = as_text(nothing, 100)
    assert NOTHING in text
    assert "rules: too long" in text
    assert "inputs: unknown" in text
    assert NOTHING not in as_text(
        replace(TOLD, cluster_results=(replace(silent, reason="full"),)), 100
    )


def test_decision_that_places_nowhere_is_told_with_its_reason() -> None:
    refused = replace(TOLD, outcome=Outcome("u", Decision({}, ("no", "never"))), decided=())
    assert "  refused  no\n  refused  never\n" in as_text(refused, 100)
    failed = replace(TOLD, outcome=Outcome("u", failure="conflict\nmore"), decided=())
    assert "  failed   conflict\n" in as_text(failed, 100)
    assert "  decided  nothing\n" in as_text(replace(TOLD, outcome=Outcome("u")), 100)


def test_text_fits_its_terminal_and_moves_no_cursor() -> None:
    long = replace(TOLD, notes=("\x1b[2Jx",))
    text = as_text(long, 60)
    assert max(map(len, text.splitlines())) <= 60
    assert "\x1b" not in text


def test_what_is_left_out_of_a_text_is_counted() -> None:
    keys = [ObjectKey("fleet", f"c{n}") for n in range(50)]
    many = replace(TOLD, cluster_results=tuple(ClusterResult(key, chosen=True) for key in keys))
    assert "… and 10 more clusters (-o json)" in as_text(many, 100)


def test_programs_get_all_of_it() -> None:
    document = json.loads(as_json(why_not(TURN, GONE)))
    assert (document["v"], document["object"]["name"]) == (1, "web")
    (cluster,) = document["clusters"]
    assert cluster["against"][0]["saw"][0] == {"term": SAW[0].term, "value": '"us"'}
    first, second = document["search"]["found"]
    assert (first["after"], first["decided"]) == ("eu", ["c1", "c2"])
    assert first["what_if"] == "c2.labels.example.com/zone=eu"
    assert (second["of"], second["before"], "after" in second) == ("object", "eu", False)


def test_a_move_that_is_under_way_is_told_by_its_step() -> None:
    text = as_text(replace(TOLD, move="added to c1"), 100)
    assert "  move     added to c1\n" in text
    assert "  move " not in as_text(TOLD, 100)
    assert json.loads(as_json(replace(TOLD, move="added to c1")))["move"] == "added to c1"
