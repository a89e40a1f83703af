"""Computes the clusters of a decision's placement, in the fleet of a scenario. Pure.

The guard's own reader (`guard.placements`) parses the annotations; only the fields of
a preference, which the guard ignores, are parsed here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import msgspec

from kube_sync.decisions.decision import Decision
from kube_sync.errors import NO_JSON
from kube_sync.guard import Placements
from kube_sync.guard.placements import OPEN

FIELDS = ("weight", "minReplicas", "maxReplicas")

Share = Mapping[str, int]  # fields of a preference; empty where there are none


@dataclass(frozen=True, slots=True)
class Placed:
    """The clusters of a placement; `unclear` is the reason if they are unknown.

    `written`: whether the policy has written a placement at all.
    """

    clusters: Mapping[str, Share] = field(default_factory=dict)
    unclear: str = ""
    written: bool = True


def read_placement(
    decision: Decision, placements: Placements, fleet: Collection[str], which: str | None = None
) -> Placed:
    """Return the placement of a decision by the annotation `which`, None: the only one."""
    read = placements.read(decision.annotations)
    if which is not None:
        read = {key: found for key, found in read.items() if key == which}
    if not read:
        return Placed(unclear="the policy writes no placement", written=False)
    if len(read) > 1:
        return Placed(unclear=f"several placements, {', '.join(read)}: say which (`placement`)")
    (key, found), *_ = read.items()
    if placements.forms[key] == "selector":
        return Placed(unclear=f"{key} selects clusters and names none: compare the annotation")
    if found is None:
        return Placed(unclear=f"{key} cannot be read: {decision.annotations[key]:.80}")
    names = set(fleet) - found.names if found.open else found.names
    shares = _shares(decision.annotations[key]) if placements.forms[key] == "preferences" else {}
    return Placed({name: shares.get(name, shares.get(OPEN, {})) for name in sorted(names)})


def share_text(share: Share | None) -> str:
    """Format a workload's share of a cluster, None: it is not placed there."""
    if share is None:
        return "not placed"
    fields = [f"{name} {share[name]}" for name in FIELDS if name in share]
    return ", ".join(fields) or "placed"


def _shares(value: str) -> dict[str, Share]:
    try:
        clusters = msgspec.json.decode(value)["clusters"]
        entries = {name: entry for name, entry in clusters.items() if isinstance(entry, dict)}
    except (*NO_JSON, LookupError, TypeError, AttributeError):
        return {}
    return {
        name: {"weight": 1, **{key: entry[key] for key in FIELDS if key in entry}}
        for name, entry in entries.items()
    }
