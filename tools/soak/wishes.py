"""What ReplicaSets ask for, what clusters offer, and what the policy must make of both. Pure.

Placements are worked out here a second time, not by OPA. Most objects wish for what no change of a
cluster touches: a change that moves a share of them moves a few hundred, not the whole fleet.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tools.demo.fleet import EU, LEVEL, PCI, PREFERENCES, REGION, cluster, replica_set

EDITION = "soak.example.com/edition"  # which a policy writes that is changed now and then
EDITION_WANTED = "soak.example.com/edition-wanted"
INSIDE, OUTSIDE = "europe-west1", "us-east1"
OWNED = (PREFERENCES, EDITION)
_COMMON = range(90, 94)  # levels that most wish for: every strong cluster has them, no weak one
NARROW = range(101, 121)  # levels that strong clusters change between
_NOWHERE = 9_999
_WEAK = 10
_ALWAYS = 1_000  # of the one cluster that never changes, so that every wish but one can be met
_STRONG = 12  # one cluster in so many
_FEWEST = 4
# Each up to where it reaches, of 1: so many in a hundred wish for each.
_EDITION_SHARE, _EU_SHARE, _NARROW_SHARE, _NOWHERE_SHARE = 0.02, 0.06, 0.11, 0.14


@dataclass(frozen=True, slots=True)
class Wish:
    """What one ReplicaSet asks for."""

    level: int
    eu: bool = False
    edition: bool = False

    @property
    def possible(self) -> bool:
        """Whether some cluster can always have it."""
        return self.level != _NOWHERE

    def annotations(self) -> dict[str, str]:
        """Return how the ReplicaSet says it."""
        said = {PCI: str(self.level), EU: str(self.eu).lower()}
        return said | {EDITION_WANTED: str(self.edition).lower()}


def random_wish(chance: random.Random, *, possible: bool) -> Wish:
    """Return a wish that can be met, or now and then one that cannot where that is allowed."""
    drawn = chance.random()
    if drawn < _EDITION_SHARE:
        return Wish(_COMMON[0], edition=True)
    if drawn < _EU_SHARE:
        return Wish(_COMMON[0], eu=True)
    if drawn < _NARROW_SHARE:
        return Wish(chance.choice(NARROW))
    if drawn < _NOWHERE_SHARE and not possible:
        return Wish(_NOWHERE)
    return Wish(chance.choice(_COMMON))


def workload(where: str, name: str, wish: Wish) -> dict[str, Any]:
    """Return the ReplicaSet that asks for it."""
    manifest = replica_set(name)
    manifest["metadata"] |= {"namespace": where, "annotations": wish.annotations()}
    return manifest


def first_clusters(count: int) -> dict[str, dict[str, Any]]:
    """Return the clusters to begin with, by name; `strong` tells which of them will change."""
    made = {}
    for index in range(count):
        name = f"cluster-{index:03}"
        level = _WEAK
        if index < _strong(count):
            level = NARROW[index * 3 % len(NARROW)] if index else _ALWAYS
        made[name] = cluster(name, INSIDE if index % 2 == 0 else OUTSIDE, str(level))
    return made


def strong(count: int) -> list[str]:
    """Return the clusters that change what they offer."""
    return [f"cluster-{index:03}" for index in range(1, _strong(count))]


def _strong(count: int) -> int:
    return min(count, max(_FEWEST, count // _STRONG))


def eligible(annotations: Mapping[str, str], clusters: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the names of the clusters that meet what an object asks for."""
    level, eu = int(annotations[PCI]), annotations[EU] == "true"
    return sorted(
        found["metadata"]["name"]
        for found in clusters
        if int((labels := found["metadata"]["labels"])[LEVEL]) >= level
        and (not eu or labels[REGION].startswith("europe-"))
    )


def placement(
    annotations: Mapping[str, str], clusters: Iterable[Mapping[str, Any]]
) -> dict[str, str]:
    """Return where an object without an edition belongs, as it is stored."""
    weights = {name: {"weight": 1} for name in eligible(annotations, clusters)}
    preferences = {"clusters": weights, "rebalance": True}
    return {PREFERENCES: json.dumps(preferences, separators=(",", ":"), sort_keys=True)}


def placed(annotations: Mapping[str, str]) -> list[str] | None:
    """Return the names of the clusters that an object is placed on, None where nothing says."""
    text = annotations.get(PREFERENCES)
    return None if text is None else sorted(json.loads(text)["clusters"])


def edition_policy(edition: int) -> str:
    """Return a module beside the demo's policy, whose change changes few decisions."""
    return f"""\
package io.k8s.federation.admission

annotations["{EDITION}"] := "{edition}" if {{
	input.metadata.annotations["{EDITION_WANTED}"] == "true"
}}
"""


def versions_policy() -> str:
    """Return a module that tells which state of each object OPA has."""
    return """\
package soak

versions[collection][namespace][name] := object.metadata.resourceVersion if {
	some collection in ["clusters", "replicasets"]
	some namespace, objects in data.kubernetes[collection]
	some name, object in objects
}
"""
