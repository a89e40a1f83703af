"""The policy systems that can be built in (`builtin`), as a table: what each of them needs.

Invariant: a system's own resources are replicated whole, at the place where its rules read them;
if the configuration has one of them too, one watch replicates the fields of both. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from kube_sync.config.kinds import Section
from kube_sync.config.model import Settings
from kube_sync.config.replication import Resource
from kube_sync.errors import Misconfigured
from kube_sync.objects import GroupVersionResource

_ROOT = "kubernetes"  # of what the built-in rules read, `data.kubernetes.roles`
_RBAC = "rbac.authorization.k8s.io"


@dataclass(frozen=True, slots=True)
class System:
    """One system; its modules lie in the folder of its name, as does its section of Settings."""

    name: str
    kind: str  # of its policies, for people
    policies: GroupVersionResource
    resources: tuple[Resource, ...]  # what its rules read, and no more of it
    admits: str = "decision"  # its decision on what may still be changed, in its package
    checks: str = "decision"  # and on what became of it
    # What it decides depends on an object's spec and on nothing else of it.
    by_spec: bool = True
    # Its policies are for what is in their own namespace, of whatever kind.
    by_namespace: bool = False
    explains: bool = False  # gives reasons where it admits, too

    @property
    def decision(self) -> str:
        """The path in OPA of its decision on what may still be changed."""
        return f"kube_sync/{self.name}/{self.admits}"

    @property
    def check(self) -> str:
        """The path in OPA of its decision on the object as it will be stored."""
        return f"kube_sync/{self.name}/{self.checks}"

    def section(self, settings: Settings) -> Section:
        """Return what the configuration says for its rules."""
        section: Section = getattr(settings, self.name)
        return section


def _whole(gvr: GroupVersionResource, *fields: str) -> Resource:
    # All of it: what `replicate` says of namespaces would hide a binding.
    return Resource(gvr.group, gvr.version, gvr.resource, namespaces=(), fields=fields)


def _rbac(resource: str, *fields: str) -> Resource:
    return _whole(GroupVersionResource(_RBAC, "v1", resource), *fields)


_SCHEDULING = GroupVersionResource("policy.kube-sync.io", "v1alpha1", "schedulingpolicies")
# What its rules read of a template, as of a pod.
_TEMPLATE = tuple(
    f"spec.template.spec.{field}"
    for field in (
        *("affinity", "nodeName", "nodeSelector", "tolerations"),
        *("priorityClassName", "schedulerName", "serviceAccount", "serviceAccountName"),
        *("containers.resources", "initContainers.resources"),
    )
)
_METADATA = GroupVersionResource("policy.kube-sync.io", "v1alpha1", "metadatapolicies")

SYSTEMS: Mapping[str, System] = {
    system.name: system
    for system in (
        System(
            "scheduling",
            "SchedulingPolicy",
            _SCHEDULING,
            (
                _whole(_SCHEDULING, "spec"),
                _rbac("roles", "rules"),
                _rbac("rolebindings", "roleRef", "subjects"),
                _rbac("clusterroles", "rules"),
                _rbac("clusterrolebindings", "roleRef", "subjects"),
                _whole(
                    GroupVersionResource("apps", "v1", "daemonsets"),
                    "spec.template.metadata.labels",
                    *_TEMPLATE,
                ),
                _whole(
                    GroupVersionResource("scheduling.k8s.io", "v1", "priorityclasses"),
                    "globalDefault",
                ),
            ),
        ),
        # With the quality of service of pods, which policies look at in the same review.
        System(
            "metadata",
            "MetadataPolicy",
            _METADATA,
            (_whole(_METADATA, "spec"),),
            admits="pipeline",
            checks="checked",
            by_spec=False,
            by_namespace=True,
            explains=True,
        ),
    )
}


def exempt_namespaces(settings: Settings) -> tuple[str, ...]:
    """Return the namespaces about whose objects no built-in system is asked.

    Pods that a cluster needs to start, and our own, must start while the webhook does not answer.
    """
    return tuple(dict.fromkeys(("kube-system", settings.coordination.namespace)))


def chosen(settings: Settings) -> tuple[System, ...]:
    """Return the systems that are built in, each once."""
    return tuple(SYSTEMS[name] for name in dict.fromkeys(settings.builtin))


def supplied(settings: Settings) -> frozenset[str]:
    """Return the names in OPA of what is replicated for the built-in systems."""
    return frozenset(found.name for system in chosen(settings) for found in system.resources)


def with_builtin(settings: Settings) -> Settings:
    """Return the settings with all that the built-in systems need replicated."""
    resources = {resource.name: resource for resource in settings.replicate.resources}
    for system in chosen(settings):
        for needed in system.resources:
            also = resources.get(needed.name)
            resources[needed.name] = needed if also is None else _both(settings, also, needed)
    replicate = msgspec.structs.replace(settings.replicate, resources=tuple(resources.values()))
    return msgspec.structs.replace(settings, replicate=replicate)


def check_builtin(settings: Settings) -> None:
    """Check that built-in systems find the resources that they read. Raises Misconfigured."""
    if settings.builtin and settings.replicate.root != _ROOT:
        msg = (
            f'replicate.root: "{settings.replicate.root}", but the built-in systems read'
            f" data.{_ROOT}: remove the key"
        )
        raise Misconfigured(msg)
    needed = {found.name: found for system in chosen(settings) for found in system.resources}
    for index, resource in enumerate(settings.replicate.resources):
        if (own := needed.get(resource.name)) is not None:
            _check_named_too(f"replicate.resources[{index}]", settings, resource, own)


def _check_named_too(path: str, settings: Settings, resource: Resource, own: Resource) -> None:
    if resource.gvr != own.gvr:
        what = f"{resource.gvr} is"
    elif _is_part(settings, resource):
        what = "a part of it is"
    else:
        return
    msg = (
        f'{path}: {what} "{resource.name}" in OPA, where the built-in systems read all {own.gvr};'
        " give the resource another name with `as`"
    )
    raise Misconfigured(msg)


def _is_part(settings: Settings, resource: Resource) -> bool:
    replicate = settings.replicate
    return any(
        (
            resource.label_selector,
            resource.field_selector,
            replicate.namespaces_of(resource),
            replicate.ignored_of(resource),
        )
    )


def _both(settings: Settings, also: Resource, needed: Resource) -> Resource:
    """Return a resource with the fields of both, whole where one of them is not named fields."""
    if also == needed:
        return also
    paths = also.paths
    if paths is None or settings.replicate.is_auto(also):
        return msgspec.structs.replace(also, fields="all")
    fields = dict.fromkeys((*paths, *(needed.paths or ())))
    return msgspec.structs.replace(also, fields=tuple(fields))
