"""What the decision reads under one set of policies. Pure.

Keeps true: a set in which no rule lies at the decision's path is told from one that reads nothing;
where that cannot be told, it counts as having such a rule.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from kube_sync.analysis.analyzer import Collection, analyze
from kube_sync.analysis.reads import Document, Reads, withheld
from kube_sync.analysis.syntax import Scalar, Term, Unreadable, read_module
from kube_sync.decisions.requested import with_note
from kube_sync.settings import Settings
from kube_sync.survey.policysets import PolicySet


@dataclass(frozen=True, slots=True)
class Finding:
    """One set of policies, and what the decision reads under it."""

    name: str
    modules: tuple[str, ...]
    defined: bool  # a rule lies at the decision's path, above or below it
    reads: Reads
    withheld: Mapping[str, Sequence[str]] = field(default_factory=dict)  # by module

    @property
    def whole(self) -> int:
        """How many fields are read whole, of the input and of replicated resources."""
        if not self.defined:
            return 0
        return sum(read.whole for _, found in documents(self.reads) for read in found.fields)


def find(
    policies: PolicySet, decision: str, roots: Mapping[str, Collection], settings: Settings
) -> Finding:
    """Return what the decision reads under these policies, as the replicator is configured."""
    reads = with_note(analyze(policies.modules, decision, roots))
    return Finding(
        name=policies.name,
        modules=tuple(module.name for module in policies.modules),
        defined=_defines(policies, tuple(decision.split("/"))),
        reads=reads,
        withheld=withheld(reads, settings),
    )


def documents(reads: Reads) -> Iterator[tuple[str, Document]]:
    """Yield all that a projection is made for."""
    yield "input", reads.input
    yield from reads.resources.items()


def _defines(policies: PolicySet, decision: tuple[str, ...]) -> bool:
    try:
        found = [read_module(module.name, module.compiled) for module in policies.modules]
    except (Unreadable, RecursionError):
        return True
    return any(_leads(rule.path, decision) for module in found for rule in module.rules)


def _leads(path: tuple[Term, ...], decision: tuple[str, ...]) -> bool:
    """Tell whether a rule's value is the decision, part of it, or holds it."""
    return all(
        not isinstance(part, Scalar) or part.value == key
        for part, key in zip(path, decision, strict=False)
    )
