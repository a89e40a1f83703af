from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from kube_sync.opa.analysis import engine, values
from kube_sync.opa.analysis.analyzer import PolicyModule, analyze, located
from kube_sync.opa.analysis.paths import EACH
from kube_sync.opa.analysis.result import Collection, Reads, unread
from kube_sync.opa.analysis.syntax import Spot

ROOTS = {"nodes": Collection(("kubernetes", "nodes"), namespaced=False)}
ALL = [()]


def var(name: str) -> Any:
    return {"type": "var", "value": name}


def text(value: Any) -> Any:
    return {"type": "string", "value": value}


def ref(head: str, *parts: Any) -> Any:
    return {"type": "ref", "value": [var(head), *parts]}


def path(*names: str) -> Any:
    head, *parts = names
    return ref(head, *map(text, parts))


def call(operator: Any, *arguments: Any) -> Any:
    return {"index": 0, "terms": [operator, *arguments]}


def rule(name: str, *body: Any, **more: Any) -> Any:
    head = {"name": name, "ref": [var(name)], "value": {"type": "boolean", "value": True}}
    return {"head": head | more, "body": list(body)}


def line(terms: Any) -> Any:
    return {"index": 0, "terms": terms}


def module(*rules: Any, package: Sequence[str] = ("main",), **more: Any) -> Any:
    parts = [var("data"), *map(text, package)]
    return {"package": {"path": parts}, "rules": list(rules)} | more


def reads_of(tree: Any, *, decision: str = "main/decision", parsed: Any = None) -> Reads:
    return analyze([PolicyModule("policy.rego", tree, parsed)], decision, ROOTS)


TESTED = rule("decision", line(path("input", "a")))
WITH_CALL = call(path("data", "main", "f"), path("input", "a"))


def test_field_is_read() -> None:
    assert reads_of(module(TESTED)).input.paths == (("a",),)


