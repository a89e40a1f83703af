from __future__ import annotations

import json
from dataclasses import replace

import pytest

from kube_sync.inspect.survey.findings import Finding, Savings, Tally
from kube_sync.inspect.survey.report import as_json, as_tree
from kube_sync.opa.analysis.paths import Path
from kube_sync.opa.analysis.result import Ask, Document, FieldRead, Reads
from kube_sync.opa.analysis.syntax import Spot

SPRINTF = Ask("p.rego", "reason", 7, "sprintf", whole=True)
RETURNED = Ask("", "", None, "returned from the decision", whole=True)
READS = Reads(
    input=Document(
        (
            FieldRead(("kind",), whole=False, asked=(Ask("p.rego", "errors", 3, "compared"),)),
            FieldRead(("spec", None, "a.b"), whole=True, asked=(SPRINTF, SPRINTF, RETURNED)),
        ),
        used=True,
    ),
    resources={
        "clusters": Document(used=True, listed=True),
        "nodes": Document(used=True),
        "replicasets": Document(),
    },
    others=(FieldRead(("teams",), whole=True, asked=(RETURNED,)),),
    impure={"time.now_ns": (Ask("p.rego", "errors", 3, "called"), Ask("q", "r", None, "called"))},
)
FINDING = Finding("policies", ("p.rego", "q"), defined=True, reads=READS)
ABSENT = Finding("others", ("z.rego",), defined=False, reads=READS)
SAVINGS = Savings(
    "https://there",
    {
        "clusters": Tally((), None, 4, 1_999_000, 600),
        "replicasets": Tally((), (), 10_000, 38_100_000, 2_500_000, {b"1", b"2"}),
        "nodes": Tally((), None),
    },
    frozenset({"nodes"}),
)
TREE = """\
policies (2 modules)
  a/b reads, with 1 field whole:
  input
    kind
    spec[*]["a.b"]  WHOLE
      sprintf, in p.rego:7 reason
      returned from the decision
  clusters, all of them
  nodes
  replicasets: nothing
  other data, which is not replicated from Kubernetes
    teams
      returned from the decision
  time.now_ns: its answer changes without any data; called by p.rego:3 errors, q r
  answers by class (admission.classes): no: the decision reads what no class covers: time.now_ns"""
SAVED = """\
  replicating only that, of https://there:
                 objects   listed  projected         decision classes
    clusters           4   2.0 MB      600 B  0.0 %                 -
    replicasets   10,000  38.1 MB     2.5 MB  6.6 %                 2
    nodes        unknown                                            -
    together      10,004  40.1 MB     2.5 MB  6.2 %                 2
    (no decision is shared by its class: see the builtins above)"""


def test_tree_tells_what_is_read_whole_and_by_whom() -> None:
    assert as_tree("a/b", [FINDING], {}) == TREE


def test_tree_tells_what_it_saves() -> None:
    assert as_tree("a/b", [FINDING], {"policies": SAVINGS}) == f"{TREE}\n{SAVED}"


def test_several_sets_are_told_apart_and_one_without_the_decision_says_so() -> None:
    note = "These policies do not compile together, so each folder is analysed by itself."
    absent = "others (1 module)\n  no rule lies at a/b"
    assert as_tree("a/b", [ABSENT, FINDING], {}) == f"{note}\n\n{absent}\n\n{TREE}"


def test_reason_why_the_analysis_gave_up_comes_first() -> None:
    whole = Document((FieldRead((), whole=True, asked=()),), used=True, listed=True)
    reads = Reads(whole, {}, (), {}, gave_up="p.rego: unknown term")
    finding = Finding("p", ("p.rego",), defined=True, reads=reads)
    why = "the policies could not be analysed: p.rego: unknown term"
    lines = as_tree("a/b", [finding], {}).splitlines()
    assert lines[1:] == [
        "  a/b reads, with 1 field whole:",
        f"  everything, since {why}",
        "  input",
        "    (all of it)  WHOLE",
        f"  answers by class (admission.classes): no: {why}",
    ]
    assert json.loads(as_json("a/b", [finding], {}))["sets"][0]["gave_up_at"] is None


def test_rule_that_the_analysis_gave_up_at_is_named_with_its_row() -> None:
    whole = Document((FieldRead((), whole=True, asked=()),), used=True, listed=True)
    spot = Spot("p.rego", "errors", 0, row=7)
    reads = Reads(whole, {}, (), {}, gave_up="recursion in errors", blamed=spot)
    finding = Finding("p", ("p.rego",), defined=True, reads=reads)
    why = "the policies could not be analysed: recursion in errors, in p.rego:7 errors"
    assert f"  everything, since {why}" in as_tree("a/b", [finding], {})
    found = json.loads(as_json("a/b", [finding], {}))["sets"][0]["gave_up_at"]
    assert found == {"module": "p.rego", "rule": "errors", "row": 7}


