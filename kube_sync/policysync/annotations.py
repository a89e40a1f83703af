"""What a hub's policy carries about its copies.

Keeps true: the same copies are the same bytes, so that nothing is written where nothing changed;
a policy without copies carries nothing. Both are bounded, since an object's annotations are, and
what does not fit is told.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from kube_sync.policysync.copies import PLACED, STATUS, PolicyId
from kube_sync.policysync.downstream import Downstream

_MOST: Final = 64 * 1024  # bytes of the extra status fields; annotations have 256 KiB together
_MOST_PLACED: Final = 96 * 1024  # bytes of the list of copies
_TEXT: Final = 256  # characters of one of them

_sorted = msgspec.json.Encoder(order="sorted")

Values = Mapping[str, str | int | bool]


@dataclass(frozen=True, slots=True)
class Notes:
    """Annotations of a policy (None: it has no such one), and what did not fit in them."""

    annotations: Mapping[str, str | None]
    cut: tuple[str, ...] = ()


def placed_annotations(
    policy: PolicyId,
    clusters: Iterable[str],
    values: Mapping[str, Values],
    downstream: Downstream,
) -> Notes:
    """Return the annotations of a policy with copies on clusters.

    `values` are the extra status fields by cluster.
    """
    namespace = downstream.namespace(policy.namespace)
    listed = [
        {"cluster": cluster, "name": policy.name, "namespace": namespace}
        for cluster in sorted(clusters)
    ]
    places = _fitting((_sorted.encode(one).decode() for one in listed), _MOST_PLACED)
    said = _fitting(_told(values), _MOST)
    cut = [
        f"the annotation {name} has room for {len(kept)} of {of} clusters"
        for name, kept, of in ((PLACED, places, len(listed)), (STATUS, said, len(values)))
        if len(kept) < of
    ]
    found = {
        PLACED: f"[{','.join(places)}]" if listed else None,
        STATUS: f"{{{','.join(said)}}}" if values else None,
    }
    return Notes(found, tuple(cut))


def _fitting(entries: Iterable[str], most: int) -> list[str]:
    """Return as many entries as there is room for, in their order."""
    kept: list[str] = []
    size = 2
    for entry in entries:
        size += len(entry.encode()) + 1
        if size > most:
            break
        kept.append(entry)
    return kept


def _told(values: Mapping[str, Values]) -> Iterator[str]:
    for cluster, fields in sorted(values.items()):
        # Cut so that the same text is always cut alike.
        short = {k: v[:_TEXT] if isinstance(v, str) else v for k, v in fields.items()}
        yield _sorted.encode({cluster: short}).decode()[1:-1]
