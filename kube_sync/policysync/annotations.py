"""What a hub's policy carries about its copies.

Keeps true: the same copies are the same bytes, so that nothing is written where nothing changed;
a policy without copies carries nothing. What spokes say is bounded: an object's annotations are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from kube_sync.policysync.copies import PLACED, STATUS, PolicyId
from kube_sync.policysync.downstream import Downstream

_MOST: Final = 64 * 1024  # bytes of the extra status fields; annotations have 256 KiB together
_MOST_PLACED: Final = 96 * 1024  # bytes of the list of copies
_TEXT: Final = 256  # characters of one of them

_sorted = msgspec.json.Encoder(order="sorted")

Values = Mapping[str, str | int | bool]


def placed_annotations(
    policy: PolicyId,
    clusters: Iterable[str],
    values: Mapping[str, Values],
    downstream: Downstream,
) -> dict[str, str | None]:
    """Return the annotations of a policy with copies on clusters; None: it has no such one.

    `values` are the extra status fields by cluster.
    """
    namespace = downstream.namespace(policy.namespace)
    listed = [
        {"cluster": cluster, "name": policy.name, "namespace": namespace}
        for cluster in sorted(clusters)
    ]
    return {
        PLACED: _placed(listed) if listed else None,
        STATUS: _bounded(values) if values else None,
    }


def _placed(listed: Iterable[Mapping[str, str]]) -> str:
    """Return as many copies as there is room for, in the order of their clusters."""
    kept: list[str] = []
    size = 2
    for one in listed:
        entry = _sorted.encode(one).decode()
        size += len(entry.encode()) + 1
        if size > _MOST_PLACED:
            break
        kept.append(entry)
    return "[" + ",".join(kept) + "]"


def _bounded(values: Mapping[str, Values]) -> str:
    """Return as many clusters as there is room for, in the order of their names."""
    kept: list[str] = []
    size = 2
    for cluster, fields in sorted(values.items()):
        # Cut so that the same text is always cut alike.
        short = {k: v[:_TEXT] if isinstance(v, str) else v for k, v in fields.items()}
        entry = _sorted.encode({cluster: short}).decode()[1:-1]
        size += len(entry.encode()) + 1
        if size > _MOST:
            break
        kept.append(entry)
    return "{" + ",".join(kept) + "}"
