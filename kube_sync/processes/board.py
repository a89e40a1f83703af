"""Wires the web page, on the port of the decision stream."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from aiohttp import web

from kube_sync.decisions.explaining import Explaining
from kube_sync.decisions.history import History
from kube_sync.decisions.hub import DecisionHub
from kube_sync.guard import Placements
from kube_sync.opa.client import OpaClient
from kube_sync.processes.context import Context
from kube_sync.replicator.replicator import Replicator
from kube_sync.ui.api import BoardApi
from kube_sync.ui.fleet import FleetReader
from kube_sync.ui.page import page_routes
from kube_sync.ui.remediator_client import remediator_client
from kube_sync.ui.replication import health
from kube_sync.ui.story import Stories


@dataclass(frozen=True, slots=True)
class Served:
    """The routes of the page."""

    routes: list[web.RouteDef]
    tokenless: list[web.RouteDef]


async def serve_board(
    context: Context, replicator: Replicator, hub: DecisionHub, opa: OpaClient
) -> Served:
    """Return the page's routes; they query the remediator until the process ends."""
    settings, history = context.settings, History()
    hub.listeners.append(history.add)
    root, path = settings.replicate.root, settings.placement.path
    client = await context.stack.enter_async_context(remediator_client(settings.remediate))
    stories = Stories(
        hub,
        replicator,
        history,
        opa,
        Explaining(opa, path),
        remediator=client.read,
        targets=lambda: replicator.targets,
        root=root,
    )
    api = BoardApi(
        fleet=FleetReader(opa, root).read,
        health=partial(health, replicator, hub, context.readiness),
        remediator=client.read,
        history=history,
        stories=stories,
        path=path,
        placements=Placements(settings.remediate.guard.placements).forms,
    )
    return Served(api.routes(), page_routes())
