"""Slices: the objects of one kind that publish a placement, at most 100 clusters in each.

What a slice holds is the same for every kind (`Slice`, `Published`); a `Shape` says how one kind
spells it. `SliceApi` writes slices of any shape.

Invariant: an object that the shape does not recognise as ours belongs to another writer, and is
neither overwritten nor deleted. A change or a deletion is bound to the state that was read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from kube_sync.errors import Conflict, Retriable
from kube_sync.kube.client import KubeClient
from kube_sync.kube.discovery import kind_of
from kube_sync.kube.meta import OwnerReference, state_of
from kube_sync.kube.patch import patch
from kube_sync.kube.wholeobjects import delete_unchanged, read_object
from kube_sync.objects import GroupVersionResource, ObjectKey

MANAGED_BY: Final = "app.kubernetes.io/managed-by"  # label
OURS: Final = "kube-sync-remediator"  # its value on slices
SELECTOR: Final = f"{MANAGED_BY}={OURS}"
PLACED: Final = "kube-sync.io/placed"  # annotation: the resource that is placed
# Annotations with the history and the step of moves, which only a leading sink has.
RECORDS: Final = ("kube-sync.io/moves", "kube-sync.io/addition")


@dataclass(frozen=True, slots=True)
class Choice:
    """One cluster of a placement."""

    cluster: str
    namespace: str  # of its ClusterProfile; empty where the shape has none
    reason: str


@dataclass(frozen=True, slots=True)
class Slice:
    """The wanted state of one object."""

    key: ObjectKey
    placed: str  # identifies the resource that is placed, in its namespace
    labels: Mapping[str, str]  # those that the kind defines
    owner: OwnerReference  # the placed resource; its kind may be empty: not known
    choices: tuple[Choice, ...]
    source: str | None = None  # namespace of the resource; None: that of the slice
    records: Mapping[str, str] = field(default_factory=dict)  # annotations, of `RECORDS`
    records_last: bool = False  # they are written after the clusters, not before


@dataclass(frozen=True, slots=True)
class Published:
    """One object of ours as the API server stores it."""

    key: ObjectKey
    uid: str
    version: str  # resourceVersion
    placed: str
    labels: Mapping[str, str]
    owners: tuple[OwnerReference, ...]
    choices: tuple[Choice, ...]
    source: str | None = None
    complete: bool = True  # false: it has no list of clusters yet
    records: Mapping[str, str] = field(default_factory=dict)

    @property
    def subject(self) -> tuple[str, str]:
        """The namespace of the placed resource, and what identifies it there."""
        return self.key.namespace if self.source is None else self.source, self.placed

    def is_as(self, wanted: Slice) -> bool:
        """Return whether it already equals the wanted slice."""
        return self.has_metadata_of(wanted) and self.has_choices_of(wanted)

    def has_metadata_of(self, wanted: Slice) -> bool:
        """Return whether all but its clusters equals the wanted slice."""
        same = (self.placed, self.source, self.labels, self.records) == (
            wanted.placed,
            wanted.source,
            wanted.labels,
            wanted.records,
        )
        return same and any(owner.is_same(wanted.owner) for owner in self.owners)

    def has_choices_of(self, wanted: Slice) -> bool:
        """Return whether its clusters are those of the wanted slice."""
        return self.complete and self.choices == wanted.choices

    def is_later(self, other: Published) -> bool:
        """Return whether it is a later state of the same object."""
        return state_of(self.uid, self.version).is_later(state_of(other.uid, other.version))


@dataclass(frozen=True, slots=True)
class Shape:
    """How one kind spells a slice."""

    gvr: GroupVersionResource
    # Returns None for what is not ours, or has an unknown shape.
    parse: Callable[[bytes], Published | None]
    # Returns the object; with a `status` if the kind keeps its clusters in that subresource.
    document: Callable[[Slice], dict[str, Any]]


class SliceApi:
    """Reads and writes the slices of one shape at one API server, as one field manager."""

    def __init__(self, client: KubeClient, manager: str, shape: Shape) -> None:
        self._client = client
        self._manager = manager
        self._shape = shape
        self._kinds: dict[GroupVersionResource, str] = {}

    async def kind(self, gvr: GroupVersionResource) -> str:
        """Return the kind of a resource, for owner references. Raises SyncError."""
        if gvr not in self._kinds:
            self._kinds[gvr] = await kind_of(self._client, gvr)
        return self._kinds[gvr]

    async def apply(self, wanted: Slice, found: Published | None) -> Published:
        """Apply a slice; `found` is its state as it was read, None if unknown.

        Raises SyncError: Conflict when it has changed or belongs to another writer; no watch event
        of ours may follow when that writer gives it up.
        """
        # An apply takes over an existing object, so look for one first.
        found = found or await self._find(wanted)
        document = self._shape.document(wanted)
        if "status" not in document:
            return await self._patch(wanted, document, found)
        return await self._apply_parts(wanted, document, found)

    async def delete(self, found: Published) -> None:
        """Delete a slice if it is as it was read; no error if it is gone. Raises SyncError."""
        conditions = {"uid": found.uid, "resourceVersion": found.version}
        await delete_unchanged(self._client, self._shape.gvr, found.key, conditions)

    async def _apply_parts(
        self, wanted: Slice, document: dict[str, Any], found: Published | None
    ) -> Published:
        """Apply the status, and then the metadata: no reader finds labels without clusters.

        The API server drops the status of an object that is created. Readers select by label, and
        may take a selected object without a status for one without clusters.
        """
        status = document.pop("status")
        if found is None:
            bare = self._shape.document(replace(wanted, labels={}))
            del bare["status"]
            found = await self._patch(wanted, bare, None)
        elif self._begins_with_records(wanted, found):
            found = await self._patch(wanted, document, found)
        if not found.has_choices_of(wanted):
            found = await self._patch(wanted, _only(document, status), found, subresource="/status")
        if not found.has_metadata_of(wanted):
            found = await self._patch(wanted, document, found)
        return found

    @staticmethod
    def _begins_with_records(wanted: Slice, found: Published) -> bool:
        """Return whether the metadata goes first, so that no move is without its records."""
        differs = found.records != wanted.records and not wanted.records_last
        return differs and found.labels == wanted.labels

    async def _patch(
        self,
        wanted: Slice,
        document: dict[str, Any],
        found: Published | None,
        subresource: str = "",
    ) -> Published:
        if found is not None:
            bound = {"uid": found.uid, "resourceVersion": found.version}
            document = {**document, "metadata": document["metadata"] | bound}
        path = self._shape.gvr.path(wanted.key.namespace, wanted.key.name) + subresource
        # Not forced: if somebody creates it meanwhile they keep it, and the answer is a Conflict.
        force, manager = found is not None, self._manager
        answer = await patch(
            self._client, path, document, "apply", manager, force=force, accept="application/json"
        )
        if (written := self._shape.parse(answer)) is None:
            msg = f"{wanted.key}: the answer is not the PlacementDecision that was written"
            raise Retriable(msg)
        return written

    async def _find(self, wanted: Slice) -> Published | None:
        body = await read_object(self._client, self._shape.gvr, wanted.key)
        if body is None:
            return None
        found = self._shape.parse(body)
        if found is None or (found.placed, found.source) != (wanted.placed, wanted.source):
            msg = f"PlacementDecision {wanted.key} is somebody else's"
            raise Conflict(msg)
        return found


def heading(gvr: GroupVersionResource, wanted: Slice) -> dict[str, Any]:
    """Return the type and metadata of a slice whose kind is PlacementDecision."""
    return {
        "apiVersion": gvr.api_version,
        "kind": "PlacementDecision",
        "metadata": {
            "name": wanted.key.name,
            "namespace": wanted.key.namespace,
            "labels": {MANAGED_BY: OURS, **wanted.labels},
            "annotations": {PLACED: wanted.placed, **wanted.records},
        },
    }


def records_of(annotations: Mapping[str, str | None]) -> dict[str, str]:
    """Return the history and the step of moves among annotations."""
    return {key: text for key in RECORDS if (text := annotations.get(key)) is not None}


def _only(document: Mapping[str, Any], status: Mapping[str, Any]) -> dict[str, Any]:
    """Return the status of a document, and what addresses it."""
    metadata = {part: document["metadata"][part] for part in ("name", "namespace")}
    return {**document, "metadata": metadata, "status": status}
