"""Tell from an object which placement the guard let through last. Pure.

The history on the object (`guard.history`) has a digest of each placement that the guard let
through, and the same PATCH writes both. So a placement that fits the last entry was let through,
whatever is decided, held, stale or unknown by now, and after a restart as well. A placement that
does not fit it was written by somebody else: it counts only if it is what is decided, as when the
webhook wrote it, or if no policy decides about the object and its owner asks for it.

No brake holds what the webhook writes with an update of its owner, nor a first placement, as of an
object that was created again. So these take away no cluster that was answered before, unless a
person approves it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from kube_sync.decisions.decision import PLACEMENT, Decision
from kube_sync.guard import HISTORY, Placements, placement_digest, read_history
from kube_sync.guard.digests import digest
from kube_sync.kube.events import cut
from kube_sync.remediation.plan import Wanted
from kube_sync.remediation.sinks.placement import clusters_of

_SELECTED = "selected by the policies"
_REQUESTED = "asked for by the resource itself"
_EARLIER = "let through earlier, while the present decision is held"


class Refusal(Exception):
    """A request gets no clusters: the HTTP status and, as its text, why and what releases it."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


@dataclass(frozen=True, slots=True)
class Carried:
    """The metadata of an object, as the API server has it."""

    uid: str
    annotations: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Answered:
    """What was answered last for an object of a name: its uid then, and its clusters."""

    uid: str
    clusters: frozenset[str]


def let_through(
    carried: Carried,
    wanted: Wanted | None,
    placements: Placements,
    approvals: Collection[str],
    now: float,
    before: Answered | None = None,
) -> dict[str, str]:
    """Return the clusters of the placement that was let through last, each with its reason.

    `wanted` is the decision on the object, None if it is not known. `approvals` are the names that
    operators approved by `now` (Unix seconds). `before` is the last answer for an object of this
    name, None if it is not known. Raises Refusal.
    """
    text, decision = carried.annotations.get(PLACEMENT), _usable(wanted, carried)
    history = read_history(carried.annotations, now)
    last = history[-1] if history else None
    guarded = last is not None and last.placement == placement_digest(
        placements, carried.annotations
    )
    if text is None:
        why = "it has no placement any more" if guarded else "no placement was let through yet"
        raise Refusal(409, why)
    if not (guarded or _is_wanted(text, decision)):
        other = "is not what is decided" if decision else "no usable decision on it is known"
        raise Refusal(409, f"its placement was written by somebody else, and {other}")
    names = clusters_of(text)
    if names is None:
        raise Refusal(409, "its placement does not name its clusters one by one")
    if not names and not (guarded and last is not None and last.approval):
        _check(carried, "nothing", "its placement selects no cluster", approvals)
    if guarded:
        unbraked = len(history) == 1 and before is not None and before.uid != carried.uid
    else:
        unbraked = decision is not None and PLACEMENT in decision.annotations
    if unbraked and (lost := _lost(names, before, known=guarded or not history)):
        _check(carried, "placement", f"no brake has let through that it leaves {lost}", approvals)
    return {name: _reason(name, text, decision) for name in sorted(names)}


def _usable(wanted: Wanted | None, carried: Carried) -> Decision | None:
    if wanted is None or wanted.uid not in ("", carried.uid) or wanted.failure is not None:
        return None
    return None if wanted.decision is None or wanted.decision.errors else wanted.decision


def _is_wanted(text: str, decision: Decision | None) -> bool:
    return decision is not None and decision.annotations.get(PLACEMENT, text) == text


def _lost(names: frozenset[str], before: Answered | None, *, known: bool) -> str:
    """Return in words which clusters a placement may have left, "" for none.

    `known`: without earlier answers there is nothing that it could have left.
    """
    if before is None:
        return "" if known else "clusters that the last placement had"
    return ", ".join(sorted(before.clusters - names))


def _check(carried: Carried, what: str, why: str, approvals: Collection[str]) -> None:
    """Raise Refusal unless a person approved the placement that an object has."""
    # Of this object and this placement alone: the next one needs an approval of its own.
    present = [carried.annotations.get(key) for key in (PLACEMENT, HISTORY)]
    name = f"{what}-{digest([carried.uid, *present])}"
    if name not in approvals:
        raise Refusal(409, f"{why}; `kube-sync remediate approve {name}` confirms that")


def _reason(cluster: str, text: str, decision: Decision | None) -> str:
    if decision is None or decision.annotations.get(PLACEMENT, text) != text:
        return _EARLIER
    if PLACEMENT not in decision.annotations:
        return _REQUESTED
    return cut(decision.reasons.get(cluster, _SELECTED))
