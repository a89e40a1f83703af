"""What the linter's checks look at: a rule with its terms, among all rules in OPA."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Self

from kube_sync.config import WarningCode
from kube_sync.opa.analysis.syntax import Call, Module, Rule, Scalar, Term
from kube_sync.opa.analysis.terms import Path, locals_of, nodes_of, reference
from kube_sync.opa.paths import DataPath

PACKAGE: Final = -1  # in place of the number of a rule
# (Kubernetes, "Labels and Selectors: Syntax and character set"; annotations have the same keys.)
KEY: Final = re.compile(r"[a-z0-9][-.a-z0-9]*/[A-Za-z0-9][-_.A-Za-z0-9]*")


@dataclass(frozen=True, slots=True)
class Known:
    """What policies may name."""

    decision: DataPath  # the placement decision
    root: str  # of the replicated data
    # Replicated resources by their names in OPA: whether they lie in namespaces, None: unknown.
    resources: Mapping[str, bool | None]
    kinds: frozenset[str] = frozenset()  # of the resources that are decided on
    documents: frozenset[str] = frozenset()  # other names below `data`


@dataclass(frozen=True, slots=True)
class Slip:
    """One finding, at a name within the n-th rule of a module."""

    code: WarningCode
    module: str
    number: int  # of the rule, or PACKAGE
    name: str
    message: str
    suggestion: str = ""


@dataclass(frozen=True, slots=True)
class RuleNodes:
    """A rule with all its terms, and its references with local variables resolved."""

    module: Module
    rule: Rule
    nodes: tuple[Term | Call, ...]
    locals: Mapping[str, Term]
    references: tuple[tuple[str, Path], ...]

    def slip(
        self, code: WarningCode, name: str, message: str, suggestion: str | None = None
    ) -> Slip:
        """Return a finding at a name within the rule."""
        return Slip(code, self.module.name, self.rule.number, name, message, suggestion or "")

    @property
    def own(self) -> str:
        """The first part of its name."""
        part = self.rule.path[len(self.module.package)]
        return part.value if isinstance(part, Scalar) else ""

    @classmethod
    def of(cls, module: Module, rule: Rule) -> Self:
        """Return a rule with its terms."""
        nodes = tuple(nodes_of(rule))
        known = locals_of(iter(nodes))
        references = (reference(node, known) for node in nodes)
        return cls(module, rule, nodes, known, tuple(filter(None, references)))


@dataclass(frozen=True, slots=True)
class RuleSet:
    """All rules of the modules in OPA, and what they refer to."""

    known: Known
    rules: Sequence[RuleNodes]
    # Packages whose rules refer to a path below `data`, or to one below that.
    named: Mapping[Path, frozenset[DataPath]]
    # References with a computed key, and the packages of their rules, by what is before that key.
    computed: Mapping[Path, Collection[tuple[DataPath, Path]]]
    below: Mapping[DataPath, Collection[str]]  # names of packages and rules, by what is above them
    keys: Mapping[str, int]  # how often each key of labels or annotations is there

    def refers_to(self, path: DataPath, but: DataPath | None = None) -> bool:
        """Return whether a rule refers to this path or below, `but` those of a package."""
        if self.named.get(path, frozenset()) - {but}:
            return True
        return any(
            len(found) >= len(path)
            and all(key in (None, name) for key, name in zip(found, path, strict=False))
            for length in range(len(path))
            for package, found in self.computed.get(path[:length], ())
            if package != but
        )

    @classmethod
    def of(cls, modules: Iterable[Module], known: Known) -> Self:
        """Return the set of the rules of all modules in OPA."""
        rules = [RuleNodes.of(module, rule) for module in modules for rule in module.rules]
        found = _references(rules)
        below = _below(rules, known)
        return cls(known, rules, _named(found), _computed(found), below, _keys(rules))


def _references(rules: Sequence[RuleNodes]) -> frozenset[tuple[DataPath, Path]]:
    """Return the paths below `data` that rules refer to, each with the package of the rule."""
    found = set[tuple[DataPath, Path]]()
    for one in rules:
        package = one.module.package
        found |= {(package, path) for root, path in one.references if root == "data"}
        calls = (node.operator for node in one.nodes if isinstance(node, Call))
        found |= {(package, name[1:]) for name in calls if name[0] == "data"}
    return frozenset(found)


def _named(references: Iterable[tuple[DataPath, Path]]) -> dict[Path, frozenset[DataPath]]:
    found: dict[Path, set[DataPath]] = {}
    for package, path in references:
        for length in range(len(path) + 1):
            found.setdefault(path[:length], set()).add(package)
    return {path: frozenset(packages) for path, packages in found.items()}


def _computed(
    references: Iterable[tuple[DataPath, Path]],
) -> dict[Path, list[tuple[DataPath, Path]]]:
    found: dict[Path, list[tuple[DataPath, Path]]] = {}
    for package, path in references:
        if None in path:
            found.setdefault(path[: path.index(None)], []).append((package, path))
    return found


def _keys(rules: Sequence[RuleNodes]) -> Counter[str]:
    nodes = (node for one in rules for node in one.nodes)
    return Counter(
        node.value
        for node in nodes
        if isinstance(node, Scalar) and node.kind == "string" and KEY.fullmatch(node.value)
    )


def _below(rules: Sequence[RuleNodes], known: Known) -> dict[DataPath, set[str]]:
    found: dict[DataPath, set[str]] = {(): {known.root, *known.documents}}
    for one in rules:
        path = (*one.module.package, one.own)
        for length, name in enumerate(path):
            found.setdefault(path[:length], set()).add(name)
    return found


def unknown_field(one: RuleNodes, of: str, name: str, meant: str) -> Slip:
    """Return the finding that something has no field of this name."""
    return one.slip("unknown_field", name, f"{of} has no field {name!r:.80}", meant)


Check = Callable[[RuleNodes, RuleSet], Iterator[Slip]]
