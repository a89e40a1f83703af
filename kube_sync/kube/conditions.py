"""Conditions of a status (meta/v1 Condition): made, dated and compared.

Keeps true: equal findings make equal conditions, but for the time of the last transition, which is
kept as long as the status of a condition is. So what is right already need not be written. A
message of many entries is bounded, and cut between two of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

_MESSAGE: Final = 32768  # characters: the most that meta/v1 allows in a condition's message
_TIME: Final = "lastTransitionTime"
OBSERVED_GENERATION: Final = "observedGeneration"

Json = Mapping[str, Any]


class Condition(NamedTuple):
    """What one condition is to say, without what depends on the object that it is of."""

    type: str
    status: str
    reason: str
    message: str


def dated(
    wanted: Iterable[Condition], found: Iterable[Json], generation: int | None, now: str
) -> list[dict[str, Any]]:
    """Return conditions for an object that has `found`; `now` is as in RFC 3339.

    `generation` is that of the object, None where it has none.
    """
    known = _by_type(found)
    return [dated_after(one, known.get(one.type, {}), generation, now) for one in wanted]


def dated_after(
    wanted: Condition, before: Json, generation: int | None, now: str
) -> dict[str, Any]:
    """Return one condition with its generation and time; `before` is the one of its type."""
    since = before.get(_TIME) if before.get("status") == wanted.status else None
    observed = {} if generation is None else {OBSERVED_GENERATION: generation}
    message = wanted.message
    if len(message) > _MESSAGE:
        message = message[: _MESSAGE - 2] + " …"
    return {**wanted._replace(message=message)._asdict(), **observed, _TIME: since or now}


def are_right(found: Iterable[Json], wanted: Iterable[Json]) -> bool:
    """Tell whether an object has the wanted conditions; others that it has do not count."""
    known = _by_type(found)
    return all(known.get(one["type"]) == one for one in wanted)


def untimed(condition: Json) -> Json:
    """Return a condition without its time."""
    return {name: value for name, value in condition.items() if name != _TIME}


def _by_type(found: Iterable[Json]) -> dict[str, Json]:
    """Return conditions by type; what has none, as in a kind of another schema, is no condition."""
    return {kind: one for one in found if isinstance(kind := one.get("type"), str)}


BRIEF: Final = 4096  # characters of a message of many entries
_REST: Final = 32  # characters for what is said of the rest


def message(entries: Iterable[str], most: int = BRIEF) -> str:
    """Return entries as one text of at most `most` characters that says how many are left out."""
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
