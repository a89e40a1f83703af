"""Conditions of the hub's objects: made, dated, and compared.

Keeps true: equal findings make equal conditions, but for the time of the last transition, which is
kept as long as a status is (meta/v1 Condition). So what is right already is not written. A message
is bounded, and cut between two entries.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

MESSAGE: Final = 4096  # characters; meta/v1 allows 32768
_TIME: Final = "lastTransitionTime"
_REST: Final = 32  # characters for what is said of the rest

Json = dict[str, Any]


class Said(NamedTuple):
    """One condition, without what depends on the object that it is of."""

    type: str
    status: str
    reason: str
    message: str


def message(entries: Iterable[str], most: int = MESSAGE) -> str:
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


def dated(
    wanted: Iterable[Said],
    found: Sequence[Mapping[str, Any]],
    generation: int,
    now: str,
) -> list[Json]:
    """Return conditions for an object that has `found`, sorted; `now` is as in RFC 3339."""
    known = {one.get("type"): one for one in found}
    return [_dated(one, known.get(one.type), generation, now) for one in sorted(wanted)]


def are_right(found: Sequence[Mapping[str, Any]], wanted: Sequence[Mapping[str, Any]]) -> bool:
    """Tell whether an object has the wanted conditions; others that it has do not count."""
    known = {one.get("type"): one for one in found}
    return all(known.get(one["type"]) == one for one in wanted)


def _dated(said: Said, found: Mapping[str, Any] | None, generation: int, now: str) -> Json:
    since = now
    if found is not None and found.get("status") == said.status:
        since = found.get(_TIME) or since
    return {**said._asdict(), "observedGeneration": generation, _TIME: since}
