"""Every construct of Rego by itself: which paths it reads, no fewer and, where proven, no more.

Each is tried on objects at random too: equal decisions over what is read, and for every path
another decision when that path is left out.
"""

from __future__ import annotations

from typing import Any

import pytest

from kube_sync.opa.analysis.analyzer import analyze
from kube_sync.opa.analysis.paths import Path
from kube_sync.opa.analysis.result import Reads, shown
from tests.analysis.equality import ROOTS, Paths, decisions, over_projection, paths_of
from tests.analysis.generate import chance, some_objects, some_world
from tests.analysis.opa import PolicyOpa

DATA = "data.kubernetes"
LOGIC = "".join(f"import future.keywords.{word}\n" for word in ("and", "or", "not"))
# Modules are divided by `---`; the last one, of package main, makes the decision. What is read of
# `input` comes first, then what is read of clusters and of nodes.
CONSTRUCTS: dict[str, tuple[str, str]] = {
    "field": ("decision := input.a.b", "a.b"),
    "tested for existence": ("decision if input.a", "a"),
    "tested, and read below": ("decision if { input.a; input.a.b == 1 }", "a.b"),
    "negated": ("decision if not input.a.b", "a.b"),
    "negated comparison": ("decision if not input.a.b == 1", "a.b"),
    "compared with a constant": ('decision if input.a == "a"', "a"),
    "ordered": ("decision if input.a < input.b", "a b"),
    "ordered with a result": ("decision := x if x := input.a < input.b", "a b"),
    "differs": ("decision if input.a != input.b", "a b"),
    "equal with a result": ("decision := [x] if x := (input.a == input.b)", "a b"),
    "compared with each other": ("decision if input.a == input.b", "a b"),
    "unified": ("decision if { x = input.a; x = input.b }", "a b"),
    "variables equal": ("decision if { x := input.a; y := input.b; x == y }", "a b"),
    "variables unified": ("decision if { x := input.a; y = x; y.b }", "a.b"),
    "alias": ("decision if { x := input.a; y := x.b; y.c }", "a.b.c"),
    "alias compared later": ("decision if { x := input.a; x.b; x == input.c }", "a c"),
    "alias tested": ("decision if { x := input.a; x }", "a"),
    "iteration": ("decision contains x if x := input.a[_].b", "a[*].b"),
    "array index": ("decision := input.a[0].b", "a[*].b"),
    "key that varies": ("decision contains k if input.a[k].b", "a[*].b"),
    "key compared": ('decision if { some k; input.a[k].b; k == "a" }', "a.a.b"),
    # What holds within a body of its own says nothing of the variables around it.
    "key that a negation excludes": (
        'decision if { some k; input.a[k].b; not k == "a" }',
        "a[*].b",
    ),
    "key that a negation excludes by a variable": (
        'decision if { some k; input.a[k].b; y := "a"; not k == y }',
        "a[*].b",
    ),
    "key that a comprehension compares": (
        'decision if { some k; input.a[k].b; count([1 | k == "a"]) == 0 }',
        "a[*].b",
    ),
    "key that every compares": (
        'decision if { some k; input.a[k].b; every x in input.c { [x, k] != [1, "a"]; k != "a" } }',
        "a[*].b c",
    ),
    "key that every equals": (
        'decision if { some k; input.a[k].b; every _ in input.c { k == "a" } }',
        "a[*].b c",
    ),
    "key that a negation and a line compare": (
        'decision if { some k; input.a[k].b; k == "a"; not k == "b" }',
        "a.a.b",
    ),
    "value that a negation compares": (
        'r := x if { some x in input.a; not x == "a" }\ndecision if r.b',
        "a",
    ),
    "variables that a negation compares": (
        "decision if { x := input.a; y := input.b; not x == y; x.c }",
        "a b",
    ),
    "and": (f"{LOGIC}decision if {{ input.a.b and input.b > 1 }}", "a.b b"),
    "or": (f"{LOGIC}decision if {{ input.a.b or input.b.c }}", "a.b b.c"),
    "or of bodies": (
        f"{LOGIC}decision if {{ {{ x := input.a; x.b; x.c }} or {{ x := input.b; x.c }} }}",
        "a.b a.c b.c",
    ),
    "or that compares a key": (
        f'{LOGIC}decision if {{ some k; input.a[k].b; {{ k == "a" }} or {{ input.c }} }}',
        "a[*].b c",
    ),
    "and that compares a key": (
        f'{LOGIC}decision contains k if {{ some k; input.a[k].b; {{ k == "a" }} and input.c }}',
        "a[*].b c",
    ),
    "or whose sides name one variable": (
        f'{LOGIC}decision if {{ {{ k = "a"; input.a[k].b }} or {{ input.b[k].c }} }}',
        "a[*].b b[*].c",
    ),
    "or within and": (
        f"{LOGIC}decision if {{ input.a.b and ({{ input.b == 1 }} or input.c.k) }}",
        "a.b b c.k",
    ),
    "or under with": (
        f"{LOGIC}r if input.b\ndecision if {{ r or input.k with input as input.a }}",
        "a.b a.k",
    ),
    "or in a comprehension": (
        f"{LOGIC}decision := [x.k | some x in input.a; {{ x.b == 1 }} or {{ x.c == 2 }}]",
        "a[*].b a[*].c a[*].k",
    ),
    "or in every": (f"{LOGIC}decision if every x in input.a {{ x.b or x.c }}", "a[*].b a[*].c"),
    "or of variables around it": (
        f"{LOGIC}decision if {{ x := input.a; y := input.b; {{ x == y }} or x.c }}",
        "a b",
    ),
    "not of a body": (f"{LOGIC}decision if not {{ x := input.a; x.b; x.c == 1 }}", "a.b a.c"),
    "not of one line": (f"{LOGIC}decision if not input.a.b", "a.b"),
    "not of a comparison": (f"{LOGIC}decision if not input.a.b > 1", "a.b"),
    "not of a body that compares a key": (
        f'{LOGIC}decision if {{ some k; input.a[k].b; not {{ k == "a"; input.c }} }}',
        "a[*].b c",
    ),
    "not and or of rego.v2": (
        "import rego.v2\ndecision if { not { input.a.b } or input.b.c }",
        "a.b b.c",
    ),
    "two rules of which one says not in a body": (
        f"{LOGIC}r := input.a if input.k\nr := input.b if not input.k\ndecision if r.b",
        "a.b b.b k",
    ),
    "two rules of which one says or": (
        (
            f'{LOGIC}r := input.a if {{ input.k == "a" or input.c }}\n'
            'r := input.b if input.k == "b"\ndecision if r.b'
        ),
        "a b c k",
    ),
    "key from the input": ("decision := input.a[input.k]", "a k"),
    "key joins two": ("decision contains k if input.a[k].b == input.b[k].c", "a[*].b b[*].c"),
    "keys spelt out": ('decision contains k if { some k in ["a", "b"]; input.c[k] }', "c.a c.b"),
    "keys of an object spelt out": (
        'decision if { some k, v in {"a": "x", "b": "a"}; input[k] == v }',
        "a b",
    ),
    "keys of what is computed": (
        "decision if { some k in object.keys(input.a); input.b[k].c }",
        "a b[*].c",
    ),
    "keys that depend on each other": (
        "decision contains i if { some i; x := input.a[i]; x.b[i].c }",
        "a[*].b[*].c",
    ),
    "some in": ("decision contains x.b if some x in input.a", "a[*].b"),
    "some key in": ("decision contains k if some k, x in input.a", "a"),
    "some key and value in": ("decision contains k if { some k, x in input.a; x.b }", "a[*].b"),
    "member of constants": ('decision if input.a.b in {"a", "b"}', "a.b"),
    "constant is a member": ('decision if "a" in input.a', "a"),
    "not a member of constants": ('decision if not input.a.b in {"a", "b"}', "a.b"),
    "field is a member": ("decision if input.a in input.b", "a b"),
    "key and value are a member": ('decision if "a", "b" in input.a', "a"),
    "member with a result": ('decision := x if x := "a" in input.a', "a"),
    "array comprehension": ("decision := [x.b | some x in input.a]", "a[*].b"),
    "set comprehension": ("decision := count({x | some x in input.a; x.b})", "a"),
    "object comprehension": ("decision := {k: x.b | some k, x in input.a}", "a[*].b"),
    "object comprehension whose keys come twice": (
        "decision if { y := {x.k: x | some x in input.a}; y.a.b == 1 }",
        "a",
    ),
    "object comprehension whose value is settled": (
        "decision contains y[_].b if y := {k: x | some k, x in input.a}",
        "a[*].b",
    ),
    "nested comprehensions": (
        "decision := [y | some x in input.a; y := [z.c | z := x.b[_]]]",
        "a[*].b[*].c",
    ),
    "comprehension over what is around it": (
        "decision := [y | some x in input.a; y := [z | z := input.c[_]; z > x.b]]",
        "a[*].b c",
    ),
    "one undeclared name in two comprehensions": (
        'decision := [[1 | y = "a"; input.a[y]], [1 | input.b[y].c]]',
        "a b[*].c",
    ),
    "one undeclared name in two comprehensions, one of them of an object": (
        (
            'decision if { w := [1 | y = "a"; input.b[y]]; w[_]\n'
            "z := {k: x | some k; x := input.a[y][k]}; z.k.c }"
        ),
        "a b",
    ),
    "every": ("decision if every x in input.a { x.b == 1 }", "a[*].b"),
    "every with a key": ('decision if every k, x in input.a { x.b; k != "c" }', "a[*].b"),
    "every without a variable used": ("decision if every x in input.a { [x] != 1 }", "a"),
    "every in a comprehension": (
        "decision := [x.b | some x in input.a; every y in x.c { y == 1 }]",
        "a[*].b a[*].c",
    ),
    "every whose variable is not named": (
        "decision if every _ in input.a { input.b }",
        "a b",
    ),
    "every over members compared": (
        "decision if every k, x in input.a { input.b[k] == x }",
        "a b",
    ),
    "array": ("decision := y.b if { x := [input.a, input.b]; y := x[0] }", "a.b b.b"),
    "array returned": ("decision := [input.a.b, input.b]", "a.b b"),
    "set": ("decision := count({input.a, input.b})", "a b"),
    "object": ('decision := x.y.b if { x := {"y": input.a, "z": input.b} }', "a.b b"),
    "object with a computed key": (
        "decision := x.a.b if { x := {input.k: input.a} }",
        "a.b k",
    ),
    "empty object": ("decision := object.union({}, input.a)", "a"),
    "array pattern": ("decision := x if [x, _] = input.a", "a"),
    "object pattern": ('decision := x if {"a": x} = input.a', "a"),
    "pattern on both sides": ("decision := y if { [x, y] = [input.a, input.b]; x.b }", "a b"),
    "pattern in a loop": ('decision contains x if {"a": x} = input.a[_]', "a"),
    "reference compared with a literal": ('decision if input.a == {"b": input.b}', "a b"),
    "object.get": ('decision := object.get(input.a, "b", "none")', "a.b"),
    "object.get along a path": ('decision := object.get(input, ["a", "b"], "none")', "a.b"),
    "object.get along a path with an index": (
        'decision := object.get(input, ["a", 0, "b"], "none")',
        "a[*].b",
    ),
    "object.get with a default that has nothing below": (
        'decision := object.get(input.a, "b", "none").c',
        "a.b.c",
    ),
    "object.get with an index": ("decision := object.get(input.a, 0, 1)", "a"),
    "object.get with a default read": (
        'decision := object.get(input.a, "b", input.c).k',
        "a.b.k c.k",
    ),
    "object.get with a computed key": ("decision := object.get(input.a, input.k, 1)", "a k"),
    "object.get along a computed path": ('decision := object.get(input, ["a", input.k], 1)', "a k"),
    "object.get by a helper": (
        """get(o, path) := object.get(o, path, "none")
decision := [get(input, ["a", "b"]), get(input.c, "k")]""",
        "a.b c.k",
    ),
    "object.union": ("decision := object.union(input.a, input.b).c", "a.c b.c"),
    "object.remove": ('decision := object.remove(input.a, ["a"]).b', "a.b"),
    "object.filter": ("decision := object.filter(input.a, input.b).c", "a.c b"),
    "object.keys": ("decision := object.keys(input.a)", "a"),
    "count": ("decision := count(input.a)", "a"),
    "count of what is read below": (
        "decision := x if { x := count(input.a); input.a[_].b }",
        "a[*].b",
    ),
    "array.concat": (
        "decision contains x.b if some x in array.concat(input.a, input.b)",
        "a[*].b b[*].b",
    ),
    "array.slice": ("decision := array.slice(input.a, 0, 1)[0].b", "a[*].b"),
    "json.filter": ('decision := json.filter(input.a, ["b"]).b', "a"),
    "json.remove": ('decision := json.remove(input.a, ["b"]).c', "a"),
    "builtin that is not known": ("decision := json.marshal(input.a)", "a"),
    "builtin of scalars": ('decision if startswith(input.a.b, "a")', "a.b"),
    "builtin of scalars with a result": ("decision := lower(input.a.b)", "a.b"),
    "type": ("decision := type_name(input.a)", "a"),
    "type of what is read below": ("decision if { is_object(input.a); input.a.b }", "a.b"),
    "arithmetic": ("decision := input.a.b + 1", "a.b"),
    "template": ('decision := $"is {input.a.b}"', "a.b"),
    "print": ("decision := input.b if print(input.a.b)", "b"),
    "walk": ("decision contains p if walk(input.a, [p, 1])", "a"),
    "walk with variables": ('decision contains p if { walk(input.a, [p, v]); v.b == "b" }', "a"),
    "else": (
        "decision := 1 if { input.a.b == 1 } else := input.b.c if { input.c } else := 3",
        "a.b b.c c",
    ),
    "default": ("default decision := 7\n\ndecision := 1 if input.a.b", "a.b"),
    "complete rule of two values": ("r := x if some x in input.a\ndecision if r.b", "a"),
    "complete rule of one value": (
        "r := x if { x := input.a; input.b[_] }\ndecision if r.b",
        "a.b b",
    ),
    "complete rule of a comprehension": (
        "r := [x | some x in input.a]\ndecision if r[_].b",
        "a[*].b",
    ),
    "two rules of one name": (
        "r := input.a if input.k\nr := input.b if input.c\ndecision if r.b",
        "a b c k",
    ),
    "two rules that exclude each other": (
        'r := input.a if input.k == "a"\nr := input.b if input.k == "b"\ndecision if r.b',
        "a.b b.b k",
    ),
    "partial set": ("r contains x.b if some x in input.a\ndecision := r", "a[*].b"),
    "partial set of aliases": ("r contains x if some x in input.a\ndecision if r[_].b", "a"),
    "partial object": ("r[k] := x.b if some k, x in input.a\ndecision := r", "a[*].b"),
    "partial object read by a key": (
        "r[k] := x if some k, x in input.a\ndecision := r.a.b",
        "a[*].b",
    ),
    "partial object by a key that comes twice": (
        "r[x.k] := x if some x in input.a\ndecision if r.a.b",
        "a",
    ),
    "partial objects that may meet": (
        'r[k] := x if some k, x in input.a\nr["a"] := input.b\ndecision if r.a.k',
        "a b",
    ),
    "members with keys of their own": (
        'r["x"] := input.a\nr["y"] := input.b\ndecision if r.x.k',
        "a.k",
    ),
    "rule within a rule": ("r.x[k] := v if some k, v in input.a\ndecision := r.x.a.b", "a[*].b"),
    "set within an object": ("decision[k] contains x.b if some k, x in input.a", "a[*].b"),
    "function": ("f(x) := x.b\n\ndecision := f(input.a)", "a.b"),
    "function whose argument is unused": ("f(_) := 1\n\ndecision := f(input.a)", "a"),
    "function that tests": ("f(x) if x.b\n\ndecision if f(input.a)", "a.b"),
    "function twice": ("f(x) := x.b\n\ndecision := [f(input.a), f(input.b)]", "a.b b.b"),
    "function whose value is read below": (
        'f(x) := {"y": x.b}\n\ndecision := f(input.a).y.c',
        "a.b.c",
    ),
    "function with a pattern": ("f([x, y]) := x.b if y.c\n\ndecision := f(input.a)", "a"),
    "function with a constant": ('f("a", x) := x.b\n\ndecision := f(input.k, input.a)', "a.b k"),
    "function of two values": (
        "f(x) := x.a if x.k\n\nf(x) := x.b if x.c\n\ndecision if f(input.a).b",
        "a.a a.b a.c a.k",
    ),
    "function by a key": ('f(x, k) if x[k]\n\ndecision if f(input.a, "b")', "a.b"),
    "function with a default": (
        "default f(_) := 1\n\nf(x) := x.b\n\ndecision := f(input.a)",
        "a.b",
    ),
    "function with else": (
        "f(x) := x.a if { x.b } else := x.c\n\ndecision := f(input.a)",
        "a.a a.b a.c",
    ),
    "import": (
        """package lib.more
r := input.a
f(x) := x.c
---
import data.lib.more
import data.lib.more.f as g
decision := [more.r.b, g(input.b)]""",
        "a.b b.c",
    ),
    "import of the input": ("import input.a as x\n\ndecision := x.b", "a.b"),
    "with input": ("r := input.c\ndecision := x if x := r with input as input.a", "a.c"),
    "with input for both sides": (
        "decision if input.b == input.c with input as input.a",
        "a.b a.c",
    ),
    "with input built": (
        'r := input.c.b\ndecision := x if x := r with input as {"c": input.a, "k": input.b}',
        "a.b b",
    ),
    "with a part of the input": (
        "r := [input.a.b, input.a.c, input.k]\ndecision := x if x := r with input.a.b as input.b.c",
        "a.b a.c b.c k",
    ),
    "with data": (
        "r := input[data.mode]\ndecision := x if x := r with data.mode as input.k",
        "(all of it)",
    ),
    "with data read below": (
        "r := data.mode.b\ndecision := x if x := r with data.mode as input.a",
        "a",
    ),
    "with a rule replaced": (
        'mode := "a"\nr := input[mode]\ndecision := x if x := r with data.main.mode as input.k',
        "(all of it)",
    ),
    "with on a test": ("r if input.b\ndecision if not r with input as input.a", "a.b"),
    "with in a comprehension": (
        "r := input.b\ndecision := [x | some y in input.a; x := r with input as y]",
        "a[*].b",
    ),
    "with a function for a function": (
        "f(x) := x.b\ng(x) := x.c\ndecision := y if y := f(input.a) with f as g",
        "a.c",
    ),
    "with a function for a builtin": (
        "g(x) := x.c\ndecision := y if y := json.marshal(input.a) with json.marshal as g",
        "a.c",
    ),
    "with a builtin for a function": (
        "f(x) := x.b\ndecision := y if y := f(input.a) with f as count",
        "a",
    ),
    "with a value for a function": (
        "f(x) := x.b\ndecision := y.c if y := f(input.a) with f as input.k",
        "a k.c",
    ),
    "with a rule for a function": (
        "f(x) := x.b\nq := input.c\ndecision := y if y := f(1) with f as q with input as input.a",
        "a.c",
    ),
    "with a value for a builtin": (
        "decision := y if y := json.marshal(input.a) with json.marshal as input.k",
        "a k",
    ),
    "with a function that calls what it stands for": (
        "f(x) := x.b\ng(x) := [f(x), x.c]\ndecision := y if y := f(input.a) with f as g",
        "a.b a.c",
    ),
    "with a function for one that a rule calls": (
        ("f(x) := x.b\ng(x) := x.c\nr := f(input.a)\ndecision := [x, r] if x := r with f as g"),
        "a.b a.c",
    ),
    "with a test that keeps two rules apart replaced": (
        (
            "r := input.a if is_string(input.k)\nr := input.b if is_array(input.k)\n"
            "decision := 1 if r.b with is_string as true with is_array as true"
        ),
        "a b k",
    ),
    "variables unified twice": ("decision if { x := input.a; y = x; x = y; y.b }", "a.b"),
    "variables made of each other": (
        "r := x if { x = input.a[_]; [y] = [x]; y = [_] }\ndecision if r[0].b",
        "a",
    ),
    "member of a set by a pattern": (
        'r contains [x.k, x.b] if some x in input.a\ndecision contains y if r[["a", y]]',
        "a[*].b a[*].k",
    ),
    "member of a set by what is made": (
        "r contains [x, 1] if some x in input.a\ndecision if { y := input.b; y.c; r[[y, 1]] }",
        "a b",
    ),
    "data by a computed name": ("decision := data[input.k].nodes.a.b", "k | | b"),
    "two rules of different types": (
        "r := input.a if is_array(input.k)\nr := input.b if is_string(input.k)\ndecision if r.b",
        "a.b b.b k",
    ),
    "two rules of different members": (
        (
            'r := input.a if input.k in {"a", "b"}\nr := input.b if input.k in {"x", ""}\n'
            "decision if r.b"
        ),
        "a.b b.b k",
    ),
    "two rules of which one says not": (
        "r := input.a if input.k\nr := input.b if not input.k\ndecision if r.b",
        "a.b b.b k",
    ),
    "two rules that differ in an inequality": (
        'r := input.a if input.k == "a"\nr := input.b if input.k != "a"\ndecision if r.b',
        "a.b b.b k",
    ),
    "two rules of a function and its negation": (
        "f(x) if x.c\nr := input.a if f(input)\nr := input.b if not f(input)\ndecision if r.b",
        "a.b b.b c",
    ),
    "two rules of numbers": (
        "r := input.a if input.k == 1\nr := input.b if input.k == 2\ndecision if r.b",
        "a b k",
    ),
    "two rules of what is iterated": (
        (
            "r := input.a if is_string(input.k[_])\nr := input.b if is_array(input.c[_])\n"
            "decision if r.b"
        ),
        "a b c k",
    ),
    "two rules of elements": (
        (
            "r := input.a if { input.k[_]; input.k[_] == 1 }\nr := input.b if input.c[_] == 2\n"
            "decision if r.b"
        ),
        "a b c k",
    ),
    "two functions of constants": (
        'f("a", x) := x.a\nf("b", x) := x.b\ndecision if f(input.k, input).b',
        "a.b b.b k",
    ),
    "two rules with every": (
        (
            "r := input.a if every x in input.k { x == 1 }\n"
            "r := input.b if every x in input.k { x == 2 }\ndecision if r.b"
        ),
        "a b k",
    ),
    "two rules with aliases": (
        (
            'r := input.a if { x := input.k; y := x.a; y == "a" }\n'
            'r := input.b if input.k.a == "b"\ndecision if r.b'
        ),
        "a.b b.b k.a",
    ),
    "two rules of membership in each other": (
        (
            'r := input.a if input.k in {"a", input.c}\nr := input.b if input.k in {"b"}\n'
            "decision if r.b"
        ),
        "a b c k",
    ),
    "two rules, one with another input": (
        (
            'r := input.a if input.k == "a"\n'
            'r := input.b if input.k == "b" with input as input.c\ndecision if r.b'
        ),
        "a b c.k k",
    ),
    # Read whole though a part of it is named too.
    "returned, and read below": ("decision := input.a if input.a.b", "a"),
    "compared with each other, and read below": (
        "decision if { input.a == input.b; input.a.c }",
        "a b",
    ),
    "ordered, and read below": ("decision if { input.a < input.b; input.a.c }", "a b"),
    "field is a member, and read below": ("decision if { input.a in input.b; input.a.c }", "a b"),
    "handed to a builtin, and read below": (
        "decision := x if { x := json.marshal(input.a); input.a.c }",
        "a",
    ),
    "put into a set, and read below": (
        "decision := x if { x := count({input.a, input.b}); input.a.c }",
        "a b",
    ),
    "object.get with a computed key, and read below": (
        "decision := x if { x := object.get(input.a, input.k, 1); input.a.c; input.k.b }",
        "a k",
    ),
    "object.get along a computed path, and read below": (
        'decision := x if { x := object.get(input, ["a", input.k], 1); input.a.c; input.k.b }',
        "a k",
    ),
    "count, and one member read": ("decision := x if { x := count(input.a); input.a.b }", "a"),
    "object.keys, and one member read": (
        "decision := x if { x := object.keys(input.a); input.a.b }",
        "a",
    ),
    "constant is a member, and one member read": (
        'decision if { "a" in input.a; input.a.b }',
        "a",
    ),
    "object.filter by what is read below": (
        "decision := x if { x := object.filter(input.a, input.b).c; input.b.k }",
        "a.c b",
    ),
    "key of an object, and read below": (
        "decision := count(x) if { x := {input.a: 1, input.b: 1}; input.a.c }",
        "a b",
    ),
    "package": ("x := input.a.b\ny contains input.b\ndecision := data.main.x", "a.b"),
    "collection": (f"decision contains x.b if some x in {DATA}.clusters[_]", " | b"),
    "collection by name": (f"decision := {DATA}.clusters[input.a][input.b].c", "a b | c"),
    "names of a collection": (f"decision contains n if some n, _ in {DATA}.nodes", " | | "),
    "objects of two collections": (
        f"decision contains x.b if {{ some n, x in {DATA}.nodes; {DATA}.clusters.a[n].c }}",
        " | c | b",
    ),
    "collection returned": (f"decision := {DATA}.nodes", " | | (all of it)"),
    "collection by a computed name": (
        f'decision contains x.b if {{ some r in ["clusters", "nodes"]; x := {DATA}[r].a }}',
        " | (all of it) | b",
    ),
    "collection by any name": (f"decision contains x if x := {DATA}[_].a.b", " | (all of it) | b"),
}
# What chance makes seldom: equal parts, and keys that meet.
CRAFTED: dict[str, list[Any]] = {
    "data by a computed name": [{"k": "kubernetes"}],
    "two rules of numbers": [{"k": 2, "b": {"b": 1}}],
    "two functions of constants": [{"k": "a", "a": {"b": 1}}],
    "two rules of elements": [
        {"k": [1], "a": {"b": 1}},
        {"c": [2], "b": {"b": 1}},
        {"k": [1], "c": [2], "a": {"b": 1}, "b": {"b": 1, "c": 1}},
    ],
    "member of a set by what is made": [{"a": [{"c": 1, "d": 2}], "b": {"c": 1, "d": 2}}],
    "compared with each other, and read below": [
        {"a": {"c": 1, "d": 1}, "b": {"c": 1, "d": 1}},
    ],
    "field is a member, and read below": [{"a": {"c": 1, "d": 1}, "b": [{"c": 1, "d": 1}]}],
    "put into a set, and read below": [{"a": {"c": 1, "d": 1}, "b": {"c": 1}}],
    "key of an object, and read below": [{"a": {"c": 1, "d": 1}, "b": {"c": 1}}],
    "object.get with a computed key, and read below": [{"a": {"c": 1}, "k": {"b": 1}}],
    "one undeclared name in two comprehensions, one of them of an object": [
        {"a": {"x": {"k": {"c": 1, "d": 1}}, "y": {"k": {"c": 1, "d": 2}}}, "b": {"a": 1}},
        {"a": {"x": {"k": {"c": 1}}}, "b": {"a": 1}},
    ],
    "with input for both sides": [{"a": {"b": 1, "c": 1}}],
    "every in a comprehension": [{"a": [{"b": 1, "c": [1]}]}, {"a": [{"b": 1, "c": [2]}]}],
    "two rules with aliases": [{"k": {"a": "a"}, "a": {"b": 1}}],
    "two rules of membership in each other": [
        {"k": "a", "c": 1, "a": {"b": 1}},
        {"k": "b", "b": {"b": 1}},
        {"k": "c", "c": "c", "a": {"b": 1}},
    ],
    "two rules, one with another input": [
        {"k": "a", "a": {"b": 1}},
        {"c": {"k": "b"}, "b": {"b": 1}},
    ],
    "unified": [{"a": [1], "b": [1]}, {"a": [1], "b": [2]}],
    "variables equal": [{"a": [1], "b": [1]}, {"a": [1], "b": [2]}],
    "alias compared later": [{"a": {"b": 1}, "c": {"b": 1}}],
    "key joins two": [{"a": {"k": {"b": 1}}, "b": {"k": {"c": 1}}}],
    "keys that depend on each other": [{"a": {"k": {"b": {"k": {"c": 1}}}}}],
    "object comprehension whose keys come twice": [{"a": [{"k": "a", "b": 1}]}],
    "function with a pattern": [{"a": [{"b": 1}, {"c": 1}]}],
    "function with a constant": [{"k": "a", "a": {"b": 1}}],
    "every over members compared": [{"a": {"k": [1]}, "b": {"k": [1]}}],
    "object pattern": [{"a": {"a": 1}}],
    "pattern in a loop": [{"a": [{"a": 1}]}],
    "reference compared with a literal": [{"a": {"b": [1]}, "b": [1]}],
    "two rules that exclude each other": [{"k": "b", "b": {"b": 1}}],
    "or within and": [{"a": {"b": 1}, "b": 1}, {"a": {"b": 1}, "b": 2, "c": {"k": 1}}],
    "not of a body": [{"a": {"b": 1, "c": 1}}, {"a": {"b": 1, "c": 2}}],
    "collection by name": [{"a": "a", "b": "a"}, {"a": "b", "b": "a"}],
}
# Kept though no object can show why: what `with` replaces is taken to be read all the same.
UNSHOWN = {"with a part of the input": {"input a.b"}}


