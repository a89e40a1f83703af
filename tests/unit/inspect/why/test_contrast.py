"""What speaks against a cluster, from how far clusters came in the bodies of rules."""

from __future__ import annotations

import pytest

from kube_sync.inspect.why.contrast import (
    EvaluationPaths,
    Objection,
    ObservedValue,
    by_name,
    failing,
    objections_to,
)
from kube_sync.inspect.why.probes import EVERYTHING, Note, Probed, ProbedBody
from kube_sync.inspect.why.syntax import Body, Expression
from kube_sync.inspect.why.terms import Text


def body(*texts: str, row: int = 1, constants: frozenset[str] = frozenset()) -> Body:
    expressions = [
        Expression(Text(row + n, 1, text), ("cluster",), (f"cluster.{text}",))
        for n, text in enumerate(texts, 1)
    ]
    return Body("fit", row, tuple(expressions), ("cluster",), constants)


def probed(*bodies: Body) -> Probed:
    watched, first = [], 0
    for one in bodies:
        watched.append(ProbedBody("p", one, first))
        first += len(one.expressions) + 1
    return Probed({}, watched, EVERYTHING)


def ways(**reached: int) -> EvaluationPaths:
    """Return ways of clusters that each came to a point, and to all before."""
    return EvaluationPaths.of(
        Note(point, [[name]], [f'"{name} at {point}"'])
        for name, last in reached.items()
        for point in range(last + 1)
    )


def said(found: tuple[Objection, ...]) -> list[tuple[str, bool]]:
    return [(one.text, one.holds) for one in found]


ONE = probed(body("ready", "gold", "near"))


def test_expression_that_holds_for_the_chosen_alone_speaks_against_a_cluster() -> None:
    now = ways(c1=3, c2=1)
    (found,) = objections_to("c2", now, now, ["c1"], ONE)
    assert found == Objection(
        "p", 3, "fit", "gold", holds=False, saw=(ObservedValue("cluster.gold", '"c2 at 1"'),)
    )


def test_expression_that_fails_for_all_speaks_against_none_in_particular() -> None:
    now = ways(c1=1, c2=1)
    assert objections_to("c2", now, now, ["c1"], ONE) == ()


def test_expression_that_holds_for_it_alone_speaks_against_it_too() -> None:
    now = ways(c1=2, c2=3)
    assert said(objections_to("c2", now, now, ["c1"], ONE)) == [("near", True)]


def test_body_that_does_not_hold_excludes_nobody_by_its_first_expressions() -> None:
    now = ways(c1=1, c2=2)
    assert objections_to("c2", now, now, ["c1"], ONE) == ()


def test_cluster_is_compared_with_itself_after_a_change() -> None:
    assert said(objections_to("c2", ways(c2=1), ways(c2=3), ["c2"], ONE)) == [("gold", False)]
    assert said(objections_to("c2", ways(c2=3), ways(c2=0), ["c2"], ONE)) == [("ready", True)]


def test_what_says_a_value_comes_before_what_says_none() -> None:
    two = probed(body("a"), body("b", row=10))
    now = EvaluationPaths.of(
        [Note(0, [["c2"]]), Note(2, [["c2"]], ['"x"']), Note(1, [["c1"]]), Note(3, [["c1"]])]
    )
    assert said(objections_to("c2", now, now, ["c1"], two)) == [("b", False), ("a", False)]


def test_of_two_clusters_at_one_point_the_first_is_meant() -> None:
    now = EvaluationPaths.of([Note(0, [["c2"], ["c1"]])])
    assert set(now.at(0)) == {"c2", ""}


@pytest.mark.parametrize(("last", "text"), [(0, "ready"), (2, "near"), (3, None)])
def test_without_anything_to_compare_with_the_end_of_each_body_is_told(
    last: int, text: str | None
) -> None:
    expected = [] if text is None else [(text, False)]
    assert said(failing("c2", ways(c2=last), ONE)) == expected


def test_rule_that_names_a_cluster_speaks_of_it_whoever_got_there() -> None:
    named = probed(body("asked", constants=frozenset({"c2"})))
    now = EvaluationPaths.of([Note(0, [], ["null"])])
    assert said(by_name("c2", now, named)) == [("asked", False)]
    assert by_name("c1", now, named) == ()
    assert by_name("c2", EvaluationPaths(), named) == ()
