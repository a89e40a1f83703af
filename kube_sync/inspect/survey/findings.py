"""What the decision reads under one set of policies, and what replicating only that saves. Pure.

Keeps true: a set in which no rule lies at the decision's path is told from one that reads nothing;
where that cannot be told, it counts as having such a rule. What is saved is counted object by
object, and none is held: the bytes are those of the JSON that would lie in OPA, by the reference
projector; two objects are of one decision class when nothing that the decision reads of its input
tells them apart.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from kube_sync.config import Settings
from kube_sync.decisions.requested import as_asked, with_note
from kube_sync.inspect.survey.policysets import PolicySet
from kube_sync.opa.analysis.analyzer import Collection, analyze
from kube_sync.opa.analysis.paths import Path, project
from kube_sync.opa.analysis.reads import Document, Reads, withheld
from kube_sync.opa.analysis.syntax import Scalar, Term, Unreadable, read_module

_NAMES: tuple[Path, ...] = (("metadata", "name"), ("metadata", "namespace"))  # always replicated
_encode = msgspec.json.Encoder(order="sorted").encode  # so that equal values are equal bytes


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


@dataclass(slots=True)
class Tally:
    """The objects of one resource, counted."""

    kept: Sequence[Path]
    deciding: Sequence[Path] | None  # what the decision reads of one; None: none is made on it
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
            # As it was asked for, which the replicator tells classes by.
            asked = msgspec.json.decode(as_asked(_encode(value)))
            self.classes.add(_digest(project(asked, self.deciding)))


@dataclass(frozen=True, slots=True)
class Savings:
    """What was counted, by resource; `unknown` are those that the API server does not know."""

    source: str
    tallies: dict[str, Tally]
    unknown: frozenset[str]

    @property
    def classes(self) -> int:
        """How many decisions differ: an object of one resource may be of another's class."""
        return len(set[bytes]().union(*(tally.classes for tally in self.tallies.values())))


def tallies(reads: Reads, targets: Sequence[str]) -> dict[str, Tally]:
    """Return empty tallies for all resources; decisions are made on those of `targets`."""
    return {
        name: Tally((*reads.target_paths(name), *_NAMES), reads.input.paths)
        if name in targets
        else Tally((*document.paths, *_NAMES), None)
        for name, document in reads.resources.items()
    }


def _digest(value: Any) -> bytes:  # noqa: ANN401 - any JSON
    return hashlib.blake2b(_encode(value), digest_size=16).digest()
