"""Parsing of the values of placement annotations into sets of clusters.

The clusters of the fleet are not known here (`inventory` compares), so a set may be open: all but
some. A cluster selector depends on the labels of clusters, which are not known either: each
selector counts as one cluster of its own, so that any change of it is a move. An invalid value
parses to None, and no policy may decide it (`contracts`). `is_empty_placement` and `empties` agree
with those in decisions/decision.py.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from kube_sync.config import PlacementForm
from kube_sync.errors import NO_JSON
from kube_sync.guard.contracts import (
    Unreadable,
    federation_preferences,
    federation_selector,
    malformed,
)
from kube_sync.guard.selectors import Requirement, parse_selector

PREFERENCES = "federation.kubernetes.io/replica-set-preferences"
SELECTOR = "federation.alpha.kubernetes.io/cluster-selector"
OPEN = "*"  # in a set of names: the clusters that it does not name
UNKNOWN = "?"  # likewise: the clusters of an invalid value
_REMEMBERED = 256  # cached values

_sorted = msgspec.json.Encoder(order="sorted")


@dataclass(frozen=True, slots=True)
class Clusters:
    """The clusters `names` or, if it is open, all but these.

    `selector`: the requirements behind the one name, where labels select the clusters.
    """

    names: frozenset[str] = frozenset()
    open: bool = False
    selector: tuple[Requirement, ...] | None = field(default=None, compare=False)

    @property
    def is_empty(self) -> bool:
        """Return whether no cluster can be in it."""
        return not self.open and not self.names

    def without(self, other: Clusters) -> frozenset[str]:
        """Return the names of those that are not in `other`; `*` where they cannot be named."""
        match self.open, other.open:
            case False, False:
                return self.names - other.names
            case False, True:
                return self.names & other.names
            case True, True:
                return other.names - self.names
            case _:
                # Conservative: nothing is lost where `other` names every cluster of the fleet.
                return frozenset([OPEN])


EVERYWHERE = Clusters(open=True)
NOWHERE = Clusters()


class Placements:
    """The annotations that place a workload, and the form of each."""

    def __init__(self, others: Mapping[str, PlacementForm] | None = None) -> None:
        """Add `others` to the two annotations of Kubernetes federation."""
        forms: dict[str, PlacementForm] = {PREFERENCES: "preferences", SELECTOR: "selector"}
        self._forms = dict(sorted((forms | dict(others or {})).items()))
        # Most workloads share a few placements, and one may name a hundred clusters: cache them.
        self._known: dict[tuple[str, str], Clusters | None] = {}
        self._checked: dict[tuple[str, str], Unreadable | None] = {}

    @property
    def forms(self) -> dict[str, str]:
        """The form of each placement annotation, by its key."""
        return dict(self._forms)

    def read(self, annotations: Mapping[str, str]) -> dict[str, Clusters | None]:
        """Return the clusters of each placement annotation, by its key."""
        return {
            key: self._clusters(form, annotations[key])
            for key, form in self._forms.items()
            if key in annotations
        }

    def texts(self, annotations: Mapping[str, str]) -> tuple[str | None, ...]:
        """Return the value of each placement annotation, None if it is absent."""
        return tuple(map(annotations.get, self._forms))

    def unreadable(self, annotations: Mapping[str, str]) -> Unreadable | None:
        """Return the first placement annotation with an invalid value, if any."""
        for key, form in self._forms.items():
            if key in annotations and (found := self._wrong(key, form, annotations[key])):
                return found
        return None

    def _wrong(self, key: str, form: PlacementForm, value: str) -> Unreadable | None:
        if (key, value) not in self._checked:
            if len(self._checked) >= _REMEMBERED:
                self._checked.clear()
            self._checked[key, value] = self._check(key, form, value)
        return self._checked[key, value]

    def _check(self, key: str, form: PlacementForm, value: str) -> Unreadable | None:
        if (contract := _CONTRACTS.get(key)) is not None:
            return contract(key, value)
        return malformed(key, form, value) if self._clusters(form, value) is None else None

    def _clusters(self, form: PlacementForm, value: str) -> Clusters | None:
        if (form, value) not in self._known:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            self._known[form, value] = _READERS[form](value)
        return self._known[form, value]

    def named(self, objects: Iterable[Mapping[str, str]]) -> frozenset[str]:
        """Return the clusters that the annotations of `objects` name.

        Before a restart the fleet had at least as many.
        """
        found: set[str] = set()
        for one in objects:
            for key, clusters in self.read(one).items():
                if self._forms[key] != "selector" and clusters is not None and not clusters.open:
                    found |= clusters.names
        return frozenset(found)

    def empties(self, wanted: Mapping[str, str], current: Mapping[str, str]) -> bool:
        """Return whether `wanted` takes away every cluster that a workload has now."""
        before = self.read(current)
        return any(
            key in before and clusters == NOWHERE and before[key] != NOWHERE
            for key, clusters in self.read(wanted).items()
        )


def is_empty_placement(preferences: str) -> bool:
    """Return whether replica-set-preferences name no cluster, or none that gets a replica."""
    return read_preferences(preferences) == NOWHERE


def read_preferences(value: str) -> Clusters | None:
    """Parse `{"clusters": {name: {"weight", "minReplicas", "maxReplicas"}}}`; None if invalid.

    A cluster that can get no replica is not in the set. `*` stands for every cluster without an
    entry (Kubernetes federation, ReplicaAllocationPreferences), so a cluster of weight 0 beside it
    is excluded.
    """
    document = _decode(value)
    entries = document.get("clusters") if isinstance(document, dict) else None
    if not isinstance(entries, dict):
        return None
    placed = frozenset(name for name, entry in entries.items() if _gets_replicas(entry))
    if OPEN in placed:
        return Clusters(frozenset(entries) - placed, open=True)
    return Clusters(placed)


def _gets_replicas(entry: object) -> bool:
    if not isinstance(entry, dict):
        return True
    if entry.get("maxReplicas") == 0:
        return False
    return bool(entry.get("weight", 1) or entry.get("minReplicas", 0))


def _names(value: str) -> Clusters | None:
    """Parse a JSON list of names, or names separated by commas; `*` is every cluster."""
    listed: Any = _decode(value) if value.lstrip()[:1] in ("[", "{", '"') else value.split(",")
    if not isinstance(listed, list) or not all(isinstance(name, str) for name in listed):
        return None
    names = frozenset(name.strip() for name in listed) - {""}
    return EVERYWHERE if OPEN in names else Clusters(names)


def _selector(value: str) -> Clusters | None:
    """Parse a JSON list of requirements; an empty list selects every cluster."""
    requirements = _decode(value)
    if not isinstance(requirements, list):
        return None
    if not all(isinstance(r, dict) and {"key", "operator"} <= r.keys() for r in requirements):
        return None
    if not requirements:
        return EVERYWHERE
    # All have to be met, so their order does not matter.
    text = b"\n".join(sorted(_sorted.encode(r) for r in requirements))
    name = f"selector:{hashlib.sha256(text).hexdigest()[:12]}"
    try:
        return Clusters(frozenset([name]), selector=parse_selector(value))
    except ValueError:  # invalid: what it selects is not known
        return Clusters(frozenset([name]), selector=())


def _decode(value: str) -> Any:  # noqa: ANN401 - JSON of whoever wrote the annotation
    try:
        return msgspec.json.decode(value)
    except NO_JSON:
        return None


_READERS: Mapping[PlacementForm, Callable[[str], Clusters | None]] = {
    "preferences": read_preferences,
    "names": _names,
    "selector": _selector,
}
# By key: other readers use these types, whatever form the configuration gives the two.
_CONTRACTS: Mapping[str, Callable[[str, str], Unreadable | None]] = {
    PREFERENCES: federation_preferences,
    SELECTOR: federation_selector,
}
