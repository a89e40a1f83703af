"""Edits of policies and clusters as people make them, drawn by chance; each changes one object.

One, since between two writes a fleet is in a state that nobody planned: what is refused afterwards
stays where that state had put it.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from tools.demo.fleet import PREFERENCES, SHOP, cluster, replica_set

ZONE, LEVEL, TIER = "example.com/zone", "example.com/level", "tier"
PLACEMENT, TIERS = "placement", "tiers"  # the ConfigMaps
ZONES: Final = ("eu", "us", "asia")
_FEWEST, _MOST = 4, 10  # clusters

Labels = Mapping[str, str]
Otherwise = Literal["errors", "nothing", "nowhere", "evict"]

# The namespace of a cluster that tells by its label `turn` how far OPA is, and its name.
TURNS = "turns"
_HEAD: Final = "package io.k8s.federation.admission\n"
# None of them names a cluster or a workload, so each may come and go by itself.
_TIERS: Final = (
    'labels["example.com/class"] := "first" if _gold\n',
    'labels["example.com/class"] := "second" if _gold\n',
    'annotations["example.com/class"] := {"zone": input.metadata.labels.tier} if _gold\n',
    'errors contains "nothing of gold today" if _gold\n',
    # What two policies decide differently, and what no annotation can be.
    f'annotations["{PREFERENCES}"] := {{"clusters": {{"c0": {{"weight": 1}}}}}} if _seventh\n',
    'annotations["example.com/class"] := null if _seventh\n',
)
_HELPERS: Final = f"""
_gold if {{
	input.metadata.namespace == "{SHOP}"
	input.metadata.labels.tier == "gold"
}}

_seventh if {{
	input.metadata.namespace == "{SHOP}"
	endswith(input.metadata.name, "7")
}}
"""


@dataclass(frozen=True, slots=True)
class Placing:
    """The placement policy, by what people change in it."""

    zone: bool = True  # a cluster has to be in the zone that a workload asks for
    level: int = 0  # more than the workload asks for
    least: int = 1  # so many clusters have to fit
    without: frozenset[str] = frozenset()
    weighted: bool = False
    otherwise: Otherwise = "errors"

    def source(self) -> str:
        """Return it as Rego."""
        weight = "_level(_labels(name)) + 1" if self.weighted else "1"
        without = ", ".join(f'"{name}"' for name in sorted(self.without))
        conditions = [
            *([f"not name in {{{without}}}"] if without else []),
            *(["_in_zone(name)"] if self.zone else []),
            f"_level(_labels(name)) >= _level(input.metadata.annotations) + {self.level}",
        ]
        return f"""{_HEAD}
annotations["{PREFERENCES}"] := {{
	"clusters": {{name: {{"weight": {weight}}} | some name in _fit}},
}} if {{
	input.metadata.namespace == "{SHOP}"
	count(_fit) >= {self.least}
}}

{_OTHERWISE[self.otherwise]}
_too_few if {{
	input.metadata.namespace == "{SHOP}"
	count(_fit) < {self.least}
}}

_fit contains name if {{
	some name, _ in data.kubernetes.clusters.fleet
	{f"{chr(10)}{chr(9)}".join(conditions)}
}}

_in_zone(name) if _labels(name)["{ZONE}"] == input.metadata.annotations["{ZONE}"]

_in_zone(_) if not input.metadata.annotations["{ZONE}"]

_labels(name) := object.get(data.kubernetes.clusters.fleet[name].metadata, "labels", {{}})

