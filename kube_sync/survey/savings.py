"""What replicating only what is read saves, object by object. Pure, and holds no object.

Keeps true: the bytes are those of the JSON that would lie in OPA, by the reference projector; two
objects are of one decision class when nothing that the decision reads of its input tells them
apart.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from kube_sync.analysis.paths import Path, project
from kube_sync.analysis.reads import Reads
from kube_sync.decisions.requested import as_asked

_NAMES: tuple[Path, ...] = (("metadata", "name"), ("metadata", "namespace"))  # always replicated
_encode = msgspec.json.Encoder(order="sorted").encode  # so that equal values are equal bytes


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
