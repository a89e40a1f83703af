"""Where a decision places a workload, in the clusters that a scenario has. Pure.

What an annotation means is read by the brakes' own reader (`guard.placements`); only the fields of
a preference, which mean nothing to the brakes, are read here.
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
    """The clusters of a placement; `unclear` says why they cannot be told.

    A policy that has `written` none has placed the workload nowhere.
    """

    clusters: Mapping[str, Share] = field(default_factory=dict)
    unclear: str = ""
    written: bool = True


def placed(
    decision: Decision, placements: Placements, fleet: Collection[str], which: str | None = None
) -> Placed:
    """Return where a decision places a workload; `which` annotation says so, None: the only one."""
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


def shown(share: Share | None) -> str:
    """Return what is said of a cluster that a workload has, None: that it has not."""
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
