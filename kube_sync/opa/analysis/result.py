"""The result of the analysis: what a decision reads, field by field, with the reading rules.

Invariant: equal policies give equal Reads, in one order. If the analysis gave up, everything
counts as read and `gave_up` has the reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from kube_sync.config import Settings
from kube_sync.objects import SECRET_VALUES
from kube_sync.opa.analysis.paths import EACH, Path, minimal
from kube_sync.opa.analysis.syntax import Spot

_WITHHELD: Final = (
    "{} of {} is undefined: values of Secrets are replicated only where the configuration says"
    " `secrets: true` in replicate.resources"
)

_UNREAD: Final = (
    "{}: what this rule reads cannot be found out ({}): everything counts as read by all policies,"
    " so objects are kept whole and decisions are shared by none"
)

_VALUES: Final = [(name,) for name in SECRET_VALUES]


@dataclass(frozen=True, slots=True)
class Collection:
    """Where OPA holds a resource's objects: `data.<path>[namespace][name]`, or no namespace."""

    path: tuple[str, ...]
    namespaced: bool = True

    @property
    def levels(self) -> int:
        """The number of keys above an object's own key."""
        return len(self.path) + (2 if self.namespaced else 1)


@dataclass(frozen=True, slots=True, order=True)
class Ask:
    """One rule that reads a field, and how."""

    module: str  # "" for the decision itself
    rule: str
    row: int | None  # of the rule, where locations are known
    why: str
    whole: bool = False  # read as a whole, not by the names of its members

    def __str__(self) -> str:
        row = "" if self.row is None else f":{self.row}"
        return f"{self.module}{row} {self.rule}: {self.why}" if self.module else self.why


@dataclass(frozen=True, slots=True)
class FieldRead:
    """A path to keep; `whole` if its value is read as a whole, not by the names of its members."""

    path: Path
    whole: bool
    asked: tuple[Ask, ...]


@dataclass(frozen=True, slots=True)
class Document:
    """The reads of a document, or of each object of a collection.

    `used`: it is read at all. `listed`: by iteration or a computed key, so that added and removed
    objects matter even where none of their fields does.
    """

    fields: tuple[FieldRead, ...] = ()
    used: bool = False
    listed: bool = False

    @property
    def paths(self) -> tuple[Path, ...]:
        """The paths that a projection has to keep; the empty path is all."""
        return tuple(field.path for field in self.fields)


@dataclass(frozen=True, slots=True)
class Reads:
    """All that one decision can read."""

    input: Document
    resources: Mapping[str, Document]
    others: tuple[FieldRead, ...]  # data that is not replicated, by its path below `data`
    impure: Mapping[str, tuple[Ask, ...]]  # builtins whose result changes without any data
    gave_up: str | None = None  # why everything counts as read
    blamed: Spot | None = None  # the rule for which it does, if known
    beside: Reads | None = None  # the reads of another document of the same policies
    # Every reference below `data`, defined or not, by the possible keys of each of its steps.
    followed: frozenset[tuple[Path, ...]] = frozenset()
    foreign: tuple[FieldRead, ...] = ()  # those of `others` that are no packages of the policies

    def may_see(self, package: Sequence[str]) -> bool:
        """Return whether rules of a package may matter, whether it has any now or not."""
        return self.gave_up is not None or any(_meets(steps, package) for steps in self.followed)

    def target_paths(self, resource: str) -> tuple[Path, ...]:
        """Return the paths to keep of a resource whose objects are decided on, as `input`."""
        paths = (*self.input.paths, *self.resources[resource].paths)
        return tuple(sorted(minimal((), paths), key=order))

    def builtins(self) -> dict[str, Any]:
        """Return the reads as JSON values; `null` in a path is each member or element."""
        return {
            "gave_up": self.gave_up,
            "gave_up_at": None if self.blamed is None else _spot(self.blamed),
            "input": _document(self.input),
            "resources": {name: _document(d) for name, d in self.resources.items()},
            "others": [_field(field) for field in self.others],
            "impure": {name: list(map(str, asked)) for name, asked in self.impure.items()},
        }

    def __str__(self) -> str:
        """Return the reads as a tree for people."""
        return "\n".join(_lines(self))


