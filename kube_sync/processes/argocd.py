"""Wires the generator that Argo CD's ApplicationSet controller asks.

In the remediator: the replicator knows what is decided, but only the guard beside the PATCHes knows
what may be carried out of it, and what was.
"""

from __future__ import annotations

from collections.abc import Callable

from kube_sync.config import Settings, parse_listen
from kube_sync.errors import Retriable, json_errors_as
from kube_sync.guard import Placements
from kube_sync.kube.client import KubeClient
from kube_sync.kube.collection import KubeCollection
from kube_sync.kube.meta import object_meta
from kube_sync.kube.wholeobjects import listed_object
from kube_sync.objects import GroupVersionResource, ObjectKey
from kube_sync.processes.context import Context
from kube_sync.remediation.argocd.clusters import CLUSTER, SECRETS, ArgoClusters
from kube_sync.remediation.argocd.generator import Generator
from kube_sync.remediation.argocd.let_through import Carried
from kube_sync.remediation.argocd.server import generator_app
from kube_sync.remediation.decision_cache import DecisionCache
from kube_sync.remediation.events import EventReporter
from kube_sync.runtime.clock import unix_clock
from kube_sync.runtime.httpserver import serving
from kube_sync.runtime.servertls import ServerTls, TlsFiles
from kube_sync.runtime.services import Service
from kube_sync.runtime.tokenfile import TokenFile


async def argocd_generator(
    context: Context,
    decisions: DecisionCache,
    placements: Placements,
    approvals: Callable[[], frozenset[str]],
    events: EventReporter,
) -> list[Service]:
    """Serve the generator, if it is configured; return the services that it needs."""
    settings = context.settings.remediate.argocd
    if settings.listen is None:
        return []
    token = TokenFile(settings.token_file)
    token.current()  # if it is invalid now: fail at the start
    clusters = ArgoClusters()
    generator = Generator(
        _Objects(context.kube),
        _targets(context.settings),
        clusters,
        decisions,
        placements,
        approvals,
        unix_clock(),
        events.notify,
    )
    address, tls = parse_listen("remediate.argocd.listen", settings.listen), _tls(context)
    served = serving(generator_app(generator, token), address, None if tls is None else tls.context)
    await context.stack.enter_async_context(served)
    namespace = settings.namespace
    source = KubeCollection(context.kube, SECRETS, namespace=namespace, label_selector=CLUSTER)
    follow = context.followed(f"clusters of Argo CD in {namespace}", source, clusters)
    return [follow] if tls is None else [follow, tls.follow]


def _tls(context: Context) -> ServerTls | None:
    settings = context.settings.remediate.argocd
    if settings.cert_file is None or settings.key_file is None:
        return None
    files = TlsFiles(settings.cert_file, settings.key_file)
    return ServerTls("generator", files, context.readiness)


def _targets(settings: Settings) -> list[GroupVersionResource]:
    """Return the collections whose objects carry their placements, with what was let through."""
    return [one.gvr for one in settings.targets() if "annotations" in settings.sinks_of(one)]


class _Objects:
    """Reads the metadata of objects, with no other permission than a watch needs."""

    def __init__(self, kube: KubeClient) -> None:
        self._kube = kube

    async def read(self, gvr: GroupVersionResource, key: ObjectKey) -> Carried | None:
        """Return the metadata of an object as it is now. Raises SyncError."""
        item = await listed_object(self._kube, gvr, key, metadata_only=True)
        if item is None:
            return None
        with json_errors_as(Retriable, "its metadata cannot be read"):
            return Carried(item.uid, object_meta(item.body).annotations or {})
