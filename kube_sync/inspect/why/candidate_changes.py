"""Generates candidate changes: single changes of a cluster or of the object to try. Pure.

Only values that the decision reads are changed, to values at hand: those of other objects, the
constants of rules, those of the other side of a comparison, a step beyond each number, true and
false, and absence. The likely ones come first, of all spots in turn, so that a limit cuts the
least likely.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from typing import Any, Final, Literal

from kube_sync.decisions.decision import compact
from kube_sync.inspect.why.change import ABSENT, MAPS, Change, Spot, at, text
from kube_sync.inspect.why.changeable_fields import may_change, spots
from kube_sync.inspect.why.terms import Place, Scalar
from kube_sync.opa.analysis.result import FieldRead

_LONGEST: Final = 2_000  # bytes of a value that is tried
_TEXT: Final = 63  # characters of a label's value
# Kubernetes, "Labels and Selectors: Syntax and character set".
_LABEL: Final = re.compile(r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?)?")
_OTHERS: Final = 40  # values of the policies that have no relation to a spot


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two objects that may change, what is read of it, and others of its kind."""

    of: Literal["cluster", "object"]
    body: Mapping[str, Any]
    fields: Sequence[FieldRead]
    others: Sequence[Mapping[str, Any]] = ()  # whose values are tried, the likeliest first
    decided: Collection[str] = ()  # annotations that the policy writes

    def reads(self) -> Iterator[tuple[FieldRead, Spot]]:
        """Yield each spot that may change, with the field that it belongs to."""
        for field in self.fields:
            for spot in spots(field.path, self.body, self.others):
                if may_change(spot, self.body, self.decided):
                    yield field, spot


def changes(sides: Sequence[Side], constants: Mapping[Place, Sequence[Scalar]]) -> Iterator[Change]:
    """Yield all single changes to try, each once."""
    known = _Known(sides, constants)
    seen: set[tuple[str, Spot]] = set()
    every: list[list[Change]] = []
    for side in sides:
        for field, spot in side.reads():
            if (side.of, spot) not in seen:
                seen.add((side.of, spot))
                before = at(side.body, spot)
                found = _values(side, field, spot, before, known)
                every.append([Change(side.of, spot, before, value) for value in found])
    in_turn = chain.from_iterable(zip_longest(*every))
    return (change for change in in_turn if change is not None)


class _Known:
    """The constants of rules, and the values that they read on either side."""

    def __init__(self, sides: Sequence[Side], constants: Mapping[Place, Sequence[Scalar]]) -> None:
        self._constants = constants
        self._seen: dict[Place, list[Scalar]] = {}
        for side in sides:
            for field, spot in side.reads():
                value = at(side.body, spot)
                if isinstance(value, str | int | float):
                    for place in _places(field):
                        self._seen.setdefault(place, []).append(value)

    def likely(self, field: FieldRead) -> Iterator[Scalar]:
        """Yield the values that the rules of a field compare with, and others that they read."""
        for place in _places(field):
            yield from self._seen.get(place, ())
        for place in _places(field):
            yield from self._constants.get(place, ())

    def unlikely(self) -> Iterator[Scalar]:
        """Yield the values that any rule reads or compares with."""
        found = chain(*self._seen.values(), *self._constants.values())
        yield from list(dict.fromkeys(found))[:_OTHERS]


def _places(field: FieldRead) -> Iterator[Place]:
    for ask in field.asked:
        if ask.row is not None:
            yield ask.module, ask.row


def _values(
    side: Side, field: FieldRead, spot: Spot, before: object, known: _Known
) -> Iterator[Any]:
    """Yield other values for a spot, the likeliest first, each once."""
    others = [v for o in side.others if (v := at(o, spot)) is not ABSENT and _is_small(v)]
    common = _frequent(others)
    likely_values, unlikely_values = [*known.likely(field)], [*known.unlikely()]
    likely = chain(
        common,
        likely_values,
        _neighbours([*likely_values, *common, before]),
        _booleans(before, common),
    )
    kind = _Kind(spot, before, common)
    seen = {text(before)}
    for value in chain(likely, [ABSENT], unlikely_values, _neighbours(unlikely_values)):
        for formatted in [ABSENT] if value is ABSENT else kind.format(value):
            if text(formatted) not in seen:
                seen.add(text(formatted))
                yield formatted


def _frequent(values: Sequence[Any]) -> list[Any]:
    """Sort values by frequency; equally frequent ones stay in order."""
    first = {compact(value): value for value in reversed(values)}
    counts = Counter(compact(value) for value in values)
    return [first[text] for text, _ in counts.most_common(_OTHERS)]


def _neighbours(values: Iterable[Any]) -> Iterator[int | float]:
    for value in values:
        if (number := as_number(value)) is not None:
            yield from (number + 1, number - 1)


def _booleans(before: object, common: Sequence[Any]) -> Iterator[Any]:
    words = {"true", "false", '"true"', '"false"'}
    if before is ABSENT or words & {text(value) for value in (before, *common)}:
        yield from (True, False)


class _Kind:
    """The type of value for a spot, by its current value or those of others."""

    def __init__(self, spot: Spot, before: object, common: Sequence[Any]) -> None:
        self._text = spot[:2] in MAPS
        self._label = spot[:2] == MAPS[0]
        self._types = {_type(value) for value in (before, *common) if value is not ABSENT}

    def format(self, value: Any) -> Iterator[Any]:  # noqa: ANN401 - any JSON
        """Yield a value in the form for the spot, if it is possible there."""
        if self._text:
            formatted = value if isinstance(value, str) else compact(value)
            if not self._label or _is_label(formatted):
                yield formatted
        elif not self._types or _type(value) in self._types:
            yield value
        elif "number" in self._types and (number := as_number(value)) is not None:
            yield number
        elif "text" in self._types and isinstance(value, int | float):
            yield compact(value)


def _type(value: object) -> str:
    match value:
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case str():
            return "text"
        case list():
            return "array"
        case dict():
            return "object"
    return "null"


def as_number(value: object) -> int | float | None:
    """Return the number that a value is or represents."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return value
    if isinstance(value, str):
        try:
            return int(value)
        except ValueError:
            return None
    return None


def _is_label(value: str) -> bool:
    return len(value) <= _TEXT and _LABEL.fullmatch(value) is not None


def _is_small(value: object) -> bool:
    return len(compact(value)) <= _LONGEST