UNREADABLE: dict[str, tuple[Any, str]] = {
    "unknown node": (
        module(rule("decision", line({"type": "templatestring", "value": []}))),
        "policy.rego: unknown node 'templatestring'",
    ),
    "unknown member of a module": (module(surprise=1), "unknown module member surprise"),
    "unknown member of a rule": (
        module(TESTED | {"surprise": 1}),
        "unknown rule member surprise",
    ),
    "unknown member of a head": (module(rule("decision", surprise=1)), "unknown rule head member"),
    "unknown member of a term": (
        module(rule("decision", line(path("input") | {"surprise": 1}))),
        "unknown term member surprise",
    ),
    "unknown member of an expression": (
        module(rule("decision", line(path("input")) | {"surprise": 1})),
        "unknown expression member surprise",
    ),
    "no tree": (None, "malformed tree (AttributeError"),
    "a list": ([], "malformed tree (AttributeError"),
    "no package": ({"rules": []}, "malformed tree (KeyError"),
    "empty reference": (module(rule("decision", line({"type": "ref", "value": []}))), "ValueError"),
    "name that is none": (
        module(rule("decision", line({"type": "var", "value": 3}))),
        "3 as a name",
    ),
    "string that is none": (module(rule("decision", line(text(None)))), "None as a name"),
    "list that is none": (
        module(rule("decision", line({"type": "array", "value": 3}))),
        "3 in place of a list",
    ),
    "call of a number": (
        module(rule("decision", call({"type": "ref", "value": [text(3)]}))),
        "a call of what is no name",
    ),
    "call of nothing": (
        module(rule("decision", call({"type": "ref", "value": []}))),
        "a call of what is no name",
    ),
    "call of an unknown function": (
        module(rule("decision", WITH_CALL)),
        "a call of the unknown function main.f",
    ),
    "call of what is no function": (
        module(rule("decision", call(path("data", "main", "f"))), rule("f")),
        "a call of the unknown function main.f",
    ),
    "functions of different sizes": (
        module(
            rule("decision", WITH_CALL),
            rule("f", args=[var("x")]),
            rule("f", args=[var("x"), var("y")]),
        ),
        "different numbers of arguments of f",
    ),
    "every of a pattern": (
        module(
            rule(
                "decision",
                line({"domain": path("input"), "value": text("x"), "body": [], "key": None}),
            )
        ),
        "an every whose key or value is no variable",
    ),
    "with a target that is computed": (
        module(
            rule(
                "decision",
                line(path("input", "a"))
                | {"with": [{"target": ref("input", var("x")), "value": text("x")}]},
            )
        ),
        "a with whose target is computed",
    ),
    "with a target that is no reference": (
        module(
            rule(
                "decision",
                line(path("input", "a")) | {"with": [{"target": text("x"), "value": text("x")}]},
            )
        ),
        "a with whose target is no reference",
    ),
    "with a target that begins with no name": (
        module(
            rule(
                "decision",
                line(path("input", "a"))
                | {
                    "with": [
                        {"target": {"type": "ref", "value": [text("x")]}, "value": text("x")},
                    ]
                },
            )
        ),
        "a with whose target is no name",
    ),
    "with a builtin replaced by what OPA would have put into a variable": (
        module(
            rule(
                "decision",
                line(path("input", "a"))
                | {"with": [{"target": path("time", "now_ns"), "value": path("input", "b")}]},
            )
        ),
        "a with that replaces a function by a reference",
    ),
    "logic of another shape": (
        module(rule("decision", line({"type": "or", "lhs": [], "rhs": [], "also": 1}))),
        "unknown or member also",
    ),
    "logic without an operand": (
        module(rule("decision", line({"type": "and", "lhs": []}))),
        "malformed tree",
    ),
    "logic that nobody knows": (
        module(rule("decision", line({"type": "xor", "lhs": [], "rhs": []}))),
        "unknown term member lhs, rhs",
    ),
    "tree that was parsed only, by its imports": (
        module(TESTED, imports=[{"path": path("data", "lib")}]),
        "not compiled: it has imports",
    ),
    "tree that was parsed only, by its variables": (
        module(rule("decision", line(ref("helper", text("a")))), rule("helper")),
        "the variable helper has no value",
    ),
    "tree that was parsed only, by its calls": (
        module(rule("decision", call(ref("f"), path("input", "a"))), rule("f", args=[var("x")])),
        "policy.rego: f is a rule",
    ),
    "recursion": (
        module(
            rule("decision", line(path("data", "main", "r"))),
            rule("r", line(path("data", "main", "decision"))),
        ),
        "recursion in decision",
    ),
    "recursion of functions": (
        module(
            rule("decision", WITH_CALL),
            rule("f", call(path("data", "main", "f"), var("x")), args=[var("x")]),
        ),
        "recursion in f",
    ),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_policy_that_cannot_be_read_reads_everything(name: str) -> None:
    tree, reason = UNREADABLE[name]
    reads = reads_of(tree)
    assert reason in (reads.gave_up or "")
    assert list(reads.input.paths) == ALL
    assert list(reads.resources["nodes"].paths) == ALL
    assert reads.resources["nodes"].listed
    assert reads.impure
    assert reason in str(reads)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("recursion", Spot("policy.rego", "r", 1)),
        ("logic without an operand", Spot("policy.rego", number=0)),
    ],
)
def test_rule_that_cannot_be_read_is_named_where_it_is_known(name: str, found: Spot) -> None:
    reads = reads_of(UNREADABLE[name][0])
    assert reads.blamed == found
    (text,) = unread(reads)["policy.rego"]
    assert text.startswith("policy.rego: what this rule reads cannot be found out (")
    assert text.count("policy.rego") == 1


def test_tree_that_is_nested_too_deeply_reads_everything() -> None:
    term: Any = text("x")
    for _ in range(5000):
        term = {"type": "array", "value": [term]}
    reads = reads_of(module(rule("decision", line(term))))
    assert reads.gave_up == "the policies are nested too deeply"


def test_too_many_evaluations_read_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "_EVALUATIONS", 1)
    tree = module(rule("decision", line(path("data", "main", "r"))), TESTED, rule("r"))
    assert reads_of(tree).gave_up == "more than 1 evaluations"


def test_too_many_paths_read_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "_PLACES", 1)
    tree = module(rule("decision", line(path("input", "a")), line(path("input", "b"))))
    assert reads_of(tree).gave_up == "more than 1 paths are read"


