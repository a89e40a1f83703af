"""The remediator: a reader of the decision stream that patches."""

from __future__ import annotations

from functools import partial

from kube_sync.app.context import Context
from kube_sync.app.publishing import placement_sink
from kube_sync.decisions.decision import REQUESTED
from kube_sync.decisions.requested import FIELD_MANAGER
from kube_sync.kube.collection import KubeCollection
from kube_sync.kube.discovery import kind_of
from kube_sync.kube.patch import annotate, apply_metadata
from kube_sync.kube.reflector import Reflector, Store
from kube_sync.objects import GroupVersionResource, ObjectKey
from kube_sync.remediator.kept import Both
from kube_sync.remediator.overheard import Overheard, Records
from kube_sync.remediator.plan import Apply, Forget
from kube_sync.remediator.reconciler import Reconciler
from kube_sync.remediator.streamclient import stream_client
from kube_sync.runtime.services import Service

_WORKERS = 4  # PATCHes in flight at most


async def remediate(context: Context) -> list[Service]:
    """Return what follows the decision stream and patches what it concerns."""
    settings, readiness, kube = context.settings, context.readiness, context.kube
    report = readiness.reporter("decisions")
    report(f"decision stream {settings.decisions.url}: not connected yet")
    stream: Records = await context.stack.enter_async_context(
        stream_client(settings.decisions, report)
    )
    kinds: dict[GroupVersionResource, str] = {}

    async def patch(gvr: GroupVersionResource, key: ObjectKey, step: Apply | Forget) -> None:
        if isinstance(step, Forget):
            await annotate(kube, gvr, key, step.version, {REQUESTED: None}, FIELD_MANAGER)
            return
        if gvr not in kinds:
            kinds[gvr] = await kind_of(kube, gvr)
        await apply_metadata(kube, gvr, kinds[gvr], key, step, FIELD_MANAGER)

    reconciler = Reconciler(patch, settings.remediate.mode)
    services: list[Service] = [reconciler.run] * _WORKERS
    sink = None
    if settings.remediate.sinks.placement_decisions.enabled:
        sink, beside = placement_sink(context, lambda _: settings.remediate.mode, lambda: True)
        stream = Overheard(stream, sink.take)
        services += beside
    services.append(partial(reconciler.follow, stream))
    for resource in settings.targets():
        source = KubeCollection(kube, resource.gvr, metadata_only=True)
        name = f"{resource.gvr} to remediate"
        readiness.waiting(name, "not listed yet")
        store: Store = reconciler.targets(resource.gvr)
        if sink is not None:
            store = Both(store, sink.subjects(resource.gvr))
        services.append(Reflector(name, source, store, readiness.reporter(name)).run)
    readiness.met("start")
    return services
