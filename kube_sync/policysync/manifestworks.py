"""Encodes copies as ManifestWorks of Open Cluster Management (OCM), and decodes them.

The shape is that of `work.open-cluster-management.io/v1`, the limits those of its webhook. A work
has one manifest and a name that is its policy's alone, whatever the version: a policy that is
synced in another version keeps its works.

Invariant: the digest of a work is computed from its actual content, not from its annotation;
so a work that somebody edited is put right. The same holds for its policy and its Gateways: they
are read from the manifest, which the digest covers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from kube_sync.errors import Terminal
from kube_sync.objects import GroupVersionResource, ObjectKey
from kube_sync.policysync.copies import (
    DIGEST,
    GATEWAYS,
    MANAGED,
    Copy,
    CopyKey,
    FeedbackField,
    Placed,
    PolicyId,
)
from kube_sync.policysync.downstream import digest
from kube_sync.policysync.feedback import feedback_of
from kube_sync.policysync.naming import format_policy, is_label, parse_keys, parse_policy, shorten
from kube_sync.topology.raw_json import UNREADABLE, items, mapping, text
from kube_sync.topology.synced_policies import POLICY

WORKS: Final = GroupVersionResource("work.open-cluster-management.io", "v1", "manifestworks")
LEAVING: Final = "kuadrant.io/grace-timeout"  # annotation: Unix seconds
SELECTOR: Final = f"{MANAGED}=true"
MOST: Final = 500 * 1024  # bytes of manifests in one work
_FRAME: Final = 16  # bytes that protobuf may add for one
# The agent accepts only managers with this prefix.
SPOKE_MANAGER: Final = "work-agent-kube-sync"
_NAME: Final = 63  # characters: the name is also the value of a label
_KEY: Final = "kuadrant.io/manifestKey"

Json = dict[str, Any]


def work_key(copy: Copy) -> ObjectKey:
    """Return the key of a copy's work: in the namespace of its cluster."""
    policy = copy.key.policy
    plain = "-".join(part for part in (copy.kind, policy.namespace, policy.name) if part).lower()
    # Namespace `a-b`, name `c` and namespace `a`, name `b-c` are equal in the plain form.
    whole = f"{policy.gvr.group}/{policy.gvr.resource}/{policy.namespace}/{policy.name}"
    name = shorten(plain.replace(".", "-"), _NAME, always=whole)
    return ObjectKey(copy.key.cluster, name)


def work_of(copy: Copy, executor: str | None = None) -> Json:
    """Return the work for a copy. Raises Terminal for one that OCM would refuse.

    `executor`: the ServiceAccount on the spoke, `namespace/name`, whose rights bound the agent's.
    """
    check([copy.body])
    key, policy = work_key(copy), copy.key.policy
    metadata = mapping(copy.body, "metadata")
    return {
        "apiVersion": WORKS.api_version,
        "kind": "ManifestWork",
        "metadata": {
            "name": key.name,
            "namespace": key.namespace,
            "labels": {"kuadrant.io": "managed", _KEY: key.name, MANAGED: "true"},
            "annotations": {
                "kuadrant.io/parent": str(ObjectKey(policy.namespace, policy.name)),
                POLICY: format_policy(policy),
                GATEWAYS: text(metadata, "annotations", GATEWAYS),
                DIGEST: copy.digest,
            },
        },
        "spec": {
            "deleteOption": {"propagationPolicy": "Foreground"},
            "workload": {"manifests": [copy.body]},
            "manifestConfigs": [_config(copy, metadata)],
            **_executor(executor),
        },
    }


def _executor(account: str | None) -> Json:
    if account is None:
        return {}
    namespace, _, name = account.partition("/")
    subject = {"type": "ServiceAccount", "serviceAccount": {"namespace": namespace, "name": name}}
    return {"executor": {"subject": subject}}


def _config(copy: Copy, metadata: Mapping[str, Any]) -> Json:
    gvr = copy.key.policy.gvr
    identifier = {"group": gvr.group, "resource": gvr.resource, "name": text(metadata, "name")}
    if namespace := text(metadata, "namespace"):
        identifier["namespace"] = namespace
    paths = [{"name": field.name, "path": field.path} for field in copy.feedback]
    return {
        "resourceIdentifier": identifier,
        # Without force: fields that somebody on the spoke set are left, and the work reports it.
        "updateStrategy": {
            "type": "ServerSideApply",
            "serverSideApply": {"force": False, "fieldManager": SPOKE_MANAGER},
        },
        "feedbackRules": [{"type": "JSONPaths", "jsonPaths": paths}],
    }