def _shared(reads: Reads) -> object:
    """Return what JSON says of the answers, which the text says as well."""
    finding = Finding("p", ("p.rego",), defined=True, reads=reads)
    (found,) = json.loads(as_json("a/b", [finding], {}))["sets"]
    reason = found["answers"]["reason"]
    said = "yes" if reason is None else f"no: {reason}"
    assert as_tree("a/b", [finding], {}).splitlines()[-1].endswith(f"(admission.classes): {said}")
    return found["answers"]


PURE = replace(READS, impure={})


def test_answers_that_depend_on_what_is_read_alone_are_shared() -> None:
    assert _shared(PURE) == {"shared": True, "reason": None}


def test_reason_is_given_where_answers_are_not_shared() -> None:
    whole = Document((FieldRead((), whole=True, asked=()),), used=True)
    reason = "the decision reads the whole input"
    assert _shared(replace(PURE, input=whole)) == {"shared": False, "reason": reason}


@pytest.mark.parametrize(
    ("path", "unless"),
    [
        (("zones", "eu", "size"), ", unless a ConfigMap with data brings it"),
        (("zones", None, "size"), ""),
        (("zones",), ""),
    ],
)
def test_data_that_a_config_map_may_bring_is_distinguished(path: Path, unless: str) -> None:
    found = _shared(replace(PURE, foreign=(FieldRead(path, whole=False, asked=()),)))
    name = ".".join(key or "*" for key in path)
    reason = f"the decision reads data that the replicator does not write: data.{name}{unless}"
    assert found == {"shared": False, "reason": reason}


def test_nothing_is_said_of_answers_where_no_rule_decides() -> None:
    assert json.loads(as_json("a/b", [ABSENT], {}))["sets"][0]["answers"] is None


def test_json_has_the_same_members_whatever_was_asked() -> None:
    plain = json.loads(as_json("a/b", [FINDING, ABSENT], {}))
    saved = json.loads(as_json("a/b", [FINDING], {"policies": SAVINGS}))
    assert plain.keys() == saved.keys() == {"decision", "whole", "sets"}
    assert [found.keys() for found in plain["sets"]] == [saved["sets"][0].keys()] * 2
    assert [found["savings"] for found in plain["sets"]] == [None, None]
    assert [(s["name"], s["defined"], s["whole"]) for s in plain["sets"]] == [
        ("policies", True, 1),
        ("others", False, 0),
    ]
    assert plain["sets"][0].items() >= READS.builtins().items()


def test_json_counts_what_is_saved_by_resource_and_together() -> None:
    (found,) = json.loads(as_json("a/b", [FINDING], {"policies": SAVINGS}))["sets"]
    assert found["savings"] == {
        "source": "https://there",
        "objects": 10_004,
        "listed_bytes": 40_099_000,
        "projected_bytes": 2_500_600,
        "classes": 2,
        "resources": {
            "clusters": {
                "objects": 4,
                "listed_bytes": 1_999_000,
                "projected_bytes": 600,
                "classes": None,
                "known": True,
            },
            "replicasets": {
                "objects": 10_000,
                "listed_bytes": 38_100_000,
                "projected_bytes": 2_500_000,
                "classes": 2,
                "known": True,
            },
            "nodes": {
                "objects": 0,
                "listed_bytes": 0,
                "projected_bytes": 0,
                "classes": None,
                "known": False,
            },
        },
    }


def test_huge_numbers_of_bytes_stay_readable() -> None:
    savings = Savings("x", {"clusters": Tally((), None, 1, 5 * 10**15, 999)}, frozenset())
    line = as_tree("a/b", [FINDING], {"policies": savings}).splitlines()[-3]
    assert line.split() == ["clusters", "1", "5000.0", "TB", "999", "B", "0.0", "%", "-"]


def test_values_of_secrets_that_stay_out_are_told_with_who_reads_them() -> None:
    finding = replace(FINDING, withheld={"p.rego": ["data.a of secrets is undefined"]})
    tree = as_tree("a/b", [finding], {})
    assert tree == f"{TREE}\n  data.a of secrets is undefined; read in p.rego"
    (found,) = json.loads(as_json("a/b", [finding], {}))["sets"]
    assert found["withheld"] == {"p.rego": ["data.a of secrets is undefined"]}
