"""Cache of PlacementPolicies.

Invariant: an invalid policy delays no other. An object that does not match its definition (which
may have been another when it was stored) is cached as an unreadable policy: it counts as policy,
and its last readable state stays in force. A staged object is not in force; it is cached apart so
that its status can say so.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeVar

import msgspec

from kube_sync.config import Policies
from kube_sync.errors import NO_JSON
from kube_sync.kube.cache import Cache
from kube_sync.kube.collection import Item
from kube_sync.kube.meta import ObjectMeta
from kube_sync.kube.policynames import policy_key
from kube_sync.kube.staging import ACTIVE, CANDIDATE, Mark, marks_of, stage_of, stands_for, terms_of
from kube_sync.objects import GroupVersionResource, ObjectKey
from kube_sync.regoversion import V1, labelled_version, parsed_version, with_versions

PLACEMENT_POLICIES: Final = GroupVersionResource(
    "policy.kube-sync.io", "v1alpha1", "placementpolicies"
)
KIND: Final = "PlacementPolicy"
_T = TypeVar("_T")
# Part of a module's id, and the file name for the compiler: as in the definition.
_NAME: Final = re.compile(r"[A-Za-z0-9][-._A-Za-z0-9]{0,122}\.rego")
_LONGEST_NAME: Final = 200  # characters


@dataclass(frozen=True, slots=True)
class PlacementPolicy:
    """One PlacementPolicy; `key` identifies it among policies of all kinds."""

    key: ObjectKey
    version: str
    uid: str
    generation: int
    born: str  # creationTimestamp (RFC 3339, in UTC): sorts as text
    stage: str
    modules: Mapping[str, str]  # source by OPA's policy id
    conditions: tuple[Mapping[str, Any], ...] = ()
    unreadable: str | None = None  # why it cannot be read
    stands_for: ObjectKey | None = None  # what it would replace; None if active
    staged: object = None  # the `staged` field of its status
    # Our annotations on a staged one: the terms of its stage.
    terms: Mapping[str, str] = field(default_factory=dict[str, str])
    marks: tuple[Mark, ...] = ()  # its annotations and labels that are ours
    observed: int | None = None  # status.observedGeneration; None: its definition has no such field

    @property
    def counts(self) -> bool:
        """Whether it is in force."""
        return self.stage == ACTIVE


class _Object(msgspec.Struct):
    metadata: Any = None
    spec: Any = None
    status: Any = None


class _Status(msgspec.Struct):
    conditions: list[dict[str, Any]] | None = None


class _Beside(msgspec.Struct):
    staged: Any = None


class _Observed(msgspec.Struct, rename="camel"):
    observed_generation: int | None = None


class _Module(msgspec.Struct):
    name: str
    rego: str


class _Spec(msgspec.Struct):
    modules: list[_Module]
    stage: str = ACTIVE


class _Staged(msgspec.Struct):
    stage: str = ACTIVE


class _Versioned(msgspec.Struct, rename="camel"):
    rego_version: Any = None


def read_policy(item: Item, rego_version: int = V1) -> PlacementPolicy:
    """Parse a PlacementPolicy, or mark it as unreadable.

    `rego_version` is that of modules that set none.
    """
    try:
        found = msgspec.json.decode(item.body, type=_Object)
        metadata = msgspec.convert(found.metadata, ObjectMeta)
    except NO_JSON as error:
        return _unreadable(item, str(error))
    key, modules, wrong = policy_key(item.key), dict[str, str](), None
    try:
        modules = _modules(key, msgspec.convert(found.spec, _Spec).modules)
        stated = _version(found.spec, metadata.labels or {})
        modules = with_versions(modules, stated, rego_version)
    except (msgspec.ValidationError, ValueError) as error:
        wrong = f"spec: {error}"
    if len(item.key.name) > _LONGEST_NAME:
        modules, wrong = {}, f"its name is longer than {_LONGEST_NAME} characters"
    stage = _stage(found.spec, metadata.labels or {})
    return PlacementPolicy(
        key,
        item.version,
        item.uid,
        metadata.generation,
        metadata.creation_timestamp or "",
        stage,
        modules,
        tuple(_readable(found.status, _Status).conditions or ()),
        wrong,
        None if stage == ACTIVE else policy_key(stands_for(item)),
        _readable(found.status, _Beside).staged,
        {} if stage == ACTIVE else terms_of(item),
        marks_of(item),
        _readable(found.status, _Observed).observed_generation,
    )


class PlacementPolicies(Cache[PlacementPolicy]):
    """Caches the PlacementPolicies of one namespace; iteration and `len` cover those in force."""

    def __init__(self, namespace: str, news: Callable[[], None], rego_version: int = V1) -> None:
        """Call `news` after each change; `rego_version` is that of modules that set none."""
        read = partial(read_policy, rego_version=rego_version)
        super().__init__(read, lambda _changes: news())
        self.namespace = namespace

    def __iter__(self) -> Iterator[PlacementPolicy]:
        return (policy for policy in self.objects.values() if policy.counts)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    @property
    def staged(self) -> Iterator[PlacementPolicy]:
        """The policies that are not in force."""
        return (policy for policy in self.objects.values() if not policy.counts)

    @property
    def candidates(self) -> Iterator[PlacementPolicy]:
        """The candidates: policies that are only compiled."""
        return (policy for policy in self.objects.values() if policy.stage == CANDIDATE)


def placement_policies(policies: Policies, news: Callable[[], None]) -> list[PlacementPolicies]:
    """Return one cache for each policy namespace."""
    return [
        PlacementPolicies(name, news, policies.rego_version)
        for name in dict.fromkeys(policies.namespaces)
    ]


def _unreadable(item: Item, reason: str) -> PlacementPolicy:
    key = policy_key(item.key)
    return PlacementPolicy(key, item.version, item.uid, 0, "", ACTIVE, {}, (), reason)


def _modules(key: ObjectKey, modules: Sequence[_Module]) -> dict[str, str]:
    """Return sources by module id. Raises ValueError for invalid and for duplicate names."""
    if not modules:
        msg = "it has no modules"
        raise ValueError(msg)
    for name, times in Counter(module.name for module in modules).items():
        if times > 1:
            msg = f"{times} modules are called {name}"
            raise ValueError(msg)
        if _NAME.fullmatch(name) is None:
            msg = f"no module can be called {name!r:.80}"
            raise ValueError(msg)
    return {f"{key}/{module.name}": module.rego for module in modules}


def _version(spec: object, labels: Mapping[str, str]) -> int | None:
    """Return the stated Rego version: the field, else the label. Raises ValueError."""
    stated = msgspec.convert(spec, _Versioned).rego_version
    return labelled_version(labels) if stated is None else parsed_version(stated, "regoVersion")


def _stage(spec: object, labels: Mapping[str, str]) -> str:
    """Return the stage: active unless the field or the label says otherwise."""
    said = _readable(spec, _Staged).stage  # an unreadable stage counts as active
    return said if said != ACTIVE else stage_of(labels)


def _readable(found: object, shape: type[_T]) -> _T:
    """Return what can be read of a part of a policy: nothing if it has another type."""
    try:
        return msgspec.convert(found, shape)
    except msgspec.ValidationError:
        return shape()