def check(manifests: Sequence[Mapping[str, Any]]) -> None:
    """Check that OCM accepts the manifests of a work. Raises Terminal with the reason.

    The rules are those of its webhook: some, named ones, each once, of no more than 500 KiB.
    """
    size = sum(_size(one) for one in manifests)
    if not manifests or size > MOST:
        msg = f"{size} bytes of manifests: a ManifestWork takes some, and at most {MOST}"
        raise Terminal(msg)
    seen = set()
    for one in manifests:
        if (found := _identity(one)) in seen:
            msg = f"{'/'.join(found)}: the same object twice in one ManifestWork"
            raise Terminal(msg)
        seen.add(found)


def _size(manifest: Mapping[str, Any]) -> int:
    """Return the webhook's size of a manifest in bytes: Go's JSON escapes <, > and &."""
    encoded = msgspec.json.encode(manifest)
    return len(encoded) + _FRAME + 5 * sum(map(encoded.count, (b"<", b">", b"&")))


def _identity(manifest: Mapping[str, Any]) -> tuple[str, ...]:
    try:
        name, generate = (text(manifest, "metadata", key) for key in ("name", "generateName"))
        namespace = text(manifest, "metadata", "namespace")
        found = (text(manifest, "apiVersion"), text(manifest, "kind"), namespace, name)
    except UNREADABLE as error:
        msg = f"a manifest that cannot be read: {error}"
        raise Terminal(msg) from error
    if not name or generate:
        msg = f"{'/'.join(found)}: a manifest needs metadata.name, and no generateName"
        raise Terminal(msg)
    return found


def placed_of(work: Mapping[str, Any], executor: str | None = None) -> Placed | None:
    """Return the copy in a work, None for one that is not ours or names no policy.

    A work with another executor than this one does not count as right.
    """
    try:
        cluster = text(work, "metadata", "namespace")
        if text(work, "metadata", "labels", MANAGED) != "true" or not is_label(cluster):
            return None
    except UNREADABLE:
        return None
    outside, inside = _copy_annotations(work), _copy_annotations(_manifest(work))
    found = _content_digest(work, inside, executor)
    policy = (inside.policy if found else outside.policy) or inside.policy
    if policy is None:
        return None
    # After an edit of the manifest it is unknown which of the two is true: both count.
    gateways = inside.gateways if found else inside.gateways | outside.gateways
    current_digest = found if outside.names_same_copy(inside) else ""
    leaving = parse_time(outside.leaving)
    return Placed(CopyKey(policy, cluster), current_digest, feedback_of(work), leaving, gateways)


@dataclass(frozen=True, slots=True)
class _CopyAnnotations:
    """The annotations of a work, or of its manifest, about the copy."""

    policy: PolicyId | None = None
    gateways: frozenset[ObjectKey] = frozenset()
    digest: str = ""
    leaving: str = ""

    def names_same_copy(self, other: _CopyAnnotations) -> bool:
        """Return whether they name the same copy."""
        mine = (self.policy, self.gateways, self.digest)
        return mine == (other.policy, other.gateways, other.digest)


def _copy_annotations(one: Mapping[str, Any]) -> _CopyAnnotations:
    try:
        annotations = mapping(one, "metadata", "annotations")
        policy, gateways = (
            parse_policy(text(annotations, POLICY)),
            parse_keys(text(annotations, GATEWAYS)),
        )
        return _CopyAnnotations(
            policy, gateways, text(annotations, DIGEST), text(annotations, LEAVING)
        )
    except UNREADABLE:
        return _CopyAnnotations()


def _manifest(work: Mapping[str, Any]) -> Mapping[str, Any]:
    try:
        return next(items(work, "spec", "workload", "manifests"), {})
    except UNREADABLE:
        return {}


def _content_digest(work: Mapping[str, Any], inside: _CopyAnnotations, executor: str | None) -> str:
    """Return the digest of a work's content; "", which no copy has, if that is no copy."""
    try:
        (manifest,) = items(work, "spec", "workload", "manifests")
        (config,) = items(work, "spec", "manifestConfigs")
        strategy = mapping(config, "updateStrategy")
        managed = text(strategy, "serverSideApply", "fieldManager") == SPOKE_MANAGER
        if not managed or text(strategy, "type") != "ServerSideApply":
            return ""
        if mapping(work, "spec", "executor") != _executor(executor).get("executor", {}):
            return ""
        found = digest(manifest, _rules(config))
    except (*UNREADABLE, ValueError, RecursionError):
        return ""
    # The feedback rules must also read which copy they are about.
    return found if inside.digest == found else ""


def _rules(config: Mapping[str, Any]) -> Iterator[FeedbackField]:
    for rule in items(config, "feedbackRules"):
        for path in items(rule, "jsonPaths"):
            yield FeedbackField(text(path, "name"), text(path, "path"))


def parse_time(text: str) -> float | None:
    """Parse the end of a grace; an invalid mark counts as none, and is written anew."""
    return float(text) if text.isdecimal() and text.isascii() else None
