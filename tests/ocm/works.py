"""ManifestWorks as the agent and OCM's webhook read them: values in, values out."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from kube_sync.objects import GroupVersionResource

Body = Mapping[str, Any]

WORKS = GroupVersionResource("work.open-cluster-management.io", "v1", "manifestworks")
FINALIZER = "cluster.open-cluster-management.io/manifest-work-cleanup"
LIMIT = 500 * 1024  # bytes of all manifests of a work together


class WorkRefused(Exception):
    """OCM's admission webhook would not have let a work in."""


def refusal(work: Body) -> str | None:
    """Return what OCM's webhook has against a work, None for nothing."""
    manifests = work.get("spec", {}).get("workload", {}).get("manifests", ())
    if not manifests:
        return "Workload manifests should not be empty"
    size = sum(len(json.dumps(manifest, separators=(",", ":"))) for manifest in manifests)
    if size > LIMIT:
        return f"the size of manifests is {size} bytes which exceeds the {LIMIT} limit"
    seen = set()
    for manifest in manifests:
        metadata = manifest.get("metadata", {})
        if metadata.get("generateName"):
            return "generateName must not be set in manifest"
        if not metadata.get("name"):
            return "name must be set in manifest"
        name = (metadata.get("namespace", ""), metadata["name"])
        if (called := (manifest.get("apiVersion"), manifest.get("kind"), *name)) in seen:
            return f"duplicate manifest found: {' '.join(map(str, called))}"
        seen.add(called)
    return None


def manifests_of(work: Body) -> list[Body]:
    """Return the manifests of a work."""
    return list(work["spec"]["workload"]["manifests"])


def placed_of(work: Body) -> Iterator[Body]:
    """Yield the resourceMeta of what the status of a work says to be on the cluster."""
    for entry in work.get("status", {}).get("resourceStatus", {}).get("manifests", ()):
        if entry["resourceMeta"].get("resource"):
            yield entry["resourceMeta"]


def identity(meta: Body) -> tuple[str, ...]:
    """Return what a resource is known by: group, resource, namespace, name."""
    return tuple(meta.get(name, "") for name in ("group", "resource", "namespace", "name"))


def config_of(work: Body, meta: Body) -> Body:
    """Return the manifestConfig for a resource; empty where the work has none."""
    configs: Iterable[Body] = work["spec"].get("manifestConfigs", ())
    wanted = identity(meta)
    return next((c for c in configs if identity(c["resourceIdentifier"]) == wanted), {})


def owns(work: Body, meta: Body) -> bool:
    """Tell whether a resource goes when the work goes (deleteOption)."""
    option = work["spec"].get("deleteOption", {})
    match option.get("propagationPolicy", "Foreground"):
        case "Orphan":
            return False
        case "SelectivelyOrphan":
            rules = option.get("selectivelyOrphans", {}).get("orphaningRules", ())
            return identity(meta) not in map(identity, rules)
    strategy: Body = config_of(work, meta).get("updateStrategy", {})
    return bool(strategy.get("type") != "ReadOnly")
