"""Cache of the policies of one kind at the API server.

Invariant: when a key is reported as changed, the cache has its present state, or none if deleted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from kube_sync.errors import NO_JSON
from kube_sync.kube.cache import Cache, Changes
from kube_sync.kube.collection import Item
from kube_sync.kube.meta import ObjectMeta
from kube_sync.objects import ObjectKey


@dataclass(frozen=True, slots=True)
class HeldPolicy:
    """One policy; `body` is the whole object as JSON."""

    key: ObjectKey
    uid: str
    generation: int
    conditions: tuple[dict[str, Any], ...]
    body: bytes
    observed: int | None = None  # status.observedGeneration; None: its definition has no such field

    @property
    def spec(self) -> Any:  # noqa: ANN401 - any JSON
        """Its spec, None if it has none."""
        return msgspec.json.decode(self.body, type=_Spec).spec


class _Spec(msgspec.Struct):
    spec: Any = None


class _Status(msgspec.Struct, rename="camel"):
    conditions: list[dict[str, Any]] | None = None
    observed_generation: int | None = None


class _Object(msgspec.Struct):
    metadata: ObjectMeta
    status: _Status | None = None


_objects = msgspec.json.Decoder(_Object)


class HeldPolicies(Cache[HeldPolicy]):
    """All policies of one kind; empty while the kind is not served."""

    def __init__(self, on_change: Callable[[ObjectKey], None]) -> None:
        """Call `on_change` with each key that was added, changed or deleted."""
        super().__init__(_read, self._changed, when_unknown="empty")
        self._notify = on_change
        self._namespaces: dict[str, dict[ObjectKey, HeldPolicy]] = {}

    def within(self, namespace: str) -> list[HeldPolicy]:
        """Return the policies of a namespace; cluster-scoped ones are in `""`."""
        return list(self._namespaces.get(namespace, {}).values())

    def _changed(self, changes: Changes[HeldPolicy]) -> None:
        for key, (_, new) in changes.items():
            inside = self._namespaces.setdefault(key.namespace, {})
            if new is not None:
                inside[key] = new
            else:
                del inside[key]
            if not inside:
                del self._namespaces[key.namespace]
            self._notify(key)


def _read(item: Item) -> HeldPolicy:
    try:
        found = _objects.decode(item.body)
    except NO_JSON:  # of a CRD that is not ours: its conditions are written anew
        found = _Object(ObjectMeta())
    status = found.status or _Status()
    conditions, observed = tuple(status.conditions or ()), status.observed_generation
    generation = found.metadata.generation
    return HeldPolicy(item.key, item.uid, generation, conditions, item.body, observed)
