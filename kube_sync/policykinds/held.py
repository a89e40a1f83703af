"""The policies of one kind that the API server holds, as a Store for a Reflector.

Keeps true: whoever is told of a key finds the policy here as it is now, or that it is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from kube_sync.errors import NO_JSON
from kube_sync.kube.collection import Event, Item
from kube_sync.objects import ObjectKey


@dataclass(frozen=True, slots=True)
class HeldPolicy:
    """One policy; `body` is the whole object as JSON."""

    key: ObjectKey
    uid: str
    generation: int
    conditions: tuple[dict[str, Any], ...]
    body: bytes

    @property
    def spec(self) -> Any:  # noqa: ANN401 - any JSON
        """What it says, None if it says nothing."""
        return msgspec.json.decode(self.body, type=_Said).spec


class _Said(msgspec.Struct):
    spec: Any = None


class _Metadata(msgspec.Struct):
    generation: int = 0


class _Status(msgspec.Struct):
    conditions: list[dict[str, Any]] | None = None


class _Object(msgspec.Struct):
    metadata: _Metadata
    status: _Status | None = None


_objects = msgspec.json.Decoder(_Object)
_Names = dict[str, HeldPolicy]


class HeldPolicies:
    """All policies by namespace and name; `news` is told each key that came, changed or went."""

    def __init__(self, news: Callable[[ObjectKey], None]) -> None:
        self._news = news
        self._held: dict[str, _Names] = {}
        self._listing: dict[str, _Names] = {}

    def get(self, key: ObjectKey) -> HeldPolicy | None:
        """Return a policy as it is now, None when there is none."""
        return self.within(key.namespace).get(key.name)

    def within(self, namespace: str) -> Mapping[str, HeldPolicy]:
        """Return the policies of a namespace by name; those of a cluster are in `""`."""
        return self._held.get(namespace, {})

    def __iter__(self) -> Iterator[ObjectKey]:
        return iter(_keys(self._held))

    async def page(self, items: Sequence[Item]) -> None:
        """Take a part of a LIST."""
        for item in items:
            _put(self._listing, item)

    def finish(self, *, known: bool) -> None:  # noqa: ARG002 - a kind that is missing has none
        """Hold exactly what the LIST held, and tell all of it: something may have been missed."""
        before = _keys(self._held)
        self._held, self._listing = self._listing, {}
        for key in dict.fromkeys([*self, *before]):
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
            self._forget(key)
        else:
            _put(self._held, event.item)
        self._news(key)

    def _forget(self, key: ObjectKey) -> None:
        inside = self._held.get(key.namespace, {})
        inside.pop(key.name, None)
        if not inside:
            self._held.pop(key.namespace, None)


def _keys(held: Mapping[str, _Names]) -> list[ObjectKey]:
    return [policy.key for inside in held.values() for policy in inside.values()]


def _put(held: dict[str, _Names], item: Item) -> None:
    held.setdefault(item.key.namespace, {})[item.key.name] = _read(item)


def _read(item: Item) -> HeldPolicy:
    try:
        found = _objects.decode(item.body)
    except NO_JSON:  # of a CRD that is not ours: its conditions are written anew
        found = _Object(_Metadata())
    held = tuple((found.status and found.status.conditions) or ())
    return HeldPolicy(item.key, item.uid, found.metadata.generation, held, item.body)
