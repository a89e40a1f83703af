"""The recorded input of a past decision: the object and the data.

Invariant: the data is complete for the collections that were read, or absent;
data that was read and is not recorded is named, with the reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import msgspec

from kube_sync.errors import NO_JSON
from kube_sync.ledger.bases import State, collection_of, state_of
from kube_sync.ledger.entries import Entry
from kube_sync.ledger.reading import Reading


@dataclass(frozen=True, slots=True)
class Ground:
    """The object as the decision's input, and the document of OPA; None: not recorded."""

    input: bytes | None = field(default=None, repr=False)
    data: bytes | None = field(default=None, repr=False)
    path: str = ""  # of the decision
    lacks: Mapping[str, str] = field(default_factory=dict)  # why data is missing, by its name


def ground(ledger: Reading, entry: Entry) -> Ground:
    """Return the recorded input of a decision."""
    body = ledger.text(entry.input) if entry.input else None
    stated = ledger.text(entry.data) if entry.data else None
    if stated is None:
        return Ground(body)
    try:
        state = state_of(stated)
        collections = dict(_collections(ledger, state))
    except NO_JSON:
        return Ground(body)
    data = msgspec.json.encode({state.root: collections})
    gone = dict.fromkeys(state.collections.keys() - collections, "its parts are not there")
    return Ground(body, data, state.path, {**state.lacks, **gone})


def _collections(ledger: Reading, state: State) -> Iterator[tuple[str, msgspec.Raw]]:
    for name, digests in state.collections.items():
        parts = [part for digest in digests if (part := ledger.text(digest)) is not None]
        if len(parts) == len(digests):
            yield name, msgspec.Raw(collection_of(parts))
