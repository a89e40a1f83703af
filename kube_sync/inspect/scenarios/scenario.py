"""A scenario file as a value: policies, objects, and cases with what each expects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kube_sync.kube.collection import Item
from kube_sync.objects import ObjectKey

Objects = Mapping[str, Mapping[ObjectKey, Item]]  # by their collection's name in OPA
Changes = Mapping[str, Mapping[ObjectKey, Item | None]]  # None: it is not there


@dataclass(frozen=True, slots=True)
class ExpectedMessage:
    """What a message is to be: one of `parts` within it or, where it is exact, all of it."""

    text: str
    exact: bool = True

    def fits(self, message: str) -> bool:
        """Tell whether a message is one that is meant."""
        return message == self.text if self.exact else self.text in message

    def __str__(self) -> str:
        """Return what is shown of it."""
        return self.text if self.exact else f"…{self.text}…"


@dataclass(frozen=True, slots=True)
class Expectation:
    """What is checked; a None, and an empty mapping or tuple, is not.

    `clusters` is exactly where a workload is to be, with the fields of each preference that count;
    in mappings a value of None expects that nothing is there.
    """

    clusters: Mapping[str, Mapping[str, int]] | None = None
    contains: tuple[str, ...] = ()
    excludes: tuple[str, ...] = ()
    placement: str | None = None  # which annotation, where the policy writes several
    annotations: Mapping[str, Any] = field(default_factory=dict)
    labels: Mapping[str, str | None] = field(default_factory=dict)
    reasons: Mapping[str, ExpectedMessage | None] = field(default_factory=dict)
    evict: bool | None = None
    errors: tuple[ExpectedMessage, ...] | None = None
    complete: bool = True  # there are no errors but these
    fails: ExpectedMessage | None = None
    undecided: bool = False
    unchanged: bool = False

    @property
    def places(self) -> bool:
        """Whether something is expected of where the workload runs."""
        return self.clusters is not None or bool(self.contains or self.excludes)

    @property
    def refused(self) -> bool:
        """Whether the policy is expected to object."""
        return bool(self.errors)


@dataclass(frozen=True, slots=True)
class Case:
    """One decision: on which object, in a world that is changed how, and what is expected of it."""

    name: str
    row: int
    resource: str  # the collection's name in OPA
    key: ObjectKey
    changes: Changes
    fleet: frozenset[str]  # the names of all clusters that there are
    expected: Expectation


@dataclass(frozen=True, slots=True)
class Scenario:
    """One file."""

    file: str
    policies: tuple[str, ...]  # files and folders
    row: int  # in which they are said
    objects: Objects
    data: Mapping[str, Any] = field(default_factory=dict)  # JSON beside the replicated objects
    cases: tuple[Case, ...] = ()
