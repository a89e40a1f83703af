"""What the decision reads with one set of policies, and what a projection saves. Pure.

Invariant: a set without any rule at the decision's path is distinguished from one that reads
nothing; if that is unknown, it counts as having such a rule. Savings are counted object by
object, and none is held: the bytes are those of the JSON in OPA, by the reference
projector; two objects are of one decision class if they are equal in all that the decision reads
of its input.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from kube_sync.config import Settings
from kube_sync.decisions.classes import why_not_shared
from kube_sync.decisions.requested import as_requested, with_note
from kube_sync.inspect.survey.policysets import PolicySet
from kube_sync.opa.analysis.analyzer import analyze
from kube_sync.opa.analysis.paths import Path, project
from kube_sync.opa.analysis.result import Collection, Document, Reads, withheld
from kube_sync.opa.analysis.syntax import Scalar, Term, Unreadable, read_module
from kube_sync.opa.lanes import ROOT
from kube_sync.policies.linter import known_of, located, slips
from kube_sync.policies.policywarning import PolicyWarning, without

_OURS = ("system", "kube_sync", ROOT)  # packages of modules that no author wrote
_NAMES: tuple[Path, ...] = (("metadata", "name"), ("metadata", "namespace"))  # always replicated
_encode = msgspec.json.Encoder(order="sorted").encode  # so that equal values are equal bytes


@dataclass(frozen=True, slots=True)
class Finding:
    """One set of policies, and what the decision reads with it."""

    name: str
    modules: tuple[str, ...]
    defined: bool  # a rule is at the decision's path, above or below it
    reads: Reads
    withheld: Mapping[str, Sequence[str]] = field(default_factory=dict)  # by module
    warnings: tuple[PolicyWarning, ...] = ()

    @property
    def whole(self) -> int:
        """How many fields of the input and of replicated resources are read whole."""
        if not self.defined:
            return 0
        return sum(read.whole for _, found in documents(self.reads) for read in found.fields)

    @property
    def unshared(self) -> str | None:
        """Why the webhook cannot reuse answers by class (`admission.classes`), None if it can.

        Documents that ConfigMaps with data bring are known in the cluster only.
        """
        reason = why_not_shared(self.reads)
        brought = [path[:2] for path in (read.path for read in self.reads.foreign) if _named(path)]
        if reason is not None and why_not_shared(self.reads, brought) is None:
            return f"{reason}, unless a ConfigMap with data brings it"
        return reason


def find(
    policies: PolicySet, decision: str, roots: Mapping[str, Collection], settings: Settings
) -> Finding:
    """Return what the decision reads with these policies, by the replicator's configuration."""
    reads = with_note(analyze(policies.modules, decision, roots))
    return Finding(
        name=policies.name,
        modules=tuple(module.name for module in policies.modules),
        defined=_defines(policies, tuple(decision.split("/"))),
        reads=reads,
        withheld=withheld(reads, settings),
        warnings=tuple(_warned(policies, decision, roots, settings)),
    )


def _warned(
    policies: PolicySet, decision: str, roots: Mapping[str, Collection], settings: Settings
) -> Iterator[PolicyWarning]:
    try:
        found = [read_module(module.name, module.compiled) for module in policies.modules]
    except (Unreadable, RecursionError):
        return iter(())
    authored = {module.name for module in found if module.package[0] not in _OURS}
    namespaced = {name: place.namespaced for name, place in roots.items()}
    parsed = {module.name: module.parsed for module in policies.modules}
    known = known_of(settings, namespaced, decision=decision)
    return without(located(slips(found, authored, known), parsed), settings.policies.warnings)


def _named(path: Path) -> bool:
    """Return whether a path leads to the document `<namespace>/<name>` of one ConfigMap."""
    return len(path) > 1 and None not in path[:2]


def documents(reads: Reads) -> Iterator[tuple[str, Document]]:
    """Yield all documents that have a projection."""
    yield "input", reads.input
    yield from reads.resources.items()


def _defines(policies: PolicySet, decision: tuple[str, ...]) -> bool:
    try:
        found = [read_module(module.name, module.compiled) for module in policies.modules]
    except (Unreadable, RecursionError):
        return True
    return any(_leads(rule.path, decision) for module in found for rule in module.rules)


def _leads(path: tuple[Term, ...], decision: tuple[str, ...]) -> bool:
    """Return whether a rule's value is the decision, part of it, or contains it."""
    return all(
        not isinstance(part, Scalar) or part.value == key
        for part, key in zip(path, decision, strict=False)
    )


@dataclass(slots=True)
class Tally:
    """The objects of one resource, counted."""

    kept: Sequence[Path]
    deciding: Sequence[Path] | None  # what the decision reads of one; None: it has none
    objects: int = 0
    listed: int = 0  # bytes
    projected: int = 0  # bytes
    classes: set[bytes] = field(default_factory=set)  # digests

    def add(self, value: Any, size: int) -> None:  # noqa: ANN401 - any JSON
        """Count one object that had `size` bytes."""
        self.objects += 1
        self.listed += size
        self.projected += len(_encode(project(value, self.kept)))
        if self.deciding is not None:
            # As the decision's input, by which the replicator distinguishes classes.
            asked = msgspec.json.decode(as_requested(_encode(value)))
            self.classes.add(_digest(project(asked, self.deciding)))


@dataclass(frozen=True, slots=True)
class Savings:
    """The counts by resource; `unknown` are those that the API server does not serve."""

    source: str
    tallies: dict[str, Tally]
    unknown: frozenset[str]

    @property
    def classes(self) -> int:
        """The number of classes: objects of two resources may share one."""
        return len(set[bytes]().union(*(tally.classes for tally in self.tallies.values())))


def tallies(reads: Reads, targets: Sequence[str]) -> dict[str, Tally]:
    """Return empty tallies for all resources; `targets` are those with decisions."""
    return {
        name: Tally((*reads.target_paths(name), *_NAMES), reads.input.paths)
        if name in targets
        else Tally((*document.paths, *_NAMES), None)
        for name, document in reads.resources.items()
    }


def _digest(value: Any) -> bytes:  # noqa: ANN401 - any JSON
    return hashlib.blake2b(_encode(value), digest_size=16).digest()
