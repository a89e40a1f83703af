"""Build and compare status conditions (meta/v1 Condition).

Invariant: equal findings make equal conditions, except for lastTransitionTime, which is kept until
the condition's status changes. So a condition that is already right need not be written. A message
of many entries has a length limit, and is truncated between two entries.

GitOps tools wait for an object by its `standard` conditions, of which exactly one is true, and by
`status.observedGeneration` (kstatus: sigs.k8s.io/cli-utils, pkg/kstatus/README.md). Our definitions
give that field a default, so an object without it is of an older definition, which would refuse it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, NamedTuple, get_args

_MESSAGE: Final = 32768  # characters: the most that meta/v1 allows in a condition's message
_TIME: Final = "lastTransitionTime"
OBSERVED_GENERATION: Final = "observedGeneration"

Json = Mapping[str, Any]
# The present generation is in effect; it is not yet; it will not be before a person changes it.
Phase = Literal["Ready", "Reconciling", "Stalled"]


class Condition(NamedTuple):
    """The content of one condition, without the fields that depend on its object."""

    type: str
    status: str
    reason: str
    message: str


def condition(kind: str, status: str, reason: str, lines: Iterable[str]) -> Condition:
    """Return a condition whose message has one line for each of `lines`."""
    return Condition(kind, status, reason, "\n".join(lines))


def standard(phase: Phase, reason: str, message: str) -> list[Condition]:
    """Return Ready, Reconciling and Stalled: the one of the phase is true, and has the message.

    Ready always has it: it is what people look at.
    """
    return [
        Condition(one, str(one == phase), reason, message if one in {"Ready", phase} else "")
        for one in get_args(Phase)
    ]


def is_observed(observed: int | None, generation: int) -> bool:
    """Return whether a status that has `observed` is of this generation, if it says of which."""
    return observed in {None, generation}


def observing(observed: int | None, generation: int) -> dict[str, int]:
    """Return the field observedGeneration to write to a status that has `observed`, if any."""
    return {} if observed is None else {OBSERVED_GENERATION: generation}


def dated(
    wanted: Iterable[Condition], found: Iterable[Json], generation: int | None, now: str
) -> list[dict[str, Any]]:
    """Return the conditions to write to an object that has `found`; `now` is as in RFC 3339.

    `generation` is the object's, None if it has none.
    """
    known = _by_type(found)
    return [dated_after(one, known.get(one.type, {}), generation, now) for one in wanted]


def dated_after(
    wanted: Condition, before: Json, generation: int | None, now: str
) -> dict[str, Any]:
    """Return one condition with observedGeneration and time; `before` is its former state."""
    since = before.get(_TIME) if before.get("status") == wanted.status else None
    observed = {} if generation is None else {OBSERVED_GENERATION: generation}
    message = wanted.message
    if len(message) > _MESSAGE:
        message = message[: _MESSAGE - 2] + " …"
    return {**wanted._replace(message=message)._asdict(), **observed, _TIME: since or now}


def are_right(found: Iterable[Json], wanted: Iterable[Json]) -> bool:
    """Return whether an object has the wanted conditions; its other conditions do not count."""
    known = _by_type(found)
    return all(known.get(one["type"]) == one for one in wanted)


def untimed(condition: Json) -> Json:
    """Return a condition without lastTransitionTime."""
    return {name: value for name, value in condition.items() if name != _TIME}


def _by_type(found: Iterable[Json]) -> dict[str, Json]:
    """Index conditions by type; entries without a type (a kind of another schema) are skipped."""
    return {kind: one for one in found if isinstance(kind := one.get("type"), str)}


BRIEF: Final = 4096  # characters of a message of many entries
_REST: Final = 32  # characters reserved for the number of entries left out


def message(entries: Iterable[str], most: int = BRIEF) -> str:
    """Join entries into a text of at most `most` characters that ends with the number left out."""
    kept: list[str] = []
    length, listed = 0, list(entries)
    for entry in listed:
        length += len(entry) + 2
        if length > most - _REST:
            break
        kept.append(entry)
    if len(kept) == len(listed):
        return "; ".join(kept)
    if not kept:
        kept = [listed[0][: most - _REST - 2] + " …"]
    rest = len(listed) - len(kept)
    return "; ".join([*kept, f"and {rest} more"] if rest else kept)
