"""Validates a kind of policies for sync: it is served, has targets, and we may read and patch it.

An annotation of each policy has the places of its copies, and its status their results,
so patching both is as needed as reading.

Invariant: what is not yet known is not reported as a failure. A schema that preserves unknown
fields in place of the targets does not declare any, and so is not that of a policy; within a
targetRef it may preserve unknown fields.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kube_sync.objects import GroupVersionResource
from kube_sync.topology.raw_json import UNREADABLE, items, mapping, reason, text

_PATCH_STATUS: Final = "patch status"
VERBS: Final = ("get", "list", "watch", "patch", _PATCH_STATUS)  # see `kube.access.allowed`
_SCHEMA: Final = ("schema", "openAPIV3Schema", "properties")


@dataclass(frozen=True, slots=True)
class Valid:
    """It can be synced: its kind, and the form of its status."""

    kind: str
    namespaced: bool = True
    conditions: bool = True  # the hub's policy can have conditions in its status
    ancestors: bool = False  # it can have those of ancestors (PolicyStatus of the Gateway API)


@dataclass(frozen=True, slots=True)
class Faulty:
    """It cannot be synced, and why."""

    reason: str


@dataclass(frozen=True, slots=True)
class Undetermined:
    """It is not known yet."""

    reason: str


Verdict = Valid | Faulty | Undetermined


def validate(
    gvr: GroupVersionResource,
    crd: Mapping[str, Any] | None,
    allowed: Collection[str] | None,
    *,
    listed: bool = True,
) -> Verdict:
    """Validate a kind by its CustomResourceDefinition and the verbs that we are allowed.

    `listed`: definitions are known at all; `allowed` is None before the API server has answered.
    """
    if crd is None and not listed:
        return Undetermined("CustomResourceDefinitions could not be listed yet")
    try:
        found = _validate_definition(gvr, crd or {})
    except UNREADABLE as error:
        return Faulty(f"its definition cannot be read: {reason(error)}")
    if isinstance(found, Faulty):
        return found
    if allowed is None:
        return Undetermined("it is not known yet whether it may be read")
    missing = [verb for verb in VERBS if verb not in allowed and _is_needed(verb, found)]
    return Faulty(f"no permission to {_format_verbs(missing)}") if missing else found


def _is_needed(verb: str, kind: Valid) -> bool:
    """Return whether a verb is needed: a kind without a writable status needs no patch of it."""
    return verb != _PATCH_STATUS or kind.conditions or kind.ancestors


def _format_verbs(verbs: Sequence[str]) -> str:
    plain = ", ".join(verb for verb in verbs if verb != _PATCH_STATUS)
    status = ["patch its status"] if _PATCH_STATUS in verbs else []
    return " and to ".join([f"{plain} it", *status] if plain else status)


def syncable_kind(crd: Mapping[str, Any]) -> GroupVersionResource | None:
    """Return a kind that could be synced, whether it is or not, in one version; None: it cannot."""
    try:
        group, resource = text(crd, "spec", "group"), text(crd, "spec", "names", "plural")
        versions = sorted(items(crd, "spec", "versions"), key=lambda one: not one.get("storage"))
        for version in versions:
            gvr = GroupVersionResource(group, text(version, "name"), resource)
            if isinstance(_validate_definition(gvr, crd), Valid):
                return gvr
    except UNREADABLE:
        return None
    return None


def _validate_definition(gvr: GroupVersionResource, crd: Mapping[str, Any]) -> Valid | Faulty:
    names = mapping(crd, "spec", "names")
    if (text(crd, "spec", "group"), text(names, "plural")) != (gvr.group, gvr.resource):
        return Faulty("no such resource")
    served = {text(one, "name"): one for one in items(crd, "spec", "versions") if one.get("served")}
    if (version := served.get(gvr.version)) is None:
        return Faulty(f"version {gvr.version} is not served, but {', '.join(sorted(served))}")
    if not _is_established(crd):
        return Faulty("its definition is not established")
    if text(crd, "metadata", "deletionTimestamp"):
        # The API server now deletes its objects, which are no individual deletions.
        return Faulty("its definition is being deleted")
    schema = mapping(version, *_SCHEMA)
    if not _has_targets(mapping(schema, "spec", "properties")):
        return Faulty("its schema has neither .spec.targetRef nor .spec.targetRefs")
    return Valid(
        text(names, "kind"),
        namespaced=text(crd, "spec", "scope") == "Namespaced",
        conditions=_has_conditions(version, schema),
        ancestors=_has_ancestors(version, schema),
    )


def _is_established(crd: Mapping[str, Any]) -> bool:
    """Return whether the API server serves it; a definition without a status counts as served."""
    statuses = {
        text(one, "type"): text(one, "status") for one in items(crd, "status", "conditions")
    }
    return statuses.get("Established", "True") == "True"


def _has_targets(spec: Mapping[str, Any]) -> bool:
    listed = mapping(spec, "targetRefs")
    return text(spec, "targetRef", "type") == "object" or (
        text(listed, "type") == "array" and text(listed, "items", "type") == "object"
    )


def _has_status(version: Mapping[str, Any]) -> bool:
    return version.get("subresources") is not None and "status" in mapping(version, "subresources")


def _has_ancestors(version: Mapping[str, Any], schema: Mapping[str, Any]) -> bool:
    listed = text(schema, "status", "properties", "ancestors", "type") == "array"
    return listed and _has_status(version)


def _has_conditions(version: Mapping[str, Any], schema: Mapping[str, Any]) -> bool:
    if not _has_status(version):
        return False
    status = mapping(schema, "status")
    listed = text(status, "properties", "conditions", "type") == "array"
    return listed or status.get("x-kubernetes-preserve-unknown-fields") is True
