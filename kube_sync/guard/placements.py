"""What the value of a placement annotation means: a set of clusters.

Which clusters there are is not known here (`inventory` compares), so a set may be open: all but
some. A cluster selector depends on the labels of clusters, which are not known either: each
selector counts as one cluster of its own, so that any change of it is a move. Of a value that has
no readable shape nothing is concluded (None), and no policy may decide it (`contracts`).
`is_empty_placement` and `empties` mean what those in decisions/placement.py do.
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
OPEN = "*"  # in a set of names: clusters that nothing names
UNKNOWN = "?"  # likewise: clusters of a value that cannot be read
_REMEMBERED = 256  # values

_sorted = msgspec.json.Encoder(order="sorted")


@dataclass(frozen=True, slots=True)
class Clusters:
    """The clusters `names` or, where it is open, all but these.

    `selector`: what the one name stands for, where a selector chooses them by their labels.
    """

    names: frozenset[str] = frozenset()
    open: bool = False
    selector: tuple[Requirement, ...] | None = field(default=None, compare=False)

    @property
    def is_empty(self) -> bool:
        """Tell whether no cluster can be in it."""
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
                # In a fleet where `other` names every cluster nothing is lost: the safe side.
                return frozenset([OPEN])


EVERYWHERE = Clusters(open=True)
NOWHERE = Clusters()


class Placements:
    """Which annotations place a workload, and how each is read."""

    def __init__(self, others: Mapping[str, PlacementForm] | None = None) -> None:
        """Know `others` beside the two annotations of Kubernetes federation."""
        forms: dict[str, PlacementForm] = {PREFERENCES: "preferences", SELECTOR: "selector"}
        self._forms = forms | dict(others or {})
        # Most workloads of a fleet share a few placements, and one may name a hundred clusters.
        self._known: dict[tuple[str, str], Clusters | None] = {}
        self._judged: dict[tuple[str, str], Unreadable | None] = {}

    @property
    def forms(self) -> dict[str, str]:
        """How each placement annotation is read, by its key."""
        return dict(self._forms)

    def read(self, annotations: Mapping[str, str]) -> dict[str, Clusters | None]:
        """Return the clusters that each placement annotation there is gives, by its key."""
        return {
            key: self._clusters(form, annotations[key])
            for key, form in sorted(self._forms.items())
            if key in annotations
        }

    def unreadable(self, annotations: Mapping[str, str]) -> Unreadable | None:
        """Return the first placement annotation that cannot be read by its contract, if any."""
        for key, form in sorted(self._forms.items()):
            if key in annotations and (found := self._wrong(key, form, annotations[key])):
                return found
        return None

    def _wrong(self, key: str, form: PlacementForm, value: str) -> Unreadable | None:
        if (key, value) not in self._judged:
            if len(self._judged) >= _REMEMBERED:
                self._judged.clear()
            self._judged[key, value] = self._judge(key, form, value)
        return self._judged[key, value]

    def _judge(self, key: str, form: PlacementForm, value: str) -> Unreadable | None:
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

        After a restart the fleet was at least as large as that.
        """
        found: set[str] = set()
        for one in objects:
            for key, clusters in self.read(one).items():
                if self._forms[key] != "selector" and clusters is not None and not clusters.open:
                    found |= clusters.names
        return frozenset(found)

    def empties(self, wanted: Mapping[str, str], current: Mapping[str, str]) -> bool:
        """Tell whether `wanted` would take away every cluster that a workload has now."""
        before = self.read(current)
        return any(
            key in before and clusters == NOWHERE and before[key] != NOWHERE
            for key, clusters in self.read(wanted).items()
        )


def is_empty_placement(preferences: str) -> bool:
    """Tell whether replica-set-preferences name no cluster, or none that gets a replica."""
    return read_preferences(preferences) == NOWHERE


def read_preferences(value: str) -> Clusters | None:
    """Read `{"clusters": {name: {"weight", "minReplicas", "maxReplicas"}}}`, None: no such thing.

    A cluster that can get no replica is not in it.
    `*` stands for every cluster that has no entry (Kubernetes federation,
    ReplicaAllocationPreferences), so that a cluster of weight 0 beside it is taken out.
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
    """Read a JSON list of names, or names with commas between them; `*` is every cluster."""
    listed: Any = _decode(value) if value.lstrip()[:1] in ("[", "{", '"') else value.split(",")
    if not isinstance(listed, list) or not all(isinstance(name, str) for name in listed):
        return None
    names = frozenset(name.strip() for name in listed) - {""}
    return EVERYWHERE if OPEN in names else Clusters(names)


def _selector(value: str) -> Clusters | None:
    """Read a JSON list of requirements; without any, every cluster is selected."""
    requirements = _decode(value)
    if not isinstance(requirements, list):
        return None
    if not all(isinstance(r, dict) and {"key", "operator"} <= r.keys() for r in requirements):
        return None
    if not requirements:
        return EVERYWHERE
    # All have to be met, so their order means nothing.
    text = b"\n".join(sorted(_sorted.encode(r) for r in requirements))
    name = f"selector:{hashlib.sha256(text).hexdigest()[:12]}"
    try:
        return Clusters(frozenset([name]), selector=parse_selector(value))
    except ValueError:  # of whoever wrote it: what it selects is not known
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
# By the key: whatever form the configuration gives these two, others read them by these types.
_CONTRACTS: Mapping[str, Callable[[str, str], Unreadable | None]] = {
    PREFERENCES: federation_preferences,
    SELECTOR: federation_selector,
}