def joined(reads: Reads, other: Reads) -> Reads:
    """Return the union of the reads of two decisions over the same resources, limits by the first.

    If the analysis of one gave up, everything counts as read.
    """
    names = (*reads.resources, *(n for n in other.resources if n not in reads.resources))
    nothing = Document()
    return replace(
        reads,
        input=_either(reads.input, other.input),
        resources={
            name: _either(reads.resources.get(name, nothing), other.resources.get(name, nothing))
            for name in names
        },
        followed=reads.followed | other.followed,
        others=tuple(dict.fromkeys((*reads.others, *other.others))),
        foreign=tuple(dict.fromkeys((*reads.foreign, *other.foreign))),
        impure={**other.impure, **reads.impure},
        gave_up=reads.gave_up if reads.gave_up is not None else other.gave_up,
        blamed=reads.blamed if reads.gave_up is not None else other.blamed,
    )


def unread(reads: Reads) -> dict[str, list[str]]:
    """Return the messages about the module for which everything counts as read, by its name."""
    found: dict[str, list[str]] = {}
    for one in (reads, reads.beside):
        if one is not None and one.gave_up is not None and one.blamed is not None:
            text = _UNREAD.format(one.blamed, one.gave_up.removeprefix(f"{one.blamed.module}: "))
            if text not in (texts := found.setdefault(one.blamed.module, [])):
                texts.append(text)
    return found


def withheld(reads: Reads, settings: Settings) -> dict[str, list[str]]:
    """Return the Secret values that are read but may not be replicated, as messages by module."""
    found: dict[str, list[str]] = {}
    for resource in settings.replicate.resources:
        if not resource.withholds:
            continue
        target = resource.name in settings.placement.names
        documents = [reads.resources.get(resource.name), reads.input if target else None]
        for field in (field for one in documents if one is not None for field in one.fields):
            if field.path[:1] in _VALUES:
                text = _WITHHELD.format(shown(field.path), resource.name)
                for module in dict.fromkeys(ask.module for ask in field.asked):
                    found.setdefault(module, []).append(text)
    return found


def _either(one: Document, other: Document) -> Document:
    found: dict[Path, FieldRead] = {}
    for field in (*one.fields, *other.fields):
        known = found.get(field.path, field)
        asked = tuple(dict.fromkeys((*known.asked, *field.asked)))
        found[field.path] = FieldRead(field.path, known.whole or field.whole, asked)
    paths = minimal((), found)
    fields = sorted((found[path] for path in paths), key=lambda field: order(field.path))
    return Document(tuple(fields), one.used or other.used, one.listed or other.listed)


def _meets(steps: Sequence[Path], package: Sequence[str]) -> bool:
    """Return whether one of the two paths lies at or below the other."""
    pairs = zip(steps, package, strict=False)
    return all(name in keys or EACH in keys for keys, name in pairs)


def order(path: Path) -> tuple[tuple[bool, str], ...]:
    """Return a key that sorts paths, EACH before the names."""
    return tuple((key is not None, key or "") for key in path)


def shown(path: Path) -> str:
    """Return a path as people write it: `spec.containers[*].image`."""
    return "".join(map(_step, path)).removeprefix(".") or "(all of it)"


def _step(key: str | None) -> str:
    if key is None:
        return "[*]"
    return f".{key}" if key.replace("_", "").isalnum() else f'["{key}"]'


def _document(document: Document) -> dict[str, Any]:
    return {
        "used": document.used,
        "listed": document.listed,
        "fields": [_field(field) for field in document.fields],
    }


def _spot(spot: Spot) -> dict[str, Any]:
    return {"module": spot.module, "rule": spot.rule, "row": spot.row}


def _field(field: FieldRead) -> dict[str, Any]:
    return {
        "path": list(field.path),
        "whole": field.whole,
        "asked": [
            {"module": a.module, "rule": a.rule, "row": a.row, "why": a.why, "whole": a.whole}
            for a in field.asked
        ],
    }


def _lines(reads: Reads) -> Iterator[str]:
    if reads.gave_up:
        at = "" if reads.blamed is None else f" ({reads.blamed})"
        yield f"everything, since the policies could not be analysed: {reads.gave_up}{at}"
    documents = {"input": reads.input, **reads.resources}
    for name, document in documents.items():
        yield name + ("" if document.used else " (not read)")
        yield from map(_line, document.fields)
    if reads.others:
        yield "other data"
        yield from map(_line, reads.others)
    for name, asked in reads.impure.items():
        yield f"{name}, called by {', '.join(map(str, asked))}"


def _line(field: FieldRead) -> str:
    why = "; ".join(sorted({str(ask) for ask in field.asked if ask.whole}))
    return f"  {shown(field.path)}" + (f"  (whole: {why})" if field.whole else "")
