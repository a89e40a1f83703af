"""A scratch OPA in memory: the same two rules about text as the fake OPA's, packages, and reads.

Where it is told to give trees, a line `# reads: data.a.*.b` is one rule that does.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

import msgspec

from kube_sync.errors import Retriable
from kube_sync.opa.builtins import REFUSED
from kube_sync.opa.inspection import Inspected
from kube_sync.opa.scratch import Cause, Modules
from tests.fakes.opa import compile_errors

_PACKAGE = re.compile(r"^package (\S+)", re.MULTILINE)
_DATA = re.compile(r"\bdata(?:\.[a-z_0-9]+)*")
_NAME = re.compile(r"[a-z_]+(?:\.[a-z_]+)+")
_READS = re.compile(r"^# reads: (\S+)$", re.MULTILINE)


class FakeCompiler:
    """Compiles text; notes what it was asked."""

    def __init__(self, *, trees: bool = False) -> None:
        """Without `trees` nothing that it says of modules can be analysed."""
        self.checked: list[Modules] = []
        self.given: list[frozenset[str]] = []  # at each check
        self.inspected: list[Modules] = []
        self.analysed: list[Modules] = []
        self.parses: list[Modules] = []
        self.trees = trees
        self.odd: str | None = None  # the line of a rule that compiles to what nobody can read

    async def check(self, modules: Modules, given: Collection[str] = ()) -> list[Cause]:
        """Return what is wrong with them together."""
        self.checked.append(dict(modules))
        self.given.append(frozenset(given))
        return compile_errors({i.removeprefix("static/"): s for i, s in modules.items()})

    async def inspect(self, sources: Modules) -> dict[str, Inspected]:
        """Return their packages; text without one does not parse."""
        self.inspected.append(dict(sources))
        return {
            policy_id: Inspected(
                tuple(found[1].split(".")),
                {name: 1 for name in _NAME.findall(source) if name in REFUSED},
            )
            for policy_id, source in sources.items()
            if (found := _PACKAGE.search(source))
        }

    async def parsed(self, modules: Modules) -> dict[str, Any]:
        """Return the places of packages and of `data.x.y`, with nothing around them."""
        self.parses.append(dict(modules))
        found = {i: _located(source) for i, source in modules.items()}
        for policy_id, source in modules.items():
            if self.odd is not None and self.odd in source.split("\n"):
                row = source.split("\n").index(self.odd) + 1
                found[policy_id]["rules"] = [{"head": {"location": {"row": row, "col": 1}}}]
        return found

    async def compiled(self, modules: Modules) -> dict[str, msgspec.Raw]:
        """Return their trees; where there are none everything counts as read."""
        self.analysed.append(dict(modules))
        if not self.trees:
            msg = "it gives no trees"
            raise Retriable(msg)
        trees = {i: tree_of(source) for i, source in modules.items()}
        for policy_id, source in modules.items():
            if self.odd is not None and self.odd in source:
                trees[policy_id]["rules"] = [{"nobody": "knows"}]
        return {i: msgspec.Raw(msgspec.json.encode(tree)) for i, tree in trees.items()}


def _located(source: str) -> Any:
    package: list[Any] = []
    refs: list[Any] = []
    for row, line in enumerate(source.split("\n"), 1):
        if found := _PACKAGE.search(line):
            parts = [(part, found.start(1)) for part in found[1].split(".")]
            package = [_at("var", "data", row, 0), *(_at("string", p, row, at) for p, at in parts)]
        for ref in _DATA.finditer(line):
            head, *names = ref[0].split(".")
            steps = [_at("string", name, row, ref.start()) for name in names]
            refs.append(_term("ref", [_at("var", head, row, ref.start()), *steps]))
    return {"package": {"path": package}, "rules": refs}


def _at(kind: str, value: str, row: int, column: int) -> Any:
    return _term(kind, value) | {"location": {"row": row, "col": column + 1}}


def reading(*paths: str, package: str = "io.k8s.federation") -> str:
    """Return a module whose decision, `admission`, reads these."""
    return "\n".join([f"package {package}", *(f"# reads: {path}" for path in paths), ""])


def tree_of(source: str) -> Any:
    """Return the tree of one module as OPA would compile it."""
    found = _PACKAGE.search(source)
    parts = found[1].split(".") if found else []
    package = [_term("var", "data"), *(_term("string", part) for part in parts)]
    rules = [_rule(path.split(".")) for path in _READS.findall(source)]
    return {"package": {"path": package}, "rules": rules}


def _rule(path: list[str]) -> Any:
    head, *rest = path
    steps = [_step(number, part) for number, part in enumerate(rest)]
    body = [{"index": 0, "terms": _term("ref", [_term("var", head), *steps])}]
    name = {"name": "admission", "ref": [_term("var", "admission")]}
    return {"head": name | {"value": _term("boolean", value=True)}, "body": body}


def _step(number: int, part: str) -> Any:
    return _term("var", f"${number}") if part == "*" else _term("string", part)


def _term(kind: str, value: Any) -> Any:
    return {"type": kind, "value": value}
