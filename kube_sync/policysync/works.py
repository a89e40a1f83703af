"""Copies as ManifestWorks of Open Cluster Management (OCM), and back.

The shape is that of `work.open-cluster-management.io/v1`, the limits those of its webhook. A work
has one manifest and a name that is its policy's alone, whatever the version: a policy that is
synced in another version keeps its works.

Keeps true: what a work is found to carry is what its digest says, not what it was meant to carry;
so a work that somebody edited is put right. That goes for what it says of itself as well: of which
policy it is, and for which Gateways, its manifest says, which the digest is of.
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
from kube_sync.policysync.naming import cut, is_label, keys_of, policy_of, spelt
from kube_sync.topology.raw_json import UNREADABLE, items, mapping, text
from kube_sync.topology.synced import POLICY

WORKS: Final = GroupVersionResource("work.open-cluster-management.io", "v1", "manifestworks")
LEAVING: Final = "kuadrant.io/grace-timeout"  # annotation: unix seconds
SELECTOR: Final = f"{MANAGED}=true"
MOST: Final = 500 * 1024  # bytes of manifests in one work
_FRAME: Final = 16  # bytes that protobuf may put around one
# The agent takes no other manager than one that begins so.
SPOKE_MANAGER: Final = "work-agent-kube-sync"
_NAME: Final = 63  # characters: the name is also the value of a label
_KEY: Final = "kuadrant.io/manifestKey"

Json = dict[str, Any]


def work_key(copy: Copy) -> ObjectKey:
    """Return where the work of a copy is: in the namespace of its cluster."""
    policy = copy.key.policy
    plain = "-".join(part for part in (copy.kind, policy.namespace, policy.name) if part).lower()
    # Of `a-b` and `c` the plain one is that of `a` and `b-c`.
    whole = f"{policy.gvr.group}/{policy.gvr.resource}/{policy.namespace}/{policy.name}"
    name = cut(plain.replace(".", "-"), _NAME, always=whole)
    return ObjectKey(copy.key.cluster, name)


def work_of(copy: Copy, executor: str | None = None) -> Json:
    """Return the work that brings a copy. Raises Terminal for one that OCM would refuse.

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
                POLICY: spelt(policy),
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
        # Not by force: what somebody on the spoke has set himself is his, and the work says so.
        "updateStrategy": {
            "type": "ServerSideApply",
            "serverSideApply": {"force": False, "fieldManager": SPOKE_MANAGER},
        },
        "feedbackRules": [{"type": "JSONPaths", "jsonPaths": paths}],
    }


def check(manifests: Sequence[Mapping[str, Any]]) -> None:
    """Make sure that OCM takes the manifests of a work. Raises Terminal, in words.

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
    """Return as how many bytes the webhook gets a manifest: Go's JSON spells <, > and & longer."""
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
    """Return what a work places, None for one that is not ours or says not of which policy.

    A work with another executor than this one does not count as right.
    """
    try:
        cluster = text(work, "metadata", "namespace")
        if text(work, "metadata", "labels", MANAGED) != "true" or not is_label(cluster):
            return None
    except UNREADABLE:
        return None
    outside, inside = _notes(work), _notes(_manifest(work))
    found = _carried(work, inside, executor)
    policy = (inside.policy if found else outside.policy) or inside.policy
    if policy is None:
        return None
    # Of a manifest that was edited nobody knows which of the two is true: both are kept for.
    gateways = inside.gateways if found else inside.gateways | outside.gateways
    right = found if outside.says(inside) else ""
    leaving = time_of(outside.leaving)
    return Placed(CopyKey(policy, cluster), right, feedback_of(work), leaving, gateways)


@dataclass(frozen=True, slots=True)
class _Notes:
    """What the annotations of a work, or of its manifest, say of the copy."""

    policy: PolicyId | None = None
    gateways: frozenset[ObjectKey] = frozenset()
    digest: str = ""
    leaving: str = ""

    def says(self, other: _Notes) -> bool:
        """Tell whether they say the same of which copy it is."""
        mine = (self.policy, self.gateways, self.digest)
        return mine == (other.policy, other.gateways, other.digest)


def _notes(one: Mapping[str, Any]) -> _Notes:
    try:
        said = mapping(one, "metadata", "annotations")
        policy, gateways = policy_of(text(said, POLICY)), keys_of(text(said, GATEWAYS))
        return _Notes(policy, gateways, text(said, DIGEST), text(said, LEAVING))
    except UNREADABLE:
        return _Notes()


def _manifest(work: Mapping[str, Any]) -> Mapping[str, Any]:
    try:
        return next(items(work, "spec", "workload", "manifests"), {})
    except UNREADABLE:
        return {}


def _carried(work: Mapping[str, Any], inside: _Notes, executor: str | None) -> str:
    """Return the digest of what is in a work; "", which no copy has, where that is no copy."""
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
    # Also what is read back of the spoke has to say which copy it is about.
    return found if inside.digest == found else ""


def _rules(config: Mapping[str, Any]) -> Iterator[FeedbackField]:
    for rule in items(config, "feedbackRules"):
        for path in items(rule, "jsonPaths"):
            yield FeedbackField(text(path, "name"), text(path, "path"))


def time_of(said: str) -> float | None:
    """Return the end of a grace; a mark that says no time is as none, and is made anew."""
    return float(said) if said.isdecimal() and said.isascii() else None
