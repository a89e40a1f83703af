"""Parse and validate decisions: an unreadable placement annotation makes one unusable.

`parse_decision` checks what every annotation must be; a DecisionReader also validates placement
annotations, and names the policy and the row of a wrong one. The webhook, the replicator and `plan`
all parse decisions by it, so that their results agree.

The row is searched in the text of the modules, since OPA's answer does not name the rule. If it is
not found, as for a computed key, the message has no row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final, Protocol

from kube_sync.decisions.decision import Decision, parse_decision
from kube_sync.errors import Undecided
from kube_sync.kube.policynames import called
from kube_sync.objects import ObjectKey

_ROWS: Final = 3  # in a message
_CACHED: Final = 64  # searched annotations and messages

Modules = Mapping[str, str]  # sources by id
Row = tuple[str, int]  # module id and row number
ReadDecision = Callable[[bytes], Decision]  # raises Undecided


class Unreadable(Protocol):
    """An annotation with an invalid value; its text names what was expected and what was found."""

    @property
    def annotation(self) -> str:
        """The annotation's key."""

    @property
    def word(self) -> str:
        """The possibly misspelt word in its value, "" if unknown."""


Check = Callable[[Mapping[str, str]], Unreadable | None]


class DecisionReader:
    """Parses decisions, and rejects those with an unreadable placement."""

    def __init__(
        self,
        check: Check,
        modules: Callable[[], Modules] = dict,
        names: Mapping[str, str] | None = None,
    ) -> None:
        """`check` validates annotations, `modules` returns the modules that may be at fault.

        `names`: names of modules for messages, if they differ from those of their objects.
        """
        self._check = check
        self._modules = modules
        self._names = names or {}
        self._searched_modules: Modules = {}
        self._places: dict[tuple[str, str], list[Row]] = {}
        self._failing_rows: dict[str, list[Row]] = {}

    def __call__(self, result: bytes) -> Decision:
        """Parse a decision. Raises Undecided, with policy, row and what was expected."""
        decision = parse_decision(result)
        # A refusal is never carried out, so its annotations are not validated.
        unreadable = None if decision.errors else self._check(decision.annotations)
        if unreadable is None:
            return decision
        found = self._rows(unreadable)
        places = " or ".join(row_name(module, row, self._names) for module, row in found)
        msg = f"{places}: {unreadable}" if places else f"the policy's {unreadable}"
        self._failing_rows[msg] = found
        raise Undecided(msg)

    def failing_rows(self, failure: str) -> list[Row]:
        """Return the rows that a failure was attributed to."""
        return self._failing_rows.get(failure, [])

    def _rows(self, unreadable: Unreadable) -> list[Row]:
        if (modules := self._modules()) != self._searched_modules or len(
            self._failing_rows
        ) >= _CACHED:
            self._searched_modules, self._places, self._failing_rows = modules, {}, {}
        key = unreadable.annotation, unreadable.word
        if key not in self._places:
            self._places[key] = rows_of_annotation(modules, *key)
        return self._places[key]


def row_name(module: str, row: int, names: Mapping[str, str] | None = None) -> str:
    """Return the name of a row of a module for its author."""
    if module in (names or {}):
        return f"{(names or {})[module]} row {row}"
    parts = module.split("/", 2)
    if len(parts) < 3:  # noqa: PLR2004 - of no object: OPA was started with it
        return f"{module} row {row}"
    namespace, name, key = parts
    return f"{key} row {row} of {called(ObjectKey(namespace, name))}"


def rows_of_annotation(modules: Modules, annotation: str, word: str = "") -> list[Row]:
    """Return the rows that decide an annotation: those with the word, else with its key."""
    found: dict[int, list[Row]] = {}
    for module, source in sorted(modules.items()):
        if "annotations" in source:
            for row, text in _code(source):
                if rank := _rank(text, annotation, word):
                    found.setdefault(rank, []).append((module, row))
    best = next((found[rank] for rank in sorted(found) if len(found[rank]) <= _ROWS), None)
    return best or next((found[rank][:_ROWS] for rank in sorted(found)), [])


def rows_with_literal(modules: Modules, literal: str) -> list[Row]:
    """Return the first rows that contain a text as a string literal."""
    quoted = f'"{literal}"', f"`{literal}`"
    found = (
        (module, row)
        for module, source in sorted(modules.items())
        if any(text in source for text in quoted)
        for row, text in _code(source)
        if any(one in text for one in quoted)
    )
    return [one for one, _ in zip(found, range(_ROWS), strict=False)]


def _code(source: str) -> Iterator[tuple[int, str]]:
    for number, text in enumerate(source.splitlines(), start=1):
        stripped = text.strip()
        if stripped and not stripped.startswith("#"):
            yield number, stripped


def _rank(text: str, annotation: str, word: str) -> int:
    """Rank how certainly a row decides an annotation, 0: it does not."""
    head = text.removeprefix("default ").startswith("annotations")
    if word and f'"{word}"' in text:
        return 1
    if annotation in text:
        return 2 if head else 4 if "input" in text else 3
    return 5 if head else 0
