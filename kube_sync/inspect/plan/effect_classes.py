"""Computes the effects on workloads, once for all that are equal in what the effect reads. Pure.

Invariant: each workload's effect equals the result of `effect` for it alone. The remediator's step
passes annotations and labels through that no decision, request or write touches, so these are not
compared, and of the history only its content.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from kube_sync.decisions.evaluator import Outcome
from kube_sync.decisions.requested import requests
from kube_sync.guard import ADDITION, HISTORY, Inventory, Placements
from kube_sync.inspect.plan.effects import Effect, effect
from kube_sync.objects import ObjectKey
from kube_sync.remediation.plan import OWN, Current

_NOBODY: Final = ObjectKey("", "")


@dataclass(frozen=True, slots=True)
class _Pair:
    """Two outcomes, and which annotations and labels they write."""

    now: Outcome
    then: Outcome
    annotations: frozenset[str]
    labels: frozenset[str]


class Effects:
    """Computes effects; outcomes with equal effects have to be identical objects."""

    def __init__(self, placements: Placements, inventory: Inventory | None = None) -> None:
        """`inventory`: the clusters that placements are compared with, None: with none."""
        self._placements = placements
        self._inventory = inventory
        self._always = OWN | placements.forms.keys()
        self._pairs: dict[tuple[int, int], _Pair] = {}
        self._known: dict[object, Effect | None] = {}

    def of(
        self, resource: str, key: ObjectKey, current: Current, now: Outcome, then: Outcome
    ) -> Effect | None:
        """Return the effect on a workload, None if it does not change."""
        pair = self._pair(now, then)
        view = _view(current, pair)
        maps = (tuple(view.annotations.items()), tuple(view.labels.items()))
        key_of_view = (id(pair), *maps, view.ours, view.our_labels)
        if key_of_view not in self._known:
            self._known[key_of_view] = effect(
                "", _NOBODY, view, now, then, self._placements, inventory=self._inventory
            )
        if (found := self._known[key_of_view]) is None:
            return None
        change = found.change and replace(found.change, namespace=key.namespace)
        return replace(found, resource=resource, key=key, uid=current.uid, change=change)

    def _pair(self, now: Outcome, then: Outcome) -> _Pair:
        ids = (id(now), id(then))  # stable while the pair is cached
        if ids not in self._pairs:
            decisions = [one.decision for one in (now, then) if one.decision is not None]
            annotations = self._always.union(*(decision.annotations for decision in decisions))
            labels = frozenset[str]().union(*(decision.labels for decision in decisions))
            self._pairs[ids] = _Pair(now, then, annotations, labels)
        return self._pairs[ids]


def _view(current: Current, pair: _Pair) -> Current:
    """Return the parts of a workload that its step depends on."""
    matters = pair.annotations.union(current.ours, requests(current.annotations))
    annotations = _some(current.annotations, matters)
    annotations |= dict.fromkeys(annotations.keys() & {HISTORY, ADDITION}, "")
    labels = _some(current.labels, pair.labels)
    ours, our_labels = frozenset(current.ours), frozenset(current.our_labels)
    return Current("", annotations, labels, "", ours, our_labels)


def _some(found: Mapping[str, str], keys: Iterable[str]) -> dict[str, str]:
    return {key: found[key] for key in sorted(keys) if key in found}
