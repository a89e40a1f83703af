"""The SchedulingPolicies that the API server holds, as a Store for a Reflector.

Keeps true: whoever is told of a key finds the policy here as it is now, or that it is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from kube_sync.kube.collection import Event, Item
from kube_sync.objects import ObjectKey


@dataclass(frozen=True, slots=True)
class HeldPolicy:
    """One SchedulingPolicy; `body` is the whole object as JSON."""

    key: ObjectKey
    uid: str
    generation: int
    conditions: tuple[dict[str, Any], ...]
    body: bytes


class _Metadata(msgspec.Struct):
    generation: int = 0


class _Status(msgspec.Struct):
    conditions: list[dict[str, Any]] | None = None


class _Object(msgspec.Struct):
    metadata: _Metadata
    status: _Status | None = None


_objects = msgspec.json.Decoder(_Object)


class HeldPolicies:
    """All policies by key; `news` is told each key that came, changed or went."""

    def __init__(self, news: Callable[[ObjectKey], None]) -> None:
        self._news = news
        self._held: dict[ObjectKey, HeldPolicy] = {}
        self._listing: dict[ObjectKey, HeldPolicy] = {}

    def get(self, key: ObjectKey) -> HeldPolicy | None:
        """Return a policy as it is now, None when there is none."""
        return self._held.get(key)

    def __iter__(self) -> Iterator[ObjectKey]:
        return iter(tuple(self._held))

    async def page(self, items: Sequence[Item]) -> None:
        """Take a part of a LIST."""
        self._listing.update({item.key: _read(item) for item in items})

    def finish(self, *, known: bool) -> None:  # noqa: ARG002 - a kind that is missing has none
        """Hold exactly what the LIST held, and tell all of it: something may have been missed."""
        gone = self._held.keys() - self._listing.keys()
        self._held, self._listing = self._listing, {}
        for key in (*self._held, *gone):
            self._news(key)

    def abandon(self) -> None:
        """Forget the LIST that broke off."""
        self._listing = {}

    def apply(self, event: Event) -> None:
        """Take one watch event in."""
        if event.item is None:
            return
        key = event.item.key
        if event.type == "DELETED":
            self._held.pop(key, None)
        else:
            self._held[key] = _read(event.item)
        self._news(key)


def _read(item: Item) -> HeldPolicy:
    try:
        found = _objects.decode(item.body)
    except msgspec.DecodeError:  # of a CRD that is not ours: its conditions are written anew
        found = _Object(_Metadata())
    held = tuple((found.status and found.status.conditions) or ())
    return HeldPolicy(item.key, item.uid, found.metadata.generation, held, item.body)