_level(texts) := to_number(object.get(texts, "{LEVEL}", "0"))
"""


_NOWHERE: Final = f'annotations["{PREFERENCES}"] := {{"clusters": {{}}}} if _too_few\n'
_OTHERWISE: Final[Mapping[Otherwise, str]] = {
    "errors": 'errors contains "too few clusters fit" if _too_few\n',
    "nothing": "",
    "nowhere": _NOWHERE,
    "evict": f"{_NOWHERE}\nevict := true if _too_few\n",
}


@dataclass(frozen=True, slots=True)
class State:
    """All that edits are about."""

    placing: Placing | None = Placing()
    tiers: str | None = None
    clusters: Mapping[str, Labels] = field(default_factory=dict)  # labels, by name

    @property
    def policies(self) -> dict[str, str]:
        """The sources, by ConfigMap."""
        found = {} if self.placing is None else {PLACEMENT: self.placing.source()}
        return found if self.tiers is None else {**found, TIERS: self.tiers}


NOTHING: Final = State(placing=None)


def start() -> State:
    """Return what edits begin with: ten clusters in three zones, at four levels."""
    names = [f"c{number}" for number in range(_MOST)]
    return State(clusters={n: _cluster_labels(i, i % 4) for i, n in enumerate(names)})


def workload(index: int) -> dict[str, Any]:
    """Return one of the ReplicaSets; a few have been placed by their owner."""
    found = replica_set(f"w{index:03}")
    metadata = found["metadata"]
    metadata["labels"][TIER] = "gold" if index % 3 == 0 else "silver"
    metadata["annotations"] = {LEVEL: str(index % 5 % 4)}
    if index % 4 < len(ZONES):
        metadata["annotations"][ZONE] = ZONES[index % 4]
    if index % 30 == 11:
        metadata["annotations"][PREFERENCES] = '{"clusters":{"c0":{"weight":1}}}'
    return found


def profile(name: str, labels: Labels) -> dict[str, Any]:
    """Return a cluster."""
    found = cluster(name, "", "")
    found["metadata"]["labels"] = dict(labels)
    return found


class Edits:
    """Draws one edit after another."""

    def __init__(self, chance: random.Random, state: State) -> None:
        self._chance = chance
        self.state = state
        self._before = state

    def next(self) -> tuple[State, State]:
        """Return what is there and what is to be there."""
        draws = (self._policy, self._policy, self._cluster, self._cluster, self._back)
        found = self.state
        while found == self.state:
            found = self._chance.choice(draws)()
        self._before, self.state = self.state, found
        return self._before, self.state

    def _back(self) -> State:
        return self._before

    def _policy(self) -> State:
        state, placing, chance = self.state, self.state.placing, self._chance
        if placing is None:
            return replace(state, placing=Placing(otherwise=chance.choice([*_OTHERWISE])))
        match chance.randrange(10):
            case 0:
                return replace(state, placing=None)
            case 1 | 2 | 3:
                tiers = chance.choice(_TIERS)
                drop = state.tiers is not None and chance.random() < 0.5
                return replace(state, tiers=None if drop else f"{_HEAD}\n{tiers}{_HELPERS}")
            case 4:
                changed = replace(placing, zone=not placing.zone)
            case 5:
                changed = replace(placing, level=chance.randrange(3))
            case 6:
                changed = replace(placing, least=1 + chance.randrange(3))
            case 7:
                changed = replace(placing, without=frozenset(self._some()))
            case 8:
                changed = replace(placing, weighted=not placing.weighted)
            case _:
                changed = replace(placing, otherwise=chance.choice([*_OTHERWISE]))
        return replace(state, placing=changed)

    def _cluster(self) -> State:
        clusters, chance = dict(self.state.clusters), self._chance
        name = chance.choice(sorted(clusters))
        match chance.randrange(6):
            case 0 if len(clusters) > _FEWEST:
                del clusters[name]
            case 1 if len(clusters) < _MOST:
                away = sorted({f"c{number}" for number in range(_MOST)} - clusters.keys())
                new = _cluster_labels(chance.randrange(3), chance.randrange(4))
                clusters[chance.choice(away)] = new
            case 2:
                key = chance.choice((ZONE, LEVEL))
                clusters[name] = {k: v for k, v in clusters[name].items() if k != key}
            case _:
                clusters[name] = {**clusters[name], **self._label()}
        return replace(self.state, clusters=clusters)

    def _label(self) -> Labels:
        chance = self._chance
        return chance.choice(
            ({ZONE: chance.choice(ZONES)}, {LEVEL: str(chance.randrange(4))}, {"other": "1"})
        )

    def _some(self) -> list[str]:
        return self._chance.sample(sorted(self.state.clusters), self._chance.randrange(4))


def _cluster_labels(zone: int, level: int) -> Labels:
    return {ZONE: ZONES[zone % len(ZONES)], LEVEL: str(level)}
