"""The values of a scenario file: policies, objects, and cases with their expectations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kube_sync.kube.collection import Item
from kube_sync.objects import ObjectKey

Objects = Mapping[str, Mapping[ObjectKey, Item]]  # by their collection's name in OPA
Changes = Mapping[str, Mapping[ObjectKey, Item | None]]  # None: it does not exist


@dataclass(frozen=True, slots=True)
class ExpectedMessage:
    """An expected message: one of `parts` within it or, if `exact`, all of it."""

    text: str
    exact: bool = True

    def fits(self, message: str) -> bool:
        """Return whether a message is as expected."""
        return message == self.text if self.exact else self.text in message

    def __str__(self) -> str:
        """Format for the output."""
        return self.text if self.exact else f"…{self.text}…"


@dataclass(frozen=True, slots=True)
class Expectation:
    """The expectations of a case; a None, and an empty mapping or tuple, is not checked.

    `clusters` are exactly those of the workload, with the checked fields of each preference;
    in mappings a value of None expects that there is none.
    """

    clusters: Mapping[str, Mapping[str, int]] | None = None
    contains: tuple[str, ...] = ()
    excludes: tuple[str, ...] = ()
    placement: str | None = None  # which annotation, if the policy writes several
    annotations: Mapping[str, Any] = field(default_factory=dict)
    labels: Mapping[str, str | None] = field(default_factory=dict)
    reasons: Mapping[str, ExpectedMessage | None] = field(default_factory=dict)
    evict: bool | None = None
    errors: tuple[ExpectedMessage, ...] | None = None
    complete: bool = True  # no other errors are expected
    fails: ExpectedMessage | None = None
    undecided: bool = False
    unchanged: bool = False

    @property
    def places(self) -> bool:
        """Whether a placement of the workload is expected."""
        return self.clusters is not None or bool(self.contains or self.excludes)

    @property
    def refused(self) -> bool:
        """Whether a refusal by the policy is expected."""
        return bool(self.errors)


@dataclass(frozen=True, slots=True)
class Case:
    """One decision: its object, the changes of the world, and the expectations."""

    name: str
    row: int
    resource: str  # the collection's name in OPA
    key: ObjectKey
    changes: Changes
    fleet: frozenset[str]  # the names of all clusters
    expected: Expectation


@dataclass(frozen=True, slots=True)
class Scenario:
    """One file."""

    file: str
    policies: tuple[str, ...]  # files and folders
    row: int  # where they are named
    objects: Objects
    data: Mapping[str, Any] = field(default_factory=dict)  # JSON beside the replicated objects
    cases: tuple[Case, ...] = ()
