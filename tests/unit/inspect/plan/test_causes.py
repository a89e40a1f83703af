from __future__ import annotations

from kube_sync.decisions.explaining import Rule
from kube_sync.inspect.plan.causes import RULES, responsible

HEAD = Rule("p/a.rego", 3, "a.annotations", applied=True, text="annotations := x if {")


def test_rule_that_applies_on_one_side_only_is_responsible() -> None:
    other = Rule("p/a.rego", 9, "a.errors", applied=True, text="errors contains m if {")
    found = responsible([HEAD], [other], {})
    assert [(c.row, c.rule, c.when) for c in found] == [
        (9, "a.errors", "then"),
        (3, "a.annotations", "now"),
    ]


def test_rule_that_was_entered_and_not_applied_is_not() -> None:
    entered = Rule("p/a.rego", 9, "a.errors", applied=False, text="errors contains m if {")
    assert [c.row for c in responsible([HEAD], [HEAD, entered], {})] == [3]


def test_rule_that_only_moved_within_its_file_is_the_same() -> None:
    below = Rule("p/a.rego", 5, HEAD.name, applied=True, text=HEAD.text)
    assert [(c.row, c.when) for c in responsible([HEAD], [below], {})] == [(5, "both")]


def test_where_both_sides_apply_the_same_a_candidate_s_rules_come_first_and_helpers_not() -> None:
    helper = Rule("p/a.rego", 7, "a._fit", applied=True, text="_fit := 1")
    mine = Rule("p/b.rego", 1, "a.labels", applied=True, text="labels := 1")
    rules = [HEAD, helper, mine]
    found = responsible(rules, rules, {"p/b.rego": "my/b.rego"})
    assert [(c.file, c.row) for c in found] == [("my/b.rego", 1), ("p/a.rego", 3)]
    assert [c.row for c in responsible([helper], [helper], {})] == [7]


def test_few_rules_are_named() -> None:
    many = [Rule("f", n, f"a.r{n}", applied=True) for n in range(20)]
    assert len(responsible([], many, {})) == RULES
