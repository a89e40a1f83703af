"""Compute which fields of a resource with `fields: auto` OPA has to hold.

Invariant: a form keeps at least what every set of policies reads that is in force or may come into
force. Once one of them is in force, and no other may be, fields that only others read are dropped.
A set that could not be analysed counts as reading everything; so does a set for a resource that was
unknown then. It knows neither OPA nor when data is replicated.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

import structlog

from kube_sync.opa.analysis.paths import Path, covers, minimal
from kube_sync.opa.analysis.result import Collection, FieldRead, Reads, joined, order, shown

log: structlog.stdlib.BoundLogger = structlog.get_logger()

_EVERYTHING: Final[tuple[Path, ...]] = ((),)
_NAMED = 5  # fields in one log line


@dataclass(frozen=True, slots=True)
class Need:
    """What one set of policies reads, and the resources' paths when it was analysed."""

    reads: Reads
    collections: Mapping[str, Collection]

    def of(self, name: str, *, target: bool) -> Form:
        """Return the form of a resource that is enough for this set."""
        if self.reads.gave_up is not None or name not in self.collections:
            return WHOLE
        document = self.reads.resources[name]
        paths = self.reads.target_paths(name) if target else document.paths
        form = WHOLE if () in paths else Form(paths, self.collections[name].namespaced)
        return form if self._beside is None else form.joined(self._beside.of(name, target=False))

    def fields(self, name: str, *, target: bool) -> Iterator[FieldRead]:
        """Yield the fields read of a resource, with the rules that read them."""
        if name in self.reads.resources:
            yield from self.reads.resources[name].fields
        if target:
            yield from self.reads.input.fields
        if self._beside is not None:
            yield from self._beside.fields(name, target=False)

    def joined(self, other: Need) -> Need:
        """Return the need of both sets together."""
        return Need(joined(self.reads, other.reads), {**other.collections, **self.collections})

    @property
    def _beside(self) -> Need | None:
        beside = self.reads.beside
        return None if beside is None else Need(beside, self.collections)


@dataclass(frozen=True, slots=True)
class Form:
    """The fields to keep of each object; the empty path is all of it.

    `namespaced`: the scope that the fields were derived for; objects of the other one are kept
    whole. None: either.
    """

    paths: tuple[Path, ...]
    namespaced: bool | None

    @property
    def count(self) -> int:
        """The number of paths, -1 for whole objects."""
        return -1 if self.paths == _EVERYTHING else len(self.paths)

    def joined(self, other: Form) -> Form:
        """Return the form that keeps what either keeps."""
        if WHOLE in (self, other) or self.namespaced != other.namespaced:
            return WHOLE
        paths = minimal((), (*self.paths, *other.paths))
        return Form(tuple(sorted(paths, key=order)), self.namespaced)

    def without(self, fields: Iterable[str]) -> Form:
        """Return the form without these fields and what is below them, unless it is whole."""
        dropped = {(name,) for name in fields}
        left = (path for path in self.paths if path[:1] not in dropped)
        return replace(self, paths=tuple(left))

    def covers(self, field: Path) -> bool:
        """Return whether it keeps all of a field."""
        return any(covers(path, field) for path in self.paths)

    def holds(self, other: Form) -> bool:
        """Return whether it keeps everything that the other one keeps."""
        return self in (WHOLE, other) or self.joined(other) == self


WHOLE: Final = Form(_EVERYTHING, None)


class Extent:
    """The sets of policies that may be in force in one epoch."""

    def __init__(self, distrusted: Container[str] = ()) -> None:
        """`distrusted` resources are kept whole: their analysis was found wrong."""
        self._distrusted = distrusted
        self._needs: list[Need | None] = []  # None: a set with an unknown need
        self._warned: set[str] = set()

    @property
    def known(self) -> bool:
        """Whether any set was recorded."""
        return bool(self._needs)

    def may_come(self, needs: Iterable[Need | None]) -> bool:
        """Record that sets with these needs may come into force; return whether any is new."""
        new = [need for need in needs if need not in self._needs]
        self._needs += new
        return bool(new)

    def is_in_force(self, need: Need | None) -> bool:
        """Record that only a set with this need is in force; return whether that is new."""
        old, self._needs = self._needs, [need]
        return old != self._needs

    def form(self, name: str, *, target: bool) -> Form:
        """Return the form of a resource that OPA has to hold."""
        if name in self._distrusted:
            return WHOLE
        forms = [WHOLE if need is None else need.of(name, target=target) for need in self._needs]
        form = forms[0]
        for other in forms[1:]:
            form = form.joined(other)
        self._warn(name)
        return form

    def asked(self, name: str, beyond: Form, *, target: bool, within: Form = WHOLE) -> list[str]:
        """Return the fields `within` a form that are read and not in `beyond`, with their policies.

        Only the first few.
        """
        found = {
            f"{shown(field.path)}: {ask}": None
            for need in self._needs
            if need is not None
            for field in need.fields(name, target=target)
            if not beyond.covers(field.path) and within.covers(field.path)
            for ask in field.asked[:1]
        }
        return list(found)[:_NAMED]

    def _warn(self, name: str) -> None:
        unknown = any(n is not None and name not in n.collections for n in self._needs)
        if unknown and name not in self._warned:
            self._warned.add(name)
            log.warning("resource_not_analysed", resource=name, reason="nobody knows where it lies")
