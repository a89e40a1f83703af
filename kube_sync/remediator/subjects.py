"""What the metadata of a resource says of its placement."""

from __future__ import annotations

import msgspec

from kube_sync.decisions.placement import PLACEMENT
from kube_sync.decisions.requested import requests
from kube_sync.kube.collection import Item
from kube_sync.kube.placementdecisions import PLACEMENT_KEY
from kube_sync.remediator.publication import Placed


class _Metadata(msgspec.Struct):
    annotations: dict[str, str] | None = None
    labels: dict[str, str] | None = None


class _Object(msgspec.Struct):
    metadata: _Metadata


_objects = msgspec.json.Decoder(_Object)


def placed(item: Item) -> Placed:
    """Read an object as the API server holds it."""
    metadata = _objects.decode(item.body).metadata
    annotations = metadata.annotations or {}
    return Placed(
        item.uid,
        annotations.get(PLACEMENT),
        PLACEMENT in requests(annotations),
        # On the workload too (KEP-5313, "Placement key"), by who asked for the placement.
        (metadata.labels or {}).get(PLACEMENT_KEY),
    )