def expected(text: str) -> dict[str, list[str]]:
    input_, clusters, nodes = [*map(str.strip, text.split("|")), "", ""][:3]
    parts = {"input": input_, "clusters": clusters, "nodes": nodes}
    return {n: ["(all of it)"] if "(" in p else sorted(p.split()) for n, p in parts.items()}


def read_by(policy_opa: PolicyOpa, source: str) -> Reads:
    *others, main = source.split("---\n")
    modules = {f"other{i}": other for i, other in enumerate(others)}
    compiled = policy_opa.compile(modules | {"main": f"package main\n\n{main}\n"})
    return analyze(compiled, "main/decision", ROOTS)


def found(reads: Reads) -> dict[str, list[str]]:
    return {name: sorted(map(shown, paths)) for name, paths in paths_of(reads).items()}


@pytest.mark.parametrize("name", CONSTRUCTS)
def test_construct_reads_what_it_looks_at(policy_opa: PolicyOpa, name: str) -> None:
    source, paths = CONSTRUCTS[name]
    reads = read_by(policy_opa, source)
    assert reads.gave_up is None
    assert found(reads) == expected(paths)
    random = chance(name)
    objects, world = [*CRAFTED.get(name, []), *some_objects(random, 40)], some_world(random)
    whole = decisions(policy_opa, "main/decision", objects, world)
    kept = paths_of(reads)
    assert over_projection(policy_opa, "main/decision", objects, world, kept) == whole


@pytest.mark.parametrize("name", CONSTRUCTS)
def test_construct_reads_no_path_in_vain(policy_opa: PolicyOpa, name: str) -> None:
    """Whichever path is left out, some object is decided on differently."""
    reads = read_by(policy_opa, CONSTRUCTS[name][0])
    random = chance(name)
    crafted = CRAFTED.get(name, [])
    worlds = [([*crafted, *some_objects(random, 60)], some_world(random)) for _ in range(4)]
    kept = paths_of(reads)
    vain = {
        f"{document} {shown(path)}"
        for document, paths in kept.items()
        for path in paths
        if all(
            over_projection(policy_opa, "main/decision", *world, without(kept, document, path))
            == decisions(policy_opa, "main/decision", *world)
            for world in worlds
        )
    }
    assert vain == UNSHOWN.get(name, set())


def without(paths: Paths, document: str, path: Path) -> Paths:
    return {**paths, document: [p for p in paths[document] if p != path]}
