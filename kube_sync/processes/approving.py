"""`kube-sync remediate approve` and `policy-sync approve`: write approvals as the calling user.

On a policy ConfigMap for what decisions would move; on the ConfigMap with the parameters of a
GatewayClass for what policy sync would remove.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable

import msgspec

from kube_sync.config import Settings
from kube_sync.errors import Terminal
from kube_sync.kube.approvals import APPROVED, with_approved
from kube_sync.kube.client import KubeClient, kube_client
from kube_sync.kube.collection import Item, KubeCollection
from kube_sync.kube.configmaps import CONFIGMAPS
from kube_sync.kube.meta import object_meta
from kube_sync.kube.patch import annotate
from kube_sync.kube.policymaps import parse
from kube_sync.kube.reflector import items_of
from kube_sync.kube.staging import ACTIVE
from kube_sync.kube.wholeobjects import read_object
from kube_sync.objects import ObjectKey
from kube_sync.policysync.hubstate import GATEWAY_CLASSES
from kube_sync.policysync.parameters import reference

_MANAGER = "kube-sync-approve"


async def run_approve(
    settings: Settings, names: list[str], now: Callable[[], float] = time.time
) -> str:
    """Approve these names on the first policy ConfigMap; return which. Raises SyncError."""
    async with kube_client(settings.kubernetes) as kube:
        items = [item async for item in _policies(kube, settings.policies.namespaces)]
        if not items:
            where = ", ".join(settings.policies.namespaces)
            msg = f"there is no policy ConfigMap in {where} to approve anything on"
            raise Terminal(msg)
        item = min(items, key=lambda item: item.key)
        value = with_approved(object_meta(item.body).annotations or {}, names, now())
        await annotate(kube, CONFIGMAPS, item.key, item.version, {APPROVED: value}, _MANAGER)
        return f"approved on ConfigMap {item.key}: {', '.join(names)}"


async def run_approve_removals(
    settings: Settings, names: list[str], now: Callable[[], float] = time.time
) -> str:
    """Approve these names on the first class's parameters; return which. Raises SyncError."""
    async with kube_client(settings.kubernetes) as kube:
        async for key in _parameters(kube):
            answer = await read_object(kube, CONFIGMAPS, key)
            if answer is None:
                continue
            metadata = object_meta(answer)
            value = with_approved(metadata.annotations or {}, names, now())
            await annotate(
                kube, CONFIGMAPS, key, metadata.resource_version, {APPROVED: value}, _MANAGER
            )
            return f"approved on ConfigMap {key}: {', '.join(names)}"
    msg = "there is no GatewayClass with parameters to approve anything on"
    raise Terminal(msg)


async def _parameters(kube: KubeClient) -> AsyncGenerator[ObjectKey]:
    classes = [item async for item in items_of(KubeCollection(kube, GATEWAY_CLASSES))]
    for item in sorted(classes, key=lambda item: item.key):
        found = reference(msgspec.json.decode(item.body))
        if isinstance(found, ObjectKey):
            yield found


async def _policies(kube: KubeClient, namespaces: tuple[str, ...]) -> AsyncGenerator[Item]:
    for namespace in namespaces:
        async for item in items_of(KubeCollection(kube, CONFIGMAPS, namespace=namespace)):
            if (found := parse(item)) is not None and found.stage == ACTIVE:
                yield item
