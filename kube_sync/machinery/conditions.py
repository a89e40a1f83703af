"""Lists of conditions as they are to be, out of those that are there and what is to be said.

Keeps true what the Gateway API asks of whoever writes conditions (PolicyAncestorStatus.conditions):
the conditions of others stay, in their places; of one type there is one; one that was observed of
a newer generation than is known here is left as it is. The time of the last transition is kept as
long as the status is (meta/v1 Condition), so what is right already comes out as it went in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from kube_sync.topology.conditions import ACCEPTED, EFFECTS, RESOLVED
from kube_sync.topology.shapes import number

DOMAIN: Final = "kube-sync.io"
CONTROLLER: Final = f"{DOMAIN}/topology"
_MESSAGE: Final = 32768  # characters: the most that meta/v1 allows in a condition's message
_TIME: Final = "lastTransitionTime"
_GENERATION: Final = "observedGeneration"
_STANDING: Final = frozenset({ACCEPTED, RESOLVED, *EFFECTS})

Json = Mapping[str, Any]


class Said(NamedTuple):
    """What one condition is to say."""

    type: str
    status: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class About:
    """The object that conditions are of: its generation (None: it has none), and the time now.

    The time is as in RFC 3339.
    """

    generation: int | None
    now: str


def merged(
    found: Iterable[Json], wanted: Iterable[Said], about: About, ours: Callable[[object], bool]
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
            result.append(_dated(new, old, about))
    return result + [_dated(left[kind], {}, about) for kind in sorted(left)]


def newer(found: Json, about: About) -> bool:
    """Tell whether a condition is of a newer generation than is known here. Raises Malformed."""
    observed = number(found, _GENERATION)
    return observed is not None and about.generation is not None and observed > about.generation


def untimed(condition: Json) -> Json:
    """Return a condition without its time."""
    return {name: value for name, value in condition.items() if name != _TIME}


def affects(type_: object) -> bool:
    """Tell whether a condition of this type says which policies affect a target, on which path."""
    said = str(type_)
    return said.startswith(f"{DOMAIN}/") and said.endswith(("Affected", "Paths"))


def stands(type_: object) -> bool:
    """Tell whether a condition of this type says where a policy stands."""
    said = str(type_)  # whatever it is, also what no set can be asked for
    return said in _STANDING or said.startswith(f"{DOMAIN}/")


def _dated(new: Said, old: Json, about: About) -> Json:
    since = old.get(_TIME) if old.get("status") == new.status else None
    message = new.message if len(new.message) <= _MESSAGE else new.message[: _MESSAGE - 2] + " …"
    result = {"type": new.type, "status": new.status, "reason": new.reason, "message": message}
    observed = {} if about.generation is None else {_GENERATION: about.generation}
    return result | observed | {_TIME: since or about.now}
