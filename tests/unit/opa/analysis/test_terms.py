from __future__ import annotations

import pytest

from kube_sync.opa.analysis.syntax import (
    Call,
    Clause,
    Closure,
    Every,
    Expr,
    Items,
    Logic,
    Pairs,
    Ref,
    Rule,
    Scalar,
    Term,
    Var,
    With,
)
from kube_sync.opa.analysis.terms import locals_of, nodes_of, reference, resolved


def text(value: str) -> Scalar:
    return Scalar("string", value)


DATA, X, Y = Var("data"), Var("x"), Var("y")
AB = Items("array", (text("a"), text("b")))


def test_local_variable_stands_for_what_it_is_equal_to_on_either_side() -> None:
    equal = [Call(("eq",), (X, DATA)), Call(("eq",), (text("a"), Y))]
    found = locals_of(iter([*equal, X, Call(("eq",), (text("a"), text("b")))]))
    assert found == {"x": DATA, "y": text("a")}


def test_reference_begins_with_what_its_variable_stands_for() -> None:
    known: dict[str, Term] = {"x": Ref(DATA, (text("a"),)), "y": X}
    assert resolved(Ref(Y, (text("b"),)), known) == Ref(DATA, (text("a"), text("b")))


def test_variables_that_stand_for_one_another_are_followed_for_a_while_only() -> None:
    assert resolved(X, {"x": Y, "y": X}) in (X, Y)


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        (Ref(X, (text("a"), Y)), ("data", ("a", None))),
        (Call(("object", "get"), (X, text("a"), text("no"))), ("data", ("a",))),
        (
            Call(("object", "get"), (X, Items("array", (text("a"), text("b"))))),
            ("data", ("a", "b")),
        ),
        (Call(("object", "get"), (text("no object"), text("a"))), None),
        (Call(("object", "get"), (X, Y)), None),
        (Call(("count",), (X,)), None),
        (X, None),
    ],
)
def test_paths_are_found_of_references_and_of_object_get(
    node: Term | Call, expected: tuple[str, tuple[str | None, ...]] | None
) -> None:
    assert reference(node, {"x": DATA}) == expected


def test_no_term_of_a_rule_is_left_out() -> None:
    """Each text stands in another place: head, argument, value, and every kind of line."""
    replaced = With(Ref(DATA, (text("target"),)), text("with"))
    inner = (Expr(Call(("f",), (text("call"),)), withs=(replaced,)),)
    body = (
        Expr(Every(X, Y, text("domain"), inner)),
        Expr(Logic("not", ((Expr(text("logic")),),))),
        Expr(Ref(X, (text("part"),))),
        Expr(Closure("object", text("key"), text("value"), (Expr(text("line")),))),
        Expr(Closure("set", None, Items("array", (text("item"),)), ())),
        Expr(Pairs(((text("name"), text("member")),))),
    )
    clause = Clause((text("argument"),), text("result"), body)
    rule = Rule("r", (text("path"),), True, False, False, (clause,), 0)  # noqa: FBT003 - as parsed
    found = {node.value for node in nodes_of(rule) if isinstance(node, Scalar)}
    assert found == {
        *("path", "argument", "result", "domain", "call", "target", "with", "logic", "part"),
        *("key", "value", "line", "item", "name", "member"),
    }
    calls = [node.operator for node in nodes_of(rule) if isinstance(node, Call)]
    assert calls == [("f",)]