@pytest.mark.parametrize("head", ["input", "data"])
def test_reference_to_too_many_places_reads_everything(
    head: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(values, "_MOST", 3)
    keys = {"type": "array", "value": [text("a"), text("b")]}
    element = {"domain": keys, "key": None, "value": var("__local1__")}
    element["body"] = [line(ref(head, text("x"), *[var("__local1__")] * 2))]
    assert reads_of(module(rule("decision", line(element)))).gave_up == (
        "a reference may lead to more than 3 places"
    )


@pytest.mark.parametrize(("x", "y"), [("x", "y"), ("__local1__", "__local2__")])
def test_variables_that_are_made_of_each_other_end(x: str, y: str) -> None:
    tree = module(
        rule(
            "decision",
            call(ref("eq"), var(x), {"type": "array", "value": [var(y)]}),
            call(ref("eq"), var(y), ref(x, {"type": "number", "value": 0})),
            call(ref("eq"), var(y), path("input", "a")),
            value=ref(y, text("b")),
        )
    )
    assert reads_of(tree).input.paths == (("a",),)


def test_every_without_a_key_reads_its_elements() -> None:
    body = [line(ref("x", text("b")))]
    every = {"key": None, "value": var("x"), "domain": path("input", "a"), "body": body}
    assert reads_of(module(rule("decision", line(every)))).input.paths == (("a", EACH, "b"),)


def test_rule_without_a_reference_is_found_by_its_name() -> None:
    head = {"name": "decision", "value": path("input", "a")}
    assert reads_of(module({"head": head, "body": []})).input.paths == (("a",),)


def test_package_reads_what_all_its_rules_read() -> None:
    tree = module(TESTED, rule("other", line(path("input", "b"))))
    reads = reads_of(tree, decision="main")
    assert reads.input.paths == (("a",), ("b",))
    assert [field.path for field in reads.others] == [("main",)]


def test_decision_that_no_policy_makes_reads_other_data() -> None:
    reads = reads_of(module(TESTED), decision="elsewhere/x")
    assert reads.input.paths == ()
    assert not reads.input.used
    assert [field.path for field in reads.others] == [("elsewhere", "x")]


def test_builtin_that_changes_by_itself_is_named() -> None:
    tree = module(rule("decision", call(path("time", "now_ns"), var("t"))))
    (asked,) = reads_of(tree).impure["time.now_ns"]
    assert (asked.module, asked.rule) == ("policy.rego", "decision")
    assert "time.now_ns, called by policy.rego decision: called" in str(reads_of(tree))


def test_file_and_row_tell_who_asked() -> None:
    parsed = {"rules": [{"head": {"location": {"row": 7}}}, {"head": None}, 3]}
    for tree, row in ((parsed, 7), ({"rules": 3}, None), (None, None)):
        (field,) = reads_of(module(TESTED), parsed=tree).input.fields
        assert {(ask.module, ask.row) for ask in field.asked} == {("policy.rego", row)}


def test_target_keeps_what_is_read_as_input_and_as_data() -> None:
    node = ref("data", text("kubernetes"), text("nodes"), var("$1"), text("b"))
    reads = reads_of(module(rule("decision", line(path("input", "a")), line(node))))
    assert reads.target_paths("nodes") == (("a",), ("b",))
    assert reads.resources["nodes"].paths == (("b",),)
    assert reads.resources["nodes"].listed


def test_one_object_by_its_name_lists_none() -> None:
    node = path("data", "kubernetes", "nodes", "n", "b")
    nodes = reads_of(module(rule("decision", line(node)))).resources["nodes"]
    assert (nodes.paths, nodes.used, nodes.listed) == ((("b",),), True, False)


def test_what_is_read_prints_as_a_tree_and_as_json() -> None:
    body = (
        line(ref("input", text("a-b"), var("$1"), text("c"))),
        line(path("data", "kubernetes", "nodes")),
        line(path("data", "more")),
        call(ref("json", text("marshal")), path("input", "d")),
    )
    reads = reads_of(module(rule("decision", *body)))
    assert str(reads).splitlines() == [
        "input",
        '  ["a-b"][*].c',
        "  d  (whole: policy.rego decision: json.marshal)",
        "nodes",
        "other data",
        "  more",
    ]
    found = json.loads(json.dumps(reads.builtins()))
    assert found["input"]["fields"][0]["path"] == ["a-b", EACH, "c"]
    assert found["input"]["fields"][1]["whole"] is True
    assert found["resources"]["nodes"] == {"used": True, "listed": False, "fields": []}
    assert "nodes (not read)" in str(reads_of(module(TESTED)))
    assert "(all of it)" in str(reads_of(None))


def test_equal_policies_give_equal_reads() -> None:
    tree = module(TESTED, rule("other", line(path("input", "b"))))
    assert str(reads_of(tree, decision="main")) == str(reads_of(tree, decision="main"))
    assert reads_of(tree, decision="main") == reads_of(tree, decision="main")


@pytest.mark.parametrize("spot", [None, Spot("m")])
def test_what_is_in_no_rule_has_no_row(spot: Spot | None) -> None:
    assert located(spot, lambda _module, number: number) == spot
