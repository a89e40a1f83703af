"""Which packages a decision may see: an edit of any other one changes no decision."""

from __future__ import annotations

import pytest

from kube_sync.opa.analysis.analyzer import analyze
from tests.analysis.equality import ROOTS
from tests.analysis.opa import PolicyOpa

DECISION = "main/decision"
SEEN = "package seen.deep\n\nvalue := 1\n\nf(x) := x\n\nnames contains x if some x in input.names\n"
# Ways to look at `seen.deep`, as bodies of the decision.
WAYS = {
    "by its name": "data.seen.deep.value == 1",
    "in brackets": 'data["seen"].deep.value == 1',
    "as a whole": "data.seen.deep == input.name",
    "from above": "count(data.seen) == 1",
    "from further above": "some name, _ in data.seen; name != input.name",
    "negated": "not data.seen.deep.value == 2",
    "by a key of the input": "data.seen[input.name].value == 1",
    "by a variable": 'some name in ["deep", "flat"]; data.seen[name].value == 1',
    "by a call": "data.seen.deep.f(input.name) == 1",
    "as an element": '"a" in data.seen.deep.names',
    "in a comprehension": "[x | x := data.seen.deep.value] == [1]",
    "in every": "every x in input.names { x == data.seen.deep.value }",
    "by walking": "walk(data.seen, [path, value]); value == 1",
    "in place of another": "input.name == 1 with input.name as data.seen.deep.value",
    "before it is there": "data.seen.deep.missing == 1",
    "by another rule": "helper",
    "by another package": "data.between.value == 1",
    "by an alias": "alias.value == 1",
}
MAIN = "package main\n\nimport data.seen.deep as alias\n\n"
HELPERS = """
helper if other

other if data.seen.deep.value == 1
"""
BETWEEN = "package between\n\nvalue := data.seen.deep.value\n"


@pytest.mark.parametrize("way", WAYS)
def test_what_a_decision_looks_at_may_be_seen(policy_opa: PolicyOpa, way: str) -> None:
    main = f"{MAIN}decision if {{ {WAYS[way]} }}\n{HELPERS}"
    modules = {"seen.rego": SEEN, "between.rego": BETWEEN, "main.rego": main}
    reads = analyze(policy_opa.compile(modules), DECISION, ROOTS)
    assert reads.gave_up is None
    for package in (("seen", "deep"), ("seen",), ("main",), ("main", "decision")):
        assert reads.may_see(package), package
    for package in (("unseen",), ("kube_sync_budget",), ("mainly",)):
        assert not reads.may_see(package), package
    assert reads.may_see(("between",)) == (way == "by another package")


def test_what_is_looked_at_by_any_name_may_be_any_package(policy_opa: PolicyOpa) -> None:
    main = "package main\n\nimport data.seen\n\ndecision if data[input.name].value == 1\n"
    reads = analyze(policy_opa.compile({"main.rego": main}), DECISION, ROOTS)
    assert reads.may_see(("unseen",))


def test_a_package_that_is_not_there_yet_may_be_seen(policy_opa: PolicyOpa) -> None:
    main = "package main\n\ndecision if not data.seen.deep.value\n"
    reads = analyze(policy_opa.compile({"main.rego": main}), DECISION, ROOTS)
    assert reads.may_see(("seen", "deep"))
    assert reads.may_see(("seen",))
    assert reads.may_see(("seen", "deep", "value", "further"))
    assert not reads.may_see(("seen", "flat"))


def test_what_could_not_be_analysed_may_see_everything() -> None:
    assert analyze([], "", {}).gave_up is None
    assert analyze([], DECISION, {}).may_see(("main",))
