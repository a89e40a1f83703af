"""Lists of conditions as they are to be, out of those that are there and what is to be said.

Keeps true what the Gateway API asks of whoever writes conditions (PolicyAncestorStatus.conditions):
the conditions of others stay, in their places; of one type there is one; one that was observed of
a newer generation than is known here is left as it is. The time of the last transition is kept as
long as the status is (meta/v1 Condition), so what is right already comes out as it went in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from kube_sync.kube.conditions import OBSERVED_GENERATION, Condition, Json, dated_after
from kube_sync.topology.conditions import ACCEPTED, EFFECTS, RESOLVED
from kube_sync.topology.shapes import number

DOMAIN: Final = "kube-sync.io"
CONTROLLER: Final = f"{DOMAIN}/topology"
_STANDING: Final = frozenset({ACCEPTED, RESOLVED, *EFFECTS})


@dataclass(frozen=True, slots=True)
class About:
    """The object that conditions are of: its generation (None: it has none), and the time now.

    The time is as in RFC 3339.
    """

    generation: int | None
    now: str


def merged(
    found: Iterable[Json], wanted: Iterable[Condition], about: About, ours: Callable[[object], bool]
) -> list[Json]:
    """Return the conditions that are to be there; `ours` tells by the type which are ours to say.

    Raises Malformed where a generation is none.
    """
    left = {one.type: one for one in wanted if ours(one.type)}
    result: list[Json] = []
    for old in found:
        kind = old.get("type")
        if not ours(kind):
            result.append(old)
            continue
        new = left.pop(str(kind), None)
        if newer(old, about):
            result.append(old)
        elif new is not None:
            result.append(dated_after(new, old, about.generation, about.now))
    return result + [
        dated_after(left[kind], {}, about.generation, about.now) for kind in sorted(left)
    ]


def newer(found: Json, about: About) -> bool:
    """Tell whether a condition is of a newer generation than is known here. Raises Malformed."""
    observed = number(found, OBSERVED_GENERATION)
    return observed is not None and about.generation is not None and observed > about.generation


def affects(type_: object) -> bool:
    """Tell whether a condition of this type says which policies affect a target, on which path."""
    said = str(type_)
    return said.startswith(f"{DOMAIN}/") and said.endswith(("Affected", "Paths"))


def stands(type_: object) -> bool:
    """Tell whether a condition of this type says where a policy stands."""
    said = str(type_)  # whatever it is, also what no set can be asked for
    return said in _STANDING or said.startswith(f"{DOMAIN}/")
