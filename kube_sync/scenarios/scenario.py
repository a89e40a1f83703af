"""A scenario file as a value: policies, objects, and cases with what each expects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kube_sync.kube.collection import Item
from kube_sync.objects import ObjectKey
from kube_sync.scenarios.expectation import Expectation

Objects = Mapping[str, Mapping[ObjectKey, Item]]  # by their collection's name in OPA
Changes = Mapping[str, Mapping[ObjectKey, Item | None]]  # None: it is not there


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
