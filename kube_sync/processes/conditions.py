"""Wire what the replicator does for built-in systems: status conditions, default objects."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final, NoReturn, Protocol

from kube_sync.admission.exemptions import left_out_of_systems
from kube_sync.admission.scheduling.bootstrap import Bootstrap
from kube_sync.admission.scheduling.daemonset_checker import DaemonSetChecker
from kube_sync.kube.collection import KubeCollection
from kube_sync.kube.lease import Lease
from kube_sync.kube.reflector import Reflector
from kube_sync.opa.client import OpaClient
from kube_sync.policykinds.condition_writer import ConditionKeeper, PolicyChecker
from kube_sync.policykinds.conditions import exemption
from kube_sync.policykinds.kinds import METADATA, SCHEDULING, PolicyKind
from kube_sync.policykinds.opa_checker import OpaPolicyChecker
from kube_sync.processes.context import Context
from kube_sync.runtime.services import Service

LEASE: Final = "kube-sync-conditions"  # one for all kinds
_WAITING: Final = "not done yet"
_DEFAULTS: Final = "scheduling bootstrap"
_RESYNC: Final = 30.0  # seconds


class Keeper(Protocol):
    """Reconciles the conditions of policies."""

    def wake(self) -> None:
        """Enqueue every policy."""


def keep_conditions(context: Context, opa: OpaClient) -> list[Service]:
    """Return the services for the conditions of all built-in kinds; none without any."""
    kinds = [kind for kind in (SCHEDULING, METADATA) if kind.system in context.settings.builtin]
    keepers: list[ConditionKeeper] = []

    def wake_all() -> None:
        for keeper in keepers:
            keeper.wake()

    lease = context.lease(LEASE, wake_all, needed=False)
    services: list[Service] = [lease.run] if kinds else []
    for kind in kinds:
        keeper = _keeper(context, opa, kind, lease)
        keepers.append(keeper)
        services += [_reflector(context, kind, keeper).run, keeper.run]
        if kind is SCHEDULING:
            services.append(partial(resync, keeper))
    return services


def _keeper(context: Context, opa: OpaClient, kind: PolicyKind, lease: Lease) -> ConditionKeeper:
    readiness, condition = context.readiness, f"{kind.system} conditions"
    # Noted only: it delays no decision, so the process is ready without it.
    readiness.noted(condition, _WAITING)
    return ConditionKeeper(
        kind,
        context.kube,
        _checker(context, opa, kind),
        lease,
        lambda detail: readiness.noted(condition, detail),
        exempt=partial(exemption, context.settings),
    )


def _checker(context: Context, opa: OpaClient, kind: PolicyKind) -> PolicyChecker:
    checker = OpaPolicyChecker(kind, opa, context.settings.replicate.root)
    if kind is SCHEDULING:
        return DaemonSetChecker(checker, opa, left_out_of_systems(context.settings))
    return checker


def _reflector(context: Context, kind: PolicyKind, keeper: ConditionKeeper) -> Reflector:
    readiness, name = context.readiness, f"{kind.gvr} for conditions"
    readiness.noted(name, _WAITING)

    def report(reason: str | None) -> None:
        readiness.noted(name, reason or "ok")
        if reason is None:
            keeper.listed()

    return Reflector(name, KubeCollection(context.kube, kind.gvr), keeper.store, report)


async def resync(keeper: Keeper, seconds: float = _RESYNC) -> NoReturn:
    """Enqueue all policies every so many seconds until cancelled.

    The report on a policy may depend on objects that no watch enqueues it for: DaemonSets,
    PriorityClasses. Only what differs is written.
    """
    while True:
        await asyncio.sleep(seconds)
        keeper.wake()


def install_defaults(context: Context, opa: OpaClient) -> Service:
    """Return the service that creates missing default objects once `opa` has the rights."""
    root = context.settings.replicate.root

    async def known(path: tuple[str, ...]) -> bool:
        return await opa.get_data((root, *path)) is not None

    # A note: it delays no decision, so the process is ready without it.
    context.readiness.noted(_DEFAULTS, _WAITING)
    note = partial(context.readiness.noted, _DEFAULTS)
    return Bootstrap(context.kube, known, note).run
