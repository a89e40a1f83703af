"""What the replicator does for SchedulingPolicies besides replicating: conditions and defaults."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Callable
from functools import partial
from typing import Final

from kube_sync.app.context import Context
from kube_sync.kube.collection import KubeCollection
from kube_sync.kube.lease import Lease
from kube_sync.kube.reflector import Reflector
from kube_sync.opa.client import OpaClient
from kube_sync.runtime.services import Service
from kube_sync.scheduling.bootstrap import Bootstrap
from kube_sync.scheduling.conditionkeeper import ConditionKeeper
from kube_sync.scheduling.kinds import SCHEDULING_POLICIES

LEASE: Final = "kube-sync-scheduling"
_WAITING: Final = "not done yet"


def scheduling(context: Context, opa: OpaClient) -> list[Service]:
    """Return what keeps conditions, and installs what is missing of the default objects."""
    settings, kube = context.settings, context.kube

    async def known(path: tuple[str, ...]) -> bool:
        return await opa.get_data((settings.replicate.root, *path)) is not None

    def note(condition: str) -> Callable[[str], None]:
        # A note: neither delays a decision, so the process is ready without them.
        context.readiness.noted(condition, _WAITING)
        return partial(context.readiness.noted, condition)

    def held() -> None:
        keeper.wake()

    identity = f"{socket.gethostname()}_{secrets.token_hex(8)}"
    namespace = settings.coordination.namespace
    lease = Lease(kube, namespace, LEASE, identity, news=held)
    keeper = ConditionKeeper(kube, opa, lease, note("scheduling conditions"))
    bootstrap = Bootstrap(kube, known, note("scheduling bootstrap"))
    listed = note(f"{SCHEDULING_POLICIES} for conditions")
    source = KubeCollection(kube, SCHEDULING_POLICIES)
    reflector = Reflector(
        f"{SCHEDULING_POLICIES} for conditions",
        source,
        keeper.store,
        lambda reason: listed(reason or "ok"),
    )
    return [lease.run, reflector.run, keeper.run, bootstrap.run]
