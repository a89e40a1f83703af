"""Which changes are worth a try, and which come first."""

from __future__ import annotations

from typing import Any

from kube_sync.inspect.why.candidate_changes import Side, changes
from kube_sync.inspect.why.change import ABSENT, Change
from kube_sync.inspect.why.terms import constants
from kube_sync.opa.analysis.result import Ask, FieldRead
from tests.unit.inspect.plan.fleets import cluster

ROW = 3


def field(*path: str | None, row: int = ROW) -> FieldRead:
    return FieldRead(path, whole=True, asked=(Ask("p", "rule", row, "read"),))


def label(name: str, **more: int) -> FieldRead:
    return field("metadata", "labels", name, **more)


def tried(sides: list[Side], known: dict[tuple[str, int], tuple[Any, ...]] | None = None) -> Any:
    found = [*changes(sides, known or {})]
    assert len(found) == len({(c.of, c.spot, str(c)) for c in found})
    return found


def values(found: list[Change], *spot: str | int) -> list[Any]:
    return [c.after for c in found if c.spot == spot]


def test_values_that_others_have_come_first_the_frequent_ones_before() -> None:
    others = [cluster("c2", zone="us"), cluster("c3", zone="asia"), cluster("c4", zone="asia")]
    side = Side("cluster", cluster("c1", zone="eu"), [label("zone")], others)
    assert values(tried([side]), "metadata", "labels", "zone") == ["asia", "us", ABSENT]


def test_what_the_other_side_of_a_comparison_has_is_tried() -> None:
    asked = ("metadata", "annotations", "wants")
    body = {"metadata": {"annotations": {"wants": "pci"}}}
    sides = [
        Side("cluster", cluster("c1", level="none"), [label("level")]),
        Side("object", body, [field(*asked)]),
    ]
    assert values(tried(sides), "metadata", "labels", "level") == ["pci", ABSENT]
    assert values(tried(sides), *asked) == ["none", ABSENT]


def test_constants_are_tried_with_a_step_beyond_in_the_form_that_lies_there() -> None:
    known = {("p", ROW): (3, "gold", True)}
    side = Side("cluster", cluster("c1", level="2"), [label("level")])
    found = values(tried([side], known), "metadata", "labels", "level")
    assert found[:2] == ["3", "gold"]
    assert {"4", "1", "true"} <= {*found}
    assert all(value is ABSENT or isinstance(value, str) for value in found)
    number = Side("cluster", {"spec": {"level": 2}}, [field("spec", "level")])
    assert {*values(tried([number], known), "spec", "level")} == {1, 3, 4, ABSENT}


def test_truth_is_switched() -> None:
    side = Side("cluster", cluster("c1", pci="false"), [label("pci")])
    assert values(tried([side]), "metadata", "labels", "pci") == ["true", ABSENT]
    side = Side("cluster", {"spec": {"off": True}}, [field("spec", "off")])
    assert values(tried([side]), "spec", "off") == [False, ABSENT]


def test_what_is_absent_may_be_there() -> None:
    side = Side("cluster", cluster("c1"), [label("pci")])
    assert values(tried([side]), "metadata", "labels", "pci") == ["true", "false"]


def test_label_gets_no_value_that_no_label_can_have() -> None:
    known = {("p", ROW): ("no cluster fits", "x" * 64, "-", "")}
    side = Side("cluster", cluster("c1", zone="eu"), [label("zone")])
    assert values(tried([side], known), "metadata", "labels", "zone") == ["", ABSENT]


def test_all_spots_have_their_turn_before_any_has_its_second() -> None:
    others = [cluster(f"c{n}", a=f"a{n}", b=f"b{n}") for n in range(2, 6)]
    side = Side("cluster", cluster("c1", a="x", b="x"), [label("a"), label("b")], others)
    assert [c.spot[-1] for c in tried([side])[:4]] == ["a", "b", "a", "b"]


def test_constants_are_those_of_the_rule_and_not_the_names_in_references() -> None:
    tree = {
        "rules": [
            {
                "head": {"name": "x", "location": {"row": 5}, "ref": [{"type": "var"}]},
                "body": [
                    {
                        "terms": [
                            {"type": "ref", "value": [{"type": "var", "value": "gte"}]},
                            {
                                "type": "ref",
                                "value": [
                                    {"type": "var", "value": "cluster"},
                                    {"type": "string", "value": "level"},
                                ],
                            },
                            {"type": "number", "value": 3},
                        ]
                    }
                ],
            }
        ]
    }
    assert constants({"p": tree, "broken": None, "odd": {"rules": [7]}}) == {
        ("p", 5): (3,),
        ("odd", 0): (),
    }
