"""A collection that is listed again although nearly nothing changed, and what that costs OPA."""

from __future__ import annotations

from collections.abc import Iterable

from tests.faults.proxy import reply
from tests.faults.world import REPLICASETS, World, until

_OPERATIONS = "kube_sync_opa_batch_operations"
_EXPIRED_LISTS = 'kube_sync_reflector_lists_total{reason="expired",resource="replicasets.v1.apps"}'
_PROTOCOL = 3  # operations in a batch that are not about objects: the epoch, and two of the fence
_END_OF_LOAD = 2


async def operations_of_a_relist(world: World, changed: Iterable[tuple[str, str]]) -> float:
    """Change ReplicaSets, [namespace, name], while disconnected, then let their watch be too old.

    Returns how many operations on objects OPA got.
    """
    before, lists = await _operations(world), await world.metric(_EXPIRED_LISTS)
    world.kube.outer.refusing = True
    world.kube.outer.cut()
    for where in changed:
        await world.objects.mark(REPLICASETS, *where)
    world.kube.outer.refusing = False
    world.kube.answer(reply(410), times=1, wanted=b"/replicasets?watch=1")
    await until("they are listed again", lambda: world.more(_EXPIRED_LISTS, lists))
    await until("OPA equals the API server", world.equal)
    return await _operations(world) - before


async def _operations(world: World) -> float:
    """Return how many operations on objects OPA got so far."""
    # At one moment: a heartbeat between two looks would count.
    heartbeats, small, count, total = await world.metrics(
        _OPERATIONS + '_bucket{le="1.0"}',
        _OPERATIONS + '_bucket{le="2.0"}',  # heartbeats and ends of loads
        _OPERATIONS + "_count",
        _OPERATIONS + "_sum",
    )
    protocol = heartbeats + _END_OF_LOAD * (small - heartbeats) + _PROTOCOL * (count - small)
    return total - protocol
