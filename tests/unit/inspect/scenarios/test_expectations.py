"""What may be expected, and what would check nothing or can never be."""

from __future__ import annotations

import pytest

from kube_sync.inspect.scenarios.scenario import Expectation, ExpectedMessage
from tests.unit.inspect.scenarios.cases import CASE, HEAD, of_case, scenario


def wanted(expect: str) -> Expectation:
    (case,) = scenario(f"{HEAD}{CASE}    expect: {expect}\n").cases
    return case.expected


def wrong(expect: str, given: str = "") -> list[str]:
    """Return what is wrong with an expectation, without rows and keys above it."""
    lines = of_case(f"{given}    expect: {expect}\n")
    return [line.partition("expect")[2] for line in lines]


@pytest.mark.parametrize(
    ("expect", "expectation"),
    [
        ("{clusters: [c2, c1]}", Expectation({"c2": {}, "c1": {}})),
        ("{clusters: []}", Expectation({})),
        ("{clusters: {c1: 2}}", Expectation({"c1": {"weight": 2}})),
        (
            "{clusters: {c1: {minReplicas: 1, weight: 0}}}",
            Expectation({"c1": {"minReplicas": 1, "weight": 0}}),
        ),
        (
            "{contains: [c1], excludes: [c2]}",
            Expectation(contains=("c1",), excludes=("c2",)),
        ),
        (
            "{annotations: {a/b: x, c: null, d: {e: 1}}, labels: {f: g, h: null}}",
            Expectation(
                annotations={"a/b": "x", "c": None, "d": {"e": 1}}, labels={"f": "g", "h": None}
            ),
        ),
        (
            "{reasons: {c1: why, c2: null}}",
            Expectation(reasons={"c1": ExpectedMessage("why"), "c2": None}),
        ),
        (
            "{reasons: {c1: {contains: wh}}, evict: true}",
            Expectation(reasons={"c1": ExpectedMessage("wh", exact=False)}, evict=True),
        ),
        ("{errors: [a, b]}", Expectation(errors=(ExpectedMessage("a"), ExpectedMessage("b")))),
        ("{errors: []}", Expectation(errors=())),
        (
            "{errors: {contains: a}}",
            Expectation(errors=(ExpectedMessage("a", exact=False),), complete=False),
        ),
        ("{fails: conflict}", Expectation(fails=ExpectedMessage("conflict", exact=False))),
        ("{undecided: true}", Expectation(undecided=True)),
        ("{unchanged: true}", Expectation(unchanged=True)),
    ],
)
def test_expectation_is_what_is_written(expect: str, expectation: Expectation) -> None:
    assert wanted(expect) == expectation


@pytest.mark.parametrize(
    ("expect", "line"),
    [
        ("{}", ": nothing is expected: an expectation checks something"),
        ("null", ": expected a mapping, found nothing"),
        ("{cluster: [c1]}", ".cluster: unknown key: clusters?"),
        (
            "{clusters: c1}",
            ".clusters: expected a list of clusters, or a mapping of them to weights, found a text",
        ),
        ("{clusters: [c1, c1]}", ".clusters[1]: c1 is here twice"),
        ("{clusters: [c3]}", ".clusters[0]: there is no cluster c3 in this case (c1, c2)"),
        ("{clusters: {c3: 1}}", ".clusters.c3: there is no cluster c3 in this case (c1, c2)"),
        ("{contains: [fleet/c1]}", ".contains[0]: a placement has no namespaces: c1"),
        ("{excludes: [c3]}", ".excludes[0]: there is no cluster c3 in this case (c1, c2)"),
        ("{reasons: {c3: x}}", ".reasons.c3: there is no cluster c3 in this case (c1, c2)"),
        ("{contains: []}", ".contains: it names no cluster, so it checks nothing"),
        ("{annotations: {}}", ".annotations: it names nothing, so it checks nothing"),
        ("{labels: {a: 1}}", ".labels.a: expected a text: put it into quotes, found a number"),
        (
            "{clusters: {c1: 0}}",
            ".clusters.c1: it would get no replica: leave it out, or exclude it",
        ),
        ("{clusters: {c1: -1}}", ".clusters.c1: expected a whole number, found a number"),
        ("{clusters: {c1: {wieght: 1}}}", ".clusters.c1.wieght: unknown key: weight?"),
        ("{clusters: [c1], contains: [c1]}", ".contains: `clusters` says all of it already"),
        ("{contains: [c1], excludes: [c1]}", ".excludes: c1 cannot be both contained and excluded"),
        ("{undecided: true, errors: []}", ".undecided: stands alone: no errors beside it"),
        (
            "{undecided: false}",
            ".undecided: only true means something: leave it out, or say what is expected",
        ),
        (
            "{errors: [a], clusters: [c1]}",
            ".clusters: nothing is written of a workload that is refused (errors)",
        ),
        ("{errors: a}", ".errors: expected a list, found a text"),
        ("{errors: {contain: a}}", ".errors.contain: unknown key: contains?"),
        ("{evict: 'yes'}", ".evict: expected true or false, found a text"),
        ("{placement: a/b}", ".placement: goes with clusters, contains or excludes"),
    ],
)
def test_expectation_that_checks_nothing_or_cannot_be_is_said(expect: str, line: str) -> None:
    assert line in wrong(expect)


def test_cluster_that_left_may_be_excluded_but_not_expected() -> None:
    given = "    given: {clusters: {c2: null}}\n"
    assert wrong("{clusters: [c1], reasons: {c1: a}}", given) == []
    assert wrong("{excludes: [c2]}", given) == []
    assert wrong("{clusters: [c2]}", given) == [
        ".clusters[0]: the cluster c2 is taken away by `given`"
    ]
