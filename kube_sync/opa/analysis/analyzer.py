"""Which paths of `input` and of the replicated data a decision can read.

Invariant: the decision over `project(value, paths)` of all objects equals the decision over the
objects, whatever they hold (docs/adr/0008 says why). A policy that cannot be analysed, or not in
bounded time, counts as reading everything, with the reason. No input makes the analysis raise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kube_sync.opa.analysis.engine import Engine, Need
from kube_sync.opa.analysis.paths import EACH, Path, covers, minimal
from kube_sync.opa.analysis.result import Ask, Collection, Document, FieldRead, Reads, order
from kube_sync.opa.analysis.rule_reader import Asker
from kube_sync.opa.analysis.syntax import Json, Module, Spot, Unreadable, read_module

Row = Callable[[str, int], int | None]  # the row of the n-th rule of a module

_ALL: Path = ()


@dataclass(frozen=True, slots=True)
class PolicyModule:
    """One module: its compiled tree from `GET /v1/policies`, its parsed tree with locations."""

    name: str
    compiled: Json
    parsed: Json | None = None


def analyze(
    modules: Sequence[PolicyModule], decision: str, roots: Mapping[str, Collection]
) -> Reads:
    """Return what the decision at `decision`, as in `io/k8s/federation/admission`, can read.

    `modules` are all modules of the OPA that compiled them; `roots` are the replicated resources.
    """
    rows = _rows(modules)
    try:
        found = [read_module(module.name, module.compiled) for module in modules]
    except Unreadable as error:
        return everything(unreadable(error), roots, located(error.spot, rows))
    return analyze_read(found, decision, roots, rows)


def analyze_read(
    modules: Sequence[Module],
    decision: str,
    roots: Mapping[str, Collection],
    row: Row = lambda _module, _number: None,
) -> Reads:
    """Analyze modules whose syntax trees are read already; `row` maps a rule to its row."""
    engine = Engine(modules)
    try:
        engine.decide(tuple(decision.strip("/").split("/")))
    except (Unreadable, RecursionError) as error:
        return everything(unreadable(error), roots, located(engine.stopped, row))
    return _Report(engine, row).reads(roots)


def located(spot: Spot | None, row: Row) -> Spot | None:
    """Return a spot with the row of its rule."""
    if spot is None or spot.number is None:
        return spot
    return replace(spot, row=row(spot.module, spot.number))


def row_of(parsed: object, number: int) -> int | None:
    """Return the row of the n-th rule of a module, by its parsed tree with locations."""
    rules = _rules(parsed)
    return _row(rules[number]) if number < len(rules) else None


def unreadable(error: Unreadable | RecursionError) -> str:
    """Return why policies cannot be analysed."""
    if isinstance(error, RecursionError):
        return "the policies are nested too deeply"
    return str(error)


def everything(reason: str, roots: Mapping[str, Collection], spot: Spot | None = None) -> Reads:
    """Return Reads in which everything counts as read; `spot` is the rule at fault."""
    ask = Ask("", "", None, reason, whole=True)
    whole = Document((FieldRead(_ALL, whole=True, asked=(ask,)),), used=True, listed=True)
    return Reads(
        input=whole,
        resources=dict.fromkeys(sorted(roots), whole),
        others=whole.fields,
        impure={"(any)": (ask,)},
        gave_up=reason,
        blamed=spot,
    )


def _rows(modules: Iterable[PolicyModule]) -> Row:
    """Return the function from a rule to its row; OPA compiles rules in the order of parsing."""
    rows: dict[tuple[str, int], int] = {}
    for module in modules:
        for number, rule in enumerate(_rules(module.parsed)):
            if (row := _row(rule)) is not None:
                rows[module.name, number] = row
    return lambda module, number: rows.get((module, number))


def _rules(tree: object) -> Sequence[object]:
    rules = tree.get("rules") if isinstance(tree, Mapping) else None
    return rules if isinstance(rules, list) else []


def _row(rule: object) -> int | None:
    found: Any = rule
    for key in ("head", "location", "row"):
        found = found.get(key) if isinstance(found, Mapping) else None
    return found if isinstance(found, int) else None


class _Report:
    """Converts the needs of rules into the paths that documents have to keep."""

    def __init__(self, engine: Engine, row: Row) -> None:
        self._engine = engine
        self._row = row

    def reads(self, roots: Mapping[str, Collection]) -> Reads:
        data = self._of("data")
        others = {
            path: needs
            for path, needs in data.items()
            if not any(_inside(path, root) for root in roots.values())
        }
        return Reads(
            input=self._document(self._of("input"), listed=False),
            resources={name: self._collection(data, roots[name]) for name in sorted(roots)},
            others=self._document(others, listed=False).fields,
            foreign=self._document(
                {p: needs for p, needs in others.items() if not self._engine.is_package(p)},
                listed=False,
            ).fields,
            impure={
                name: tuple(sorted(map(self._caller, askers)))
                for name, askers in sorted(self._engine.impure.items())
            },
            followed=frozenset(self._engine.followed),
        )

    def _of(self, root: str) -> dict[Path, set[Need]]:
        return {p.path: needs for p, needs in self._engine.needs.items() if p.root == root}

    def _collection(self, data: Mapping[Path, set[Need]], root: Collection) -> Document:
        within: dict[Path, set[Need]] = {}
        listed = False
        for path, needs in data.items():
            if not _meets(path, root):
                continue
            listed |= EACH in _above(path, root) or any(need.whole for need in needs)
            rest = path[root.levels :]
            # Above its objects a collection is replicated whole: only reads of all objects count.
            reads = needs if len(path) >= root.levels else {n for n in needs if n.whole}
            within.setdefault(rest, set()).update(reads)
        return self._document(within, listed=listed)

    def _document(self, needs: Mapping[Path, set[Need]], *, listed: bool) -> Document:
        whole = {path for path, found in needs.items() if any(need.whole for need in found)}
        kept = sorted(minimal(needs.keys() - whole, whole), key=order)
        return Document(
            fields=tuple(self._field(path, needs) for path in kept),
            used=bool(needs),
            listed=listed,
        )

    def _field(self, path: Path, needs: Mapping[Path, set[Need]]) -> FieldRead:
        found = [need for below, some in needs.items() if covers(path, below) for need in some]
        return FieldRead(
            path,
            whole=any(need.whole for need in found),
            asked=tuple(sorted({self._ask(need) for need in found})),
        )

    def _ask(self, need: Need) -> Ask:
        return Ask(
            need.module, need.rule, self._row(need.module, need.number), need.why, need.whole
        )

    def _caller(self, asker: Asker) -> Ask:
        return Ask(asker.module, asker.rule, self._row(asker.module, asker.number), "called")


def _meets(path: Path, root: Collection) -> bool:
    """Return whether a path of `data` leads to a collection, into it, or to a parent of it."""
    return all(key is EACH or key == name for key, name in zip(path, root.path, strict=False))


def _above(path: Path, root: Collection) -> Path:
    return path[len(root.path) : root.levels]


def _inside(path: Path, root: Collection) -> bool:
    return len(path) >= len(root.path) and EACH not in path[: len(root.path)] and _meets(path, root)
