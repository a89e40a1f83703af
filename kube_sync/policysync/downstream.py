"""Builds the copy of a hub's policy for a spoke.

Invariant: a copy has its origin, a mark that it is a copy, and the creation time of the policy; it
has nothing that only the hub's API server, or a tool on the hub, can know. Only the references to
Gateways of the spoke stay in it, with all their other fields.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from kube_sync.objects import ObjectKey
from kube_sync.policysync.ancestors import ancestor_fields
from kube_sync.policysync.copies import (
    DIGEST,
    GATEWAYS,
    MANAGED,
    PLACED,
    Copy,
    CopyKey,
    FeedbackField,
    PolicyId,
)
from kube_sync.policysync.naming import format_policy, shorten
from kube_sync.topology.raw_json import Malformed, is_deeper, items, mapping, text
from kube_sync.topology.synced_policies import ORIGIN, POLICY, SYNCED

_NAMESPACE: Final = 63  # characters (RFC 1123, a label)
_CHARACTERS: Final = 16  # of a digest
# JSON parsers recurse for each level: the author of one policy must not stop all others.
DEEPEST: Final = 100
# Marks by which a tool owns an object: on a spoke the tool of the same name would remove it.
_TOOLS: Final = (
    "kubectl.kubernetes.io/",
    "argocd.argoproj.io/",
    "meta.helm.sh/",
    "kustomize.toolkit.fluxcd.io/",
    "helm.toolkit.fluxcd.io/",
    "kube-sync.io/",
    "objectset.rio.cattle.io/",
)
_MARKS: Final = frozenset(
    [
        "app.kubernetes.io/managed-by",
        "app.kubernetes.io/instance",  # Argo CD's default tracking label
        SYNCED,
        ORIGIN,
        PLACED,
        "kuadrant.io/grace-timeout",
    ]
)

_sorted = msgspec.json.Encoder(order="sorted")


@dataclass(frozen=True, slots=True)
class Downstream:
    """Maps names of the hub to names on a spoke; Gateways are mapped by the same rule."""

    prefix: str = "kuadrant-"

    def namespace(self, hub: str) -> str:
        """Return the spoke's namespace for one of the hub, "" for cluster-scoped objects."""
        return shorten(f"{self.prefix}{hub}", _NAMESPACE) if hub else ""


@dataclass(frozen=True, slots=True)
class Source:
    """A policy of the hub, and the feedback fields of its copies."""

    id: PolicyId
    kind: str
    body: Mapping[str, Any]
    feedback: tuple[FeedbackField, ...]
    ancestors: bool = False  # its kind has `status.ancestors`, which are read back as well


def copied(
    source: Source,
    refs: Collection[int],
    gateways: Iterable[ObjectKey],
    clusters: Iterable[str],
    downstream: Downstream,
) -> dict[str, Copy]:
    """Return equal copies for clusters; `refs` are the indexes of the references to keep.

    Raises Malformed for metadata that cannot be read.
    """
    body = _body(source, refs, gateways, downstream)
    feedback = (*source.feedback, *(ancestor_fields(body) if source.ancestors else ()))
    name = digest(body, feedback)
    annotations = {**body["metadata"]["annotations"], DIGEST: name}
    body["metadata"] = {**body["metadata"], "annotations": annotations}
    return {
        cluster: Copy(CopyKey(source.id, cluster), source.kind, body, feedback, name)
        for cluster in sorted(clusters)
    }


def digest(body: Mapping[str, Any], feedback: Iterable[FeedbackField]) -> str:
    """Return the digest of a copy: 16 hexadecimal digits, its own annotation excluded.

    A null value counts as absent, and 1.0 as 1, as in an API server.
    Raises Malformed for an object that is nested too deeply.
    """
    if is_deeper(body, DEEPEST):
        msg = f"nested more than {DEEPEST} levels deep"
        raise Malformed(msg)
    metadata = body.get("metadata")
    if isinstance(metadata, Mapping) and isinstance(
        annotations := metadata.get("annotations"), Mapping
    ):
        rest = {key: value for key, value in annotations.items() if key != DIGEST}
        body = {**body, "metadata": {**metadata, "annotations": rest}}
    value = [_normalized(body), sorted(feedback)]
    return hashlib.sha256(_sorted.encode(value)).hexdigest()[:_CHARACTERS]


def _normalized(value: object) -> object:
    if isinstance(value, Mapping):
        return {key: _normalized(one) for key, one in value.items() if one is not None}
    if isinstance(value, list):
        return [_normalized(one) for one in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _body(
    source: Source, refs: Collection[int], gateways: Iterable[ObjectKey], downstream: Downstream
) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": source.id.name}
    if source.id.namespace:
        metadata["namespace"] = downstream.namespace(source.id.namespace)
    metadata["labels"] = {**_copied_metadata(source.body, "labels"), MANAGED: "true"}
    metadata["annotations"] = {
        **_copied_metadata(source.body, "annotations"),
        SYNCED: "true",
        POLICY: format_policy(source.id),
        GATEWAYS: ",".join(sorted(map(str, gateways))),
    }
    if created := text(source.body, "metadata", "creationTimestamp"):
        metadata["annotations"][ORIGIN] = created
    fields = {k: v for k, v in source.body.items() if k not in ("metadata", "status")}
    return {
        **fields,
        "apiVersion": source.id.gvr.api_version,
        "kind": source.kind,
        "metadata": metadata,
        "spec": _spec(mapping(source.body, "spec"), refs, downstream),
    }


def _copied_metadata(body: Mapping[str, Any], field: str) -> dict[str, str]:
    return {
        key: value
        for key, value in mapping(body, "metadata", field).items()
        if isinstance(value, str) and key not in _MARKS and not key.startswith(_TOOLS)
    }


def _spec(spec: Mapping[str, Any], refs: Collection[int], downstream: Downstream) -> dict[str, Any]:
    changed: dict[str, Any] = dict(spec)
    if spec.get("targetRefs") is not None:
        listed = list(items(spec, "targetRefs"))
        changed["targetRefs"] = [_ref(listed[index], downstream) for index in sorted(refs)]
    else:
        changed["targetRef"] = _ref(mapping(spec, "targetRef"), downstream)
    return changed


def _ref(ref: Mapping[str, Any], downstream: Downstream) -> dict[str, Any]:
    """Map a reference to the Gateway of the spoke, which has the name of the hub's."""
    if not (namespace := text(ref, "namespace")):
        return dict(ref)
    return {**ref, "namespace": downstream.namespace(namespace)}
