"""The configured topology as OPA holds it: its records, from a cluster or an export.

Invariant: the replicator's own code makes them, from one moment of all kinds; an incomplete
topology ends the plan.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from kube_sync.config import TOPOLOGY, PolicyTopology, Replicate, Resource
from kube_sync.errors import Broken
from kube_sync.inspect.survey.exported import Exported
from kube_sync.kube.client import KubeClient
from kube_sync.kube.collection import Item, ResourceVersion
from kube_sync.kube.reflector import items_of
from kube_sync.objects import ObjectKey
from kube_sync.opa.analysis.result import Collection

if TYPE_CHECKING:  # slow
    from kube_sync.topology.controller.topology_feed import Source

# The kind of a record in an export, where every line is an object.
_RECORDS: Final = Resource("records.kube-sync.io", "v1", "topologyrecords")
_HEADING: Final = {"apiVersion": "records.kube-sync.io/v1", "kind": "TopologyRecord"}
_SECONDS: Final = 30.0  # limit of waiting for a kind that may not be listed

Records = dict[ObjectKey, Item]  # by section and name


class _Exported(msgspec.Struct):
    record: msgspec.Raw


_exported = msgspec.json.Decoder(_Exported)


def place(replicate: Replicate) -> Collection:
    """Return its place in OPA, with sections in place of namespaces."""
    return Collection((replicate.root, TOPOLOGY), namespaced=True)


async def of_cluster(
    client: KubeClient, settings: PolicyTopology, seconds: float = _SECONDS
) -> Records:
    """Return the current records. Raises Broken: not all is listed within `seconds`."""
    # Imported here: most plans are without a topology.
    from kube_sync.observability.readiness import Readiness  # noqa: PLC0415
    from kube_sync.topology.controller.record_source import LiveRecords, News  # noqa: PLC0415
    from kube_sync.topology.controller.topology_feed import (  # noqa: PLC0415
        Notes,
        follow_gateway_api,
        withheld,
    )

    changes, errors = News(), list[str | None]()
    source = follow_gateway_api(client, settings, Notes(Readiness()), changes.wake)
    records = LiveRecords(source.live, changes, partial(withheld, source), errors.append)
    async with asyncio.TaskGroup() as group:
        following = group.create_task(source.followed.run())
        try:
            async with asyncio.timeout(seconds):
                found = {item.key: item async for item in items_of(records)}
        except TimeoutError:
            found = None
        following.cancel()
    if found is None:
        raise Broken(
            [f"topology: not known within {seconds:.0f} s: {_missing_reason(source, errors)}"]
        )
    return found


def lines(records: Mapping[ObjectKey, Item]) -> Iterator[str]:
    """Yield the records as lines of an export."""
    for key, item in records.items():
        metadata = {"namespace": key.namespace, "name": key.name}
        whole = {**_HEADING, "metadata": metadata, "record": msgspec.Raw(item.body)}
        yield msgspec.json.encode(whole).decode()


def of_export(exported: Exported) -> Records:
    """Return the records of an export, none if it has no topology."""
    return {
        key: Item(key, "", ResourceVersion(""), bytes(_exported.decode(body).record))
        for key, body in exported.keyed(_RECORDS)
    }


def _missing_reason(source: Source, errors: list[str | None]) -> str:
    reasons = "; ".join(f"{kind}: {why}" for kind, why in sorted(source.followed.unseen.items()))
    return reasons or next((why for why in reversed(errors) if why), "nothing was told")
