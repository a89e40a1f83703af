"""Read, apply and delete PlacementDecisions of SIG Multicluster.

The shape is that of `multicluster.x-k8s.io/v1alpha1` in kubernetes-sigs/cluster-inventory-api, its
meaning that of KEP-5313: data only, at most 100 clusters in one object (a slice), slices of one
decision tied together by labels. Not the kind of the same name of Open Cluster Management.

Invariant: an object without our label, our schedulerName and our annotation that names the placed
resource belongs to another writer, and is neither overwritten nor deleted. A change or a deletion
is bound to the state that was read.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from kube_sync.errors import NO_JSON, Conflict, NotFound, Retriable
from kube_sync.kube.client import KubeClient
from kube_sync.kube.collection import Item
from kube_sync.kube.discovery import kind_of
from kube_sync.kube.meta import ObjectMeta, state_of
from kube_sync.objects import GroupVersionResource, ObjectKey

_GROUP, _VERSION = "multicluster.x-k8s.io", "v1alpha1"
PLACEMENT_DECISIONS: Final = GroupVersionResource(_GROUP, _VERSION, "placementdecisions")
CLUSTER_PROFILES: Final = GroupVersionResource(_GROUP, _VERSION, "clusterprofiles")

# KEP-5313, "API Definition"; PLACEMENT_KEY: cluster-inventory-api, placementdecision_types.go.
DECISION_KEY: Final = f"{_GROUP}/decision-key"
DECISION_INDEX: Final = f"{_GROUP}/decision-index"
PLACEMENT_KEY: Final = f"{_GROUP}/placement-key"

_MANAGED_BY, _OURS = "app.kubernetes.io/managed-by", "kube-sync-remediator"
SELECTOR: Final = f"{_MANAGED_BY}={_OURS}"
_PLACED = "kube-sync.io/placed"
_SCHEDULER = "kube-sync"


@dataclass(frozen=True, slots=True)
class Choice:
    """One cluster of a placement, by its ClusterProfile."""

    cluster: str
    namespace: str
    reason: str


@dataclass(frozen=True, slots=True)
class Owner:
    """The placed resource: the owner of the slice, which is garbage-collected with it."""

    api_version: str
    kind: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class Slice:
    """The wanted state of one PlacementDecision."""

    key: ObjectKey
    placed: str  # identifies the resource that is placed
    labels: Mapping[str, str]  # the labels of KEP-5313
    owner: Owner
    choices: tuple[Choice, ...]


@dataclass(frozen=True, slots=True)
class Published:
    """One PlacementDecision of ours as the API server stores it."""

    key: ObjectKey
    uid: str
    version: str  # resourceVersion
    placed: str
    labels: Mapping[str, str]
    owners: tuple[Owner, ...]
    choices: tuple[Choice, ...]

    def is_as(self, wanted: Slice) -> bool:
        """Return whether it already equals the wanted slice."""
        same = (self.placed, self.labels, self.choices) == (
            wanted.placed,
            wanted.labels,
            wanted.choices,
        )
        return same and wanted.owner in self.owners

    def is_later(self, other: Published) -> bool:
        """Return whether it is a later state of the same object."""
        return state_of(self.uid, self.version).is_later(state_of(other.uid, other.version))


class _Reference(msgspec.Struct):
    name: str
    namespace: str = ""


class _Decision(msgspec.Struct):
    clusterProfileRef: _Reference  # noqa: N815 - as on the wire
    reason: str = ""


class _Object(msgspec.Struct):
    metadata: ObjectMeta
    decisions: list[_Decision] | None = None
    schedulerName: str = ""  # noqa: N815


_objects = msgspec.json.Decoder(_Object)


def published(body: bytes) -> Published | None:
    """Parse a PlacementDecision; None if it is not ours, or has an unknown shape."""
    try:
        found = _objects.decode(body)
    except NO_JSON:
        return None
    metadata = found.metadata
    labels, placed = metadata.labels or {}, (metadata.annotations or {}).get(_PLACED)
    if placed is None or (found.schedulerName, labels.get(_MANAGED_BY)) != (_SCHEDULER, _OURS):
        return None
    return Published(
        ObjectKey(metadata.namespace, metadata.name),
        metadata.uid,
        metadata.resource_version,
        placed,
        {key: text for key, text in labels.items() if key.startswith(f"{_GROUP}/")},
        tuple(Owner(o.api_version, o.kind, o.name, o.uid) for o in metadata.owner_references or ()),
        tuple(
            Choice(one.clusterProfileRef.name, one.clusterProfileRef.namespace, one.reason)
            for one in found.decisions or ()
        ),
    )


def published_item(item: Item) -> Published | None:
    """Parse a PlacementDecision of a collection."""
    return published(item.body)


class PlacementDecisionApi:
    """Reads and writes the PlacementDecisions of one API server, as one field manager."""

    def __init__(self, client: KubeClient, manager: str) -> None:
        self._client = client
        self._manager = manager
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
        # Not forced: if somebody creates it meanwhile they keep it, and the answer is a Conflict.
        params = {"fieldManager": self._manager, "force": "true" if found else "false"}
        answer = await self._client.request(
            "PATCH",
            PLACEMENT_DECISIONS.path(wanted.key.namespace, wanted.key.name),
            params=params,
            body=msgspec.json.encode(_document(wanted, found)),
            content_type="application/apply-patch+yaml",
        )
        if (written := published(answer)) is None:
            msg = f"{wanted.key}: the answer is not the PlacementDecision that was written"
            raise Retriable(msg)
        return written

    async def delete(self, found: Published) -> None:
        """Delete a slice if it is as it was read; no error if it is gone. Raises SyncError."""
        preconditions = {"uid": found.uid, "resourceVersion": found.version}
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions}
        with suppress(NotFound):
            await self._client.request(
                "DELETE",
                PLACEMENT_DECISIONS.path(found.key.namespace, found.key.name),
                body=msgspec.json.encode(options),
            )

    async def _find(self, wanted: Slice) -> Published | None:
        path = PLACEMENT_DECISIONS.path(wanted.key.namespace, wanted.key.name)
        try:
            body = await self._client.request("GET", path)
        except NotFound:
            return None
        found = published(body)
        if found is None or found.placed != wanted.placed:
            msg = f"PlacementDecision {wanted.key} is somebody else's"
            raise Conflict(msg)
        return found


def _document(wanted: Slice, found: Published | None) -> dict[str, Any]:
    owner = wanted.owner
    metadata: dict[str, Any] = {
        "name": wanted.key.name,
        "namespace": wanted.key.namespace,
        "labels": {_MANAGED_BY: _OURS, **wanted.labels},
        "annotations": {_PLACED: wanted.placed},
        # Neither `controller` nor `blockOwnerDeletion`.
        "ownerReferences": [
            {
                "apiVersion": owner.api_version,
                "kind": owner.kind,
                "name": owner.name,
                "uid": owner.uid,
            }
        ],
    }
    if found is not None:
        metadata |= {"uid": found.uid, "resourceVersion": found.version}
    return {
        "apiVersion": f"{_GROUP}/{_VERSION}",
        "kind": "PlacementDecision",
        "metadata": metadata,
        "schedulerName": _SCHEDULER,
        "decisions": [
            {
                "clusterProfileRef": {"name": one.cluster, "namespace": one.namespace},
                "reason": one.reason,
            }
            for one in wanted.choices
        ],
    }
