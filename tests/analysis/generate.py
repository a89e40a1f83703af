"""Policies and objects at random: whatever the grammar of Rego lets one read a field with.

A policy is a decision, helper rules and helper functions in another package; most of them compile.
Objects have few names and few values, so that references meet and comparisons hold.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

_NAMES = ("a", "b", "c", "k")
_SCALARS = ('"a"', '"b"', '"x"', "1", "2", "true", "null")


def chance(seed: int | str) -> Random:
    """Return chance that a seed repeats."""
    return Random(seed)  # noqa: S311 - nothing secret about it


def some_object(random: Random, depth: int = 4, full: float = 0.9) -> dict[str, Any]:
    """Return an object whose members are mostly objects and arrays as long as depth lasts."""
    return {n: _value(random, depth - 1, full) for n in _NAMES if random.random() < full}


def some_objects(random: Random, count: int) -> list[dict[str, Any]]:
    """Return deep and shallow ones: the shallow are equal here and there."""
    shapes = ((4, 0.9), (1, 0.9), (2, 0.4), (2, 0.9), (3, 0.6))
    return [some_object(random, *shapes[number % len(shapes)]) for number in range(count)]


def _value(random: Random, depth: int, full: float) -> Any:
    if depth <= 0 or random.random() < 0.15:
        return random.choice(["a", "b", "x", "", 1, 2, True, False, None, [], {}])
    if random.random() < 0.3:
        return [_value(random, depth - 1, full) for _ in range(random.randrange(4))]
    return some_object(random, depth, full)


def some_world(random: Random) -> dict[str, Any]:
    """Return two collections of a few objects each."""
    clusters = {
        namespace: {name: some_object(random) for name in ("a", "b", "x")[: random.randrange(4)]}
        for namespace in ("a", "b")
    }
    return {"clusters": clusters, "nodes": {n: some_object(random) for n in ("a", "b", "k")}}


@dataclass(slots=True)
class _Scope:
    """The variables that a body may use; those of bodies around it too."""

    names: list[str] = field(default_factory=list)

    def inner(self) -> _Scope:
        return _Scope(list(self.names))


class PolicyMaker:
    """Writes one set of policies."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.count = 0
        self.functions: dict[str, int] = {}
        self.rules: list[str] = []  # references to complete rules
        self.collections: list[str] = []  # references to sets and objects
        self.logic = random.random() < 0.5  # `and`, `or` and `not { … }` are imported

    def modules(self) -> dict[str, str]:
        """Return the modules' sources by name, in an order in which they load."""
        library = [self._helper() for _ in range(self.random.randrange(1, 5))]
        self._qualify()
        decision = [self._part(f"p{n}") for n in range(self.random.randrange(3, 6))]
        if self.random.random() < 0.25:
            decision = [self._decision() for _ in range(self.random.choice([1, 1, 2]))]
        default = []
        if self.random.random() < 0.3 and all(d.startswith("decision :=") for d in decision):
            default = ['default decision := "none"']
        return {
            "lib.rego": "package lib\n\n" + "\n\n".join([*self._imports(), *library]) + "\n",
            "main.rego": "package main\n\n"
            + "\n\n".join([*self._imports(), *default, *decision])
            + "\n",
        }

    def _imports(self) -> list[str]:
        words = ("and", "or", "not") if self.logic else ()
        return [f"import future.keywords.{word}" for word in words]

    def _qualify(self) -> None:
        self.functions = {f"data.lib.{name}": size for name, size in self.functions.items()}
        self.rules = [f"data.lib.{name}" for name in self.rules]
        self.collections = [f"data.lib.{name}" for name in self.collections]

    def _new(self, prefix: str = "v") -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    def _pick(self, *choices: Callable[[], str]) -> str:
        return self.random.choice(choices)()

    # Rules.

    def _decision(self) -> str:
        kind = self.random.randrange(8)
        scope = _Scope()
        body = self._body(scope, self.random.randrange(1, 5))
        value = self._value(scope)
        if kind == 0:
            return f"decision contains {value} if {{\n{body}\n}}"
        if kind == 1:
            return f"decision[{self._key_of(scope)}] := {value} if {{\n{body}\n}}"
        text = f"decision := {value} if {{\n{body}\n}}"
        if kind == 2:
            other = _Scope()
            body = self._body(other, 2)
            text += f" else := {self._value(other)} if {{\n{body}\n}}"
        return text

    def _part(self, name: str) -> str:
        scope = _Scope()
        body = self._body(scope, self.random.choice([1, 1, 2, 2]))
        head = f"decision.{name}" if self.random.random() < 0.3 else f'decision["{name}"]'
        value = self._value(scope)
        made = self.random.randrange(4)
        if made == 0:
            return f"{head} := {value} if {{\n{body}\n}}"
        return f"{head} := " + (f"[{value} | {body}]" if made > 1 else f"{{{value} | {body}}}")

    def _key_of(self, scope: _Scope) -> str:
        return self.random.choice([*scope.names, '"a"', '"k"'])

    def _helper(self) -> str:
        kind = self.random.randrange(7)
        if kind < 3:
            return self._function()
        scope = _Scope()
        body = self._body(scope, self.random.randrange(1, 4))
        value = self._value(scope)
        name = self._new("r")
        if kind == 3:
            self.collections.append(name)
            return f"{name} contains {value} if {{\n{body}\n}}"
        if kind == 4:
            self.collections.append(name)
            return f"{name}[{self._key_of(scope)}] := {value} if {{\n{body}\n}}"
        self.rules.append(name)
        text = f"{name} := {value} if {{\n{body}\n}}"
        if self.random.random() < 0.3:
            text = f"default {name} := {self._constant()}\n\n{text}"
        return text

    def _function(self) -> str:
        name, size = self._new("f"), self.random.choice([1, 1, 2])
        clauses = []
        for _ in range(self.random.choice([1, 1, 2])):
            scope = _Scope([self._new("p") for _ in range(size)])
            head = ", ".join(scope.names)
            if self.random.random() < 0.2:
                head = ", ".join([self._constant(), *scope.names[1:]])
                scope.names = scope.names[1:]
            body = self._body(scope, self.random.randrange(1, 4))
            clause = f"{name}({head}) := {self._value(scope)} if {{\n{body}\n}}"
            if self.random.random() < 0.2 and scope.names:
                clause += f" else := {self.random.choice(scope.names[:size])}.a"
            clauses.append(clause)
        self.functions[name] = size
        return "\n\n".join(clauses)

    def _value(self, scope: _Scope) -> str:
        names = scope.names[-3:] or ["input.a"]
        if self.random.random() < 0.25:
            return f'{{"a": {self.random.choice(names)}, "b": {self._term(scope)}}}'
        return self.random.choice([*names, *names, *names, *names, self._constant()])

    # Lines.

    def _body(self, scope: _Scope, lines: int, depth: int = 0) -> str:
        return "\n".join("\t" + self._line(scope, depth) for _ in range(lines))

    def _line(self, scope: _Scope, depth: int) -> str:
        simple = [self._test, self._alias, self._some, self._compare, self._alias, self._some]
        nested = [self._every, self._comprehension, self._call, self._rule, self._builtin]
        nested += [self._keyed, self._operands if self.logic else self._keyed]
        rare = [self._negated, self._pattern, self._literal, self._member, self._scan, self._with]
        choices = [*simple, *nested, *rare] if depth < 2 else simple
        return self.random.choice(choices)(scope, depth)

    def _test(self, scope: _Scope, _: int) -> str:
        return self._ref(scope)

    def _alias(self, scope: _Scope, _: int) -> str:
        ref = self._ref(scope)
        return f"{self._bind(scope)} := {ref}"

    def _some(self, scope: _Scope, _: int) -> str:
        ref = self._ref(scope)
        if self.random.random() < 0.4:
            key, value = self._bind(scope), self._bind(scope)
            # Declared names have to be used: this does, and reads nothing.
            return f"some {key}, {value} in {ref}\n\t[{key}, {value}] != 7"
        name = self._bind(scope)
        return f"some {name} in {ref}\n\t[{name}] != 7"

    def _compare(self, scope: _Scope, _: int) -> str:
        operator = self.random.choice(["==", "==", "!=", "<", ">="])
        left = self._ref(scope)
        right = self._constant() if self.random.random() < 0.7 else self._term(scope)
        return f"{left} {operator} {right}"

    def _negated(self, scope: _Scope, _: int) -> str:
        base = self.random.choice(["input", *scope.names])
        ref = base + self._fixed()
        if self.functions and self.random.random() < 0.3:
            name, size = self.random.choice(sorted(self.functions.items()))
            return f"not {name}({', '.join([ref] * size)})"
        return f"not {ref}" + self.random.choice(["", "", f" == {self._constant()}"])

    def _keyed(self, scope: _Scope, _: int) -> str:
        """Compare a key in a body within, which says nothing of it outside."""
        ref, name = self._ref(scope), self._bind(scope)
        equal = f'{name} == "{self.random.choice(_NAMES)}"'
        if self.random.random() < 0.3:
            other = self._new()
            equal = f"{other} := {self._constant()}; {name} == {other}"
        within = [f"count([1 | {equal}]) == 0", f"every _ in input.c {{ {equal} }}"]
        if ";" not in equal:
            within += [f"not {equal}", f"not {equal}"]
        if self.logic:
            within += [f"not {{ {equal} }}", f"{{ {equal} }} or {{ {self._ref(scope)} }}"]
        return f"some {name}\n\t{ref}[{name}]\n\t{self.random.choice(within)}"

    def _operands(self, scope: _Scope, depth: int) -> str:
        made = [self._body(scope.inner(), self.random.randrange(1, 3), depth + 1) for _ in "ab"]
        one, other = (f"{{\n{body}\n\t}}" for body in made)
        return self.random.choice([f"{one} and {other}", f"{one} or {other}", f"not {one}"])

    def _member(self, scope: _Scope, _: int) -> str:
        ref = self._ref(scope)
        if self.random.random() < 0.5:
            return f'{ref} in {{"a", "b", 1}}'
        return f"{self._constant()} in {ref}"

    def _every(self, scope: _Scope, depth: int) -> str:
        ref = self._ref(scope)
        inner = scope.inner()
        key, value = self._new(), self._new()
        inner.names += [value, value]
        body = self._body(inner, self.random.randrange(1, 3), depth + 2)
        head = f"{key}, {value}" if self.random.random() < 0.3 else value
        body += f"\n\t[{head}] != 7"
        return f"every {head} in {ref} {{\n{body}\n\t}}"

    def _comprehension(self, scope: _Scope, depth: int) -> str:
        inner = scope.inner()
        body = self._body(inner, self.random.randrange(1, 4), depth + 1).replace("\n", "\n\t")
        value = self._value(inner)
        made = self.random.choice(
            [
                f"[{value} | {body}]",
                f"{{{value} | {body}}}",
                f"{{{self._key_of(inner)}: {value} | {body}}}",
            ]
        )
        name = self._bind(scope)
        if self.random.random() < 0.2:
            return f"{name} := count({made})"
        return f"{name} := {made}"

    def _call(self, scope: _Scope, _: int) -> str:
        if not self.functions:
            return self._alias(scope, 0)
        name, size = self.random.choice(sorted(self.functions.items()))
        arguments = ", ".join(self._term(scope) for _ in range(size))
        end = self._fixed() if self.random.random() < 0.4 else ""
        return f"{self._bind(scope)} := {name}({arguments}){end}"

    def _rule(self, scope: _Scope, _: int) -> str:
        if not self.rules + self.collections:
            return self._some(scope, 0)
        name = self.random.choice(self.rules + self.collections)
        end = "[_]" if name in self.collections else ""
        if self.random.random() < 0.5:
            end += self._fixed()
        return f"{self._bind(scope)} := {name}{end}"

    def _with(self, scope: _Scope, _: int) -> str:
        if not self.rules:
            return self._test(scope, 0)
        target = self.random.choice(["input", "input", "input.a", "data.lib.mocked"])
        if self.random.random() < 0.15 and self.rules[0].startswith("data."):
            target = self.rules[0]
        value = self._term(scope)
        rule = self.random.choice(self.rules)
        return f"{self._bind(scope)} := {rule} with {target} as {value}"

    def _pattern(self, scope: _Scope, _: int) -> str:
        ref = self._ref(scope)
        one = self._bind(scope)
        pattern = self.random.choice(
            [f'{{"a": {one}}}', f"[{one}, _]", f"[{one}]", f'{{"a": {one}, "b": "b"}}']
        )
        return f"{pattern} = {ref}"

    def _literal(self, scope: _Scope, _: int) -> str:
        one, other = self._term(scope), self._term(scope)
        made = self.random.choice([f'{{"a": {one}, "b": {other}}}', f"[{one}, {other}]"])
        return f"{self._bind(scope)} := {made}"

    def _scan(self, scope: _Scope, _: int) -> str:
        ref = self._ref(scope)
        value = self._bind(scope)
        return f"walk({ref}, [_, {value}])\n\t{value} == {self._constant()}"

    def _builtin(self, scope: _Scope, _: int) -> str:
        ref, other = self._ref(scope), self._ref(scope)
        fixed = "input" + self._fixed()
        key = self.random.choice(['"a"', '["a", "b"]', '["a", 0, "b"]', self._term(scope)])
        default = self.random.choice([self._constant(), "{}", other])
        name = self._bind(scope)
        return self.random.choice(
            [
                f"{name} := object.get({ref}, {key}, {default})",
                f"{name} := object.get({ref}, {key}, {default})",
                f"{name} := count({ref})",
                f"{name} := object.keys({ref})",
                f"{name} := object.union({ref}, {other})",
                f'{name} := object.remove({ref}, ["a", "k"])',
                f'{name} := object.filter({ref}, {{"a", "b"}})',
                f"{name} := array.concat({ref}, {other})",
                f"{name} := array.slice({ref}, 0, 2)",
                f'{name} := json.filter({ref}, ["a/b", "c"])',
                f'{name} := json.remove({ref}, ["a"])',
                f"{name} := is_object({ref})",
                f"{name} := type_name({ref})",
                f'{name} := startswith({ref}, "a")',
                f'{name} := sprintf("%v", [{ref}])',
                f'{name} := $"it is {{{fixed}}}"',
                f"{name} := ({ref} == {other})",
                f"{name} := max({ref})",
                f"{name} := lower({ref})",
            ]
        )

    # Terms.

    def _bind(self, scope: _Scope) -> str:
        name = self._new()
        scope.names.append(name)
        return name

    def _constant(self) -> str:
        return self.random.choice(_SCALARS)

    def _term(self, scope: _Scope) -> str:
        if scope.names and self.random.random() < 0.5:
            return self.random.choice(scope.names)
        return self.random.choice(["input", "input", "data.kubernetes.nodes.a"]) + self._fixed()

    def _fixed(self) -> str:
        return "".join(f".{self.random.choice(_NAMES)}" for _ in range(self.random.randrange(1, 3)))

    def _ref(self, scope: _Scope) -> str:
        if scope.names and self.random.random() < 0.55:
            base = self.random.choice(scope.names[-3:])
        else:
            base = self.random.choice(
                [
                    "input",
                    "input",
                    "input",
                    "data.kubernetes.clusters[_][_]",
                    "data.kubernetes.clusters.a[_]",
                    "data.kubernetes.nodes[_]",
                    "data.kubernetes.nodes.a",
                ]
            )
        return base + "".join(self._step(scope) for _ in range(self.random.randrange(1, 4)))

    def _step(self, scope: _Scope) -> str:
        if self.random.random() < 0.8:
            return f".{self.random.choice(_NAMES)}"
        names = [f"[{name}]" for name in scope.names[-2:]]
        return self.random.choice(["[_]", "[_]", "[0]", *names])
