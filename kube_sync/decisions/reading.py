"""What a policy decided, if whoever reads the annotations can: else no decision is usable.

`parse_decision` reads what every annotation has to be; a DecisionReader also holds placement
annotations to their contracts, and names the policy and the row that a wrong one comes from. The
webhook, the replicator and `plan` read decisions by it, so that all three say the same of them.

The row is found in the text of the modules, since an answer of OPA does not say which rule made it.
What is found nowhere, as a key that is put together, is told without a row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final, Protocol

from kube_sync.decisions.decision import Decision, parse_decision
from kube_sync.errors import Undecided
from kube_sync.kube.policynames import called
from kube_sync.objects import ObjectKey

_ROWS: Final = 3  # that are named
_REMEMBERED: Final = 64  # places

Modules = Mapping[str, str]  # sources by id
Row = tuple[str, int]  # a module's id, and the number of a row
ReadDecision = Callable[[bytes], Decision]  # raises Undecided


class Unreadable(Protocol):
    """An annotation whose value breaks its contract; as text: what was expected, what is there."""

    @property
    def annotation(self) -> str:
        """The annotation's key."""
        ...

    @property
    def word(self) -> str:
        """What may be misspelt in its value, "" where that is not known."""
        ...


Check = Callable[[Mapping[str, str]], Unreadable | None]


class DecisionReader:
    """Reads decisions; those whose placement nobody could read are none."""

    def __init__(
        self,
        check: Check,
        modules: Callable[[], Modules] = dict,
        names: Mapping[str, str] | None = None,
    ) -> None:
        """`check` finds what is wrong with annotations, `modules` are those that may be at fault.

        `names`: what people call a module, where that is not the object that holds it.
        """
        self._check = check
        self._modules = modules
        self._names = names or {}
        self._of: Modules = {}
        self._places: dict[tuple[str, str], list[Row]] = {}
        self._blamed: dict[str, list[Row]] = {}

    def __call__(self, result: bytes) -> Decision:
        """Return what was decided. Raises Undecided: with policy, row and what was expected."""
        decision = parse_decision(result)
        # What a policy refuses is not carried out, whatever it decides beside that.
        wrong = None if decision.errors else self._check(decision.annotations)
        if wrong is None:
            return decision
        found = self._rows(wrong)
        where = " or ".join(place(module, row, self._names) for module, row in found)
        msg = f"{where}: {wrong}" if where else f"the policy's {wrong}"
        self._blamed[msg] = found
        raise Undecided(msg)

    def blamed(self, failure: str) -> list[Row]:
        """Return the rows that this failure of decisions was put down to."""
        return self._blamed.get(failure, [])

    def _rows(self, wrong: Unreadable) -> list[Row]:
        if (modules := self._modules()) != self._of or len(self._blamed) >= _REMEMBERED:
            self._of, self._places, self._blamed = modules, {}, {}
        key = wrong.annotation, wrong.word
        if key not in self._places:
            self._places[key] = rows(modules, *key)
        return self._places[key]


def place(module: str, row: int, names: Mapping[str, str] | None = None) -> str:
    """Return a row of a module as its author knows it."""
    if module in (names or {}):
        return f"{(names or {})[module]} row {row}"
    parts = module.split("/", 2)
    if len(parts) < 3:  # noqa: PLR2004 - of no object: OPA was started with it
        return f"{module} row {row}"
    namespace, name, key = parts
    return f"{key} row {row} of {called(ObjectKey(namespace, name))}"


def rows(modules: Modules, annotation: str, word: str = "") -> list[Row]:
    """Return the rows that decide an annotation: where the word is, else where its key is."""
    found: dict[int, list[Row]] = {}
    for module, source in sorted(modules.items()):
        if "annotations" in source:
            for row, text in _code(source):
                if rank := _rank(text, annotation, word):
                    found.setdefault(rank, []).append((module, row))
    best = next((found[rank] for rank in sorted(found) if len(found[rank]) <= _ROWS), None)
    return best or next((found[rank][:_ROWS] for rank in sorted(found)), [])


def mentions(modules: Modules, literal: str) -> list[Row]:
    """Return the first rows in which a text stands as a string."""
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
    """Rank a row by how surely it decides an annotation, 0: it does not."""
    head = text.removeprefix("default ").startswith("annotations")
    if word and f'"{word}"' in text:
        return 1
    if annotation in text:
        return 2 if head else 4 if "input" in text else 3
    return 5 if head else 0
