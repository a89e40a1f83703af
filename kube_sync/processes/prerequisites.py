"""What `kube-sync run` finds missing in a cluster that nobody has prepared, and what mends it.

Each thing that is missing is one log event with what does not work without it, and a command of
kubectl that makes it, for somebody who may. Nothing is made here, and nothing is waited for: the
process goes on, and notices by itself when what was missing is there.
"""

from __future__ import annotations

import shlex
from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import dataclass
from typing import Final

import structlog

from kube_sync.config import CLUSTERS, Resource, Settings, Source
from kube_sync.errors import NotFound, Refused, SyncError
from kube_sync.kube.access import allowed, user_name
from kube_sync.kube.client import KubeClient
from kube_sync.kube.configmaps import ALL_NAMESPACES, CONFIGMAPS
from kube_sync.kube.discovery import is_served
from kube_sync.kube.events import EVENTS
from kube_sync.kube.lease import LEASES
from kube_sync.kube.wholeobjects import NAMESPACES
from kube_sync.objects import GroupVersionResource

log: structlog.stdlib.BoundLogger = structlog.get_logger()

_CLUSTER_KIND: Final = (
    "kubectl apply -f https://raw.githubusercontent.com/kubernetes-sigs/cluster-inventory-api/main"
    "/config/crd/bases/multicluster.x-k8s.io_clusterprofiles.yaml"
)
_NO_LEASE: Final = "no Lease can be held, so nothing is written"
_FOLLOW: Final = ("list", "watch")
# What somebody tries first would want to know of, with what there is instead.
_SHOWN: Final = (
    "opa.url",
    "replicate.resources",
    "placement.resources",
    "policies.namespaces",
    "coordination.namespace",
    "decisions.listen",
    "remediate.mode",
)


@dataclass(frozen=True, slots=True)
class Missing:
    """Something that is missing, what does not work without it, and the command that mends it."""

    what: str
    without: str
    mend: str


def log_defaults(settings: Settings, source: Source, content: bytes) -> None:
    """Log which defaults are in force, of settings that somebody would look for first."""
    for path in _SHOWN:
        if not source.names(content, path):
            section, _, field = path.partition(".")
            value = getattr(getattr(settings, section), field)
            log.info("default", setting=path, value=_shown(value))


async def log_missing(kube: KubeClient, settings: Settings) -> None:
    """Log each thing that is missing; an API server that does not answer is somebody else's."""
    try:
        async for one in missing(kube, settings):
            log.warning("missing", what=one.what, without=one.without, mend=one.mend)
    except SyncError as error:
        log.info("prerequisites_not_checked", reason=str(error))


async def missing(kube: KubeClient, settings: Settings) -> AsyncIterator[Missing]:
    """Yield what is missing: namespaces and kinds, then rights. Raises SyncError."""
    async for one in _missing_objects(kube, settings):
        yield one
    async for one in _missing_rights(kube, settings, await user_name(kube)):
        yield one


async def _missing_objects(kube: KubeClient, settings: Settings) -> AsyncIterator[Missing]:
    purposes = {settings.coordination.namespace: _NO_LEASE}
    purposes |= dict.fromkeys(settings.policies.namespaces, "there can be no policies")
    for name, without in purposes.items():
        match await _exists(kube, name):
            case False:
                yield Missing(f"namespace {name}", without, f"kubectl create namespace {name}")
            case None:
                mend = f"kubectl get namespace {name} || kubectl create namespace {name}"
                yield Missing(f"namespace {name}, perhaps: it may not be read", without, mend)
    for resource in settings.replicate.resources:
        if not await is_served(kube, resource.gvr):
            yield _kind(resource)


async def _missing_rights(
    kube: KubeClient, settings: Settings, user: str
) -> AsyncIterator[Missing]:
    home, targets = settings.coordination.namespace, settings.targets()
    for resource in settings.replicate.resources:
        verbs = (*_FOLLOW, "patch") if resource in targets else _FOLLOW
        if lacking := await _lacking(kube, resource.gvr, verbs):
            without = f"{resource.name} are not replicated"
            if not set(_FOLLOW) & set(lacking):
                without = f"decisions on {resource.name} are not written"
            yield _right(resource.gvr, lacking, user, without)
    if lacking := await _lacking(kube, LEASES, ("get", "create", "update"), home):
        yield _right(LEASES, lacking, user, _NO_LEASE, home)
    if lacking := await _lacking(kube, CONFIGMAPS, ("get", "create", "patch"), home):
        yield _right(CONFIGMAPS, lacking, user, "last good policies are not kept", home)
    labelled = settings.policies.labelled.namespaces
    places = (None if name == ALL_NAMESPACES else name for name in labelled)
    for name in dict.fromkeys([*settings.policies.namespaces, *places]):
        if lacking := await _lacking(kube, CONFIGMAPS, (*_FOLLOW, "patch"), name):
            yield _right(CONFIGMAPS, lacking, user, "policies have no effect, or no status", name)
    if lacking := await _lacking(kube, EVENTS, ("create", "patch")):
        yield _right(EVENTS, lacking, user, "nobody is told by Events what is held")


async def _exists(kube: KubeClient, namespace: str) -> bool | None:
    """Tell whether a namespace exists, None: the user may not see it. Raises SyncError."""
    try:
        await kube.request("GET", NAMESPACES.path(name=namespace))
    except NotFound:
        return False
    except Refused:
        return None
    return True


async def _lacking(
    kube: KubeClient,
    gvr: GroupVersionResource,
    verbs: Sequence[str],
    namespace: str | None = None,
) -> list[str]:
    found = await allowed(kube, gvr, verbs, namespace)
    return [verb for verb in verbs if verb not in found]


def _kind(resource: Resource) -> Missing:
    mend = f"install the CustomResourceDefinition of {resource.gvr}"
    without = f"{resource.name} are not replicated"
    if resource.name == CLUSTERS:
        mend, without = _CLUSTER_KIND, "policies know no clusters"
    return Missing(f"kind {resource.gvr}", without, mend)


def _right(
    gvr: GroupVersionResource,
    verbs: Collection[str],
    user: str,
    without: str,
    namespace: str | None = None,
) -> Missing:
    """Return a right that is missing, with the role and the binding that give it."""
    name = f"kube-sync-run-{gvr.resource}-{'-'.join(verbs)}"
    kind, inside = ("role", f" --namespace={namespace}") if namespace else ("clusterrole", "")
    resource = f"{gvr.resource}.{gvr.group}" if gvr.group else gvr.resource
    what = f"right to {', '.join(verbs)} {resource}" + (f" in {namespace}" if namespace else "")
    mend = (
        f"kubectl create {kind} {name}{inside} --verb={','.join(verbs)} --resource={resource}"
        f" && kubectl create {kind}binding {name}{inside} --{kind}={name}"
        f" --user={shlex.quote(user)}"
    )
    return Missing(what, without, mend)


def _shown(value: object) -> object:
    """Return a value for a log line."""
    if not isinstance(value, tuple):
        return value
    return [str(one.gvr) if isinstance(one, Resource) else one for one in value]
