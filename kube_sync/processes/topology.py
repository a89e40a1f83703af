"""Wires `kube-sync topology --live`: the topology controller and its status writers.

It needs no OPA: the replicator loads the effective policies into OPA, from the same topology
of the same objects.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from functools import partial
from typing import Final

from kube_sync.kube.definitions import Version
from kube_sync.kube.lease import Lease
from kube_sync.objects import GroupVersionResource
from kube_sync.processes.context import Context, report_lease
from kube_sync.runtime.services import Service
from kube_sync.topology import GroupKind
from kube_sync.topology.controller.controller import Controller
from kube_sync.topology.controller.followed_kinds import FollowedKinds
from kube_sync.topology.controller.kind_selection import Chooser
from kube_sync.topology.controller.live_topology import LiveTopology
from kube_sync.topology.controller.world import World
from kube_sync.topology.gateway import gateway_api
from kube_sync.topology.shape import topology_shape
from kube_sync.topology.status.reconciler import StatusReconciler
from kube_sync.topology.status.resync import ResyncLoop
from kube_sync.topology.status.writer import Address, Addresses

LEASE: Final = "kube-sync-topology"


def topology(context: Context) -> list[Service]:
    """Return the services that maintain the topology and, while leader, write its statuses."""
    readiness, changed = context.readiness, asyncio.Event()
    world, shape = World(changed.set), topology_shape(gateway_api(), context.settings.topology)
    chooser = Chooser(shape.kinds)
    followed = FollowedKinds(context.kube, world, readiness, changed.set, chooser)
    readiness.noted("statuses", "not looked at yet")

    # By a lambda: the controller is created with the Lease that wakes it.
    lease = context.lease(LEASE, lambda: controller.wake())  # noqa: PLW0108
    resync = ResyncLoop()
    reconciler = _status_reconciler(context, world, followed, lease, resync)
    controller = Controller(
        LiveTopology(world, followed, shape.kinds, shape.links, roots=shape.roots),
        changed,
        reconciler.workflow,
        lease,
        readiness.reporter("topology"),
        heeds=reconciler.needs_reconcile,
        withheld=lambda: withheld(followed.unseen, chooser.kinds),
    )
    readiness.waiting("topology", "nothing is listed yet")
    readiness.met("start")
    return [
        followed.run,
        lease.run,
        controller.run,
        partial(resync.run, controller.wake),
        partial(report_lease, lease, LEASE, readiness),
    ]


def _status_reconciler(
    context: Context, world: World, followed: FollowedKinds, lease: Lease, resync: ResyncLoop
) -> StatusReconciler:
    """Return the writer of statuses and of the topology picture."""
    settings = context.settings.topology
    return StatusReconciler(
        context.kube,
        world.get,
        _addresses(followed, frozenset(settings.statuses)),
        lambda: lease.remaining,
        context.settings.coordination.namespace,
        partial(context.readiness.noted, "statuses"),
        unknown_kinds=lambda: tuple(followed.unseen),
        resync=resync,
        ours=settings.statuses,
        paths=settings.paths,
    )


def withheld(unseen: Mapping[GroupKind, str], kinds: Collection[GroupKind]) -> list[str]:
    """Return which of the target `kinds` exist and were never listed.

    Without them targets seem not to exist. Kinds of policies that were not listed are left
    out one by one: who installs one need not know of this process.
    """
    return [f"{kind} ({unseen[kind]})" for kind in sorted(unseen) if kind in kinds]


def _addresses(followed: FollowedKinds, ours: Collection[str]) -> Addresses:
    """Return the status address of each kind; `ours` are kinds whose conditions we own."""

    def address(kind: GroupKind) -> Address | None:
        choice = followed.choices.get(kind)
        if choice is None:
            return None
        version = followed.version(choice.gvr)
        if version is None:
            return Address(choice.gvr, lacking="its CustomResourceDefinition is not known")
        return address_of(choice.gvr, version, named=str(kind) in ours)

    return address


def address_of(gvr: GroupVersionResource, version: Version, *, named: bool) -> Address:
    """Return where in their status policies get conditions; `named`: we own the conditions."""
    if version.type_of("status", "ancestors") == "array":
        return Address(gvr, ancestors=True)
    if version.type_of("status", "conditions") != "array":
        return Address(gvr, lacking="its schema has neither status.ancestors nor status.conditions")
    if named:
        return Address(gvr, conditions=True)
    lacking = "its schema has no array status.ancestors, and topology.statuses does not name it"
    return Address(gvr, lacking=lacking)
