"""What a decision was made on: the object as it was asked about, and the data beside it.

Keeps true: OPA answers with both in the very query that decides, so they are of one state; data
that an earlier answer brought stands for a later one only while the number of the last batch, which
is in every answer, proves that nothing of it was written in between. An input stands until a batch
that changes it is sent, so a sweep over objects that are as they were brings none. What is not had
is named, with the reason. No Secret is asked for. Inputs take a bounded number of bytes here: the
oldest go first, and are then unknown to whoever is decided alike later.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import msgspec

from kube_sync.objects import GroupVersionResource, ObjectKey
from kube_sync.opa.analysis.paths import Path
from kube_sync.opa.analysis.reads import Reads, shown

MOST_OBJECTS: Final = 1_000  # of a collection that is recorded
MOST_BYTES: Final = 4 << 20  # likewise

_INPUT_BYTES = 16 << 20
_OVERHEAD = 500  # bytes that it takes to remember an input
_BATCHES = 10_000  # that are remembered

Kept = tuple[Path, ...] | None  # what OPA holds of each object, None: all


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class Basis:
    """One state of the data that decisions read, `lacks` says of what else they read and why not.

    `reads` is what they read of the input, `inputs` what OPA holds of the objects of a collection
    that decisions are about, `kept` of the others'.
    """

    root: str
    path: str
    reads: tuple[Path, ...]
    inputs: Mapping[str, Kept]
    collections: Mapping[str, bytes]  # JSON as it lies in OPA
    kept: Mapping[str, Kept]
    lacks: Mapping[str, str]
    number: int = 0  # of the last batch that is in it


class RecordedInput:
    """One input, and the data beside it; the input is None where it was let go."""

    __slots__ = ("__weakref__", "basis", "input")

    def __init__(self, found: bytes, basis: Basis) -> None:
        self.input: bytes | None = found
        self.basis = basis


@dataclass(frozen=True, slots=True)
class InputRequest:
    """Which collections and inputs a query is to bring, and what stands for the others."""

    collection: str
    keys: Sequence[ObjectKey]
    names: tuple[str, ...]
    lacks: Mapping[str, str]
    basis: Basis | None
    inputs: Mapping[int, bytes]  # by the number of the object
    edition: int

    @property
    def wanted(self) -> list[int]:
        """The numbers of the objects that are to be brought."""
        return [number for number in range(len(self.keys)) if number not in self.inputs]


class Outdated(Exception):
    """The data was written since it was brought: ask again, for all of it."""


class InputReader:
    """Asks for what decisions are made on, through one epoch of OPA's data."""

    def __init__(
        self,
        root: str,
        path: str,
        *,
        targets: Callable[[], Mapping[str, GroupVersionResource]],
        kept: Callable[[str, Reads], Kept],
        held: Callable[[str], int],
        secrets: Callable[[], Collection[str]],
        lacks: Mapping[str, str] | None = None,
    ) -> None:
        """`path` is the decision's; `kept` and `held` tell what, and how many, OPA holds of a name.

        `secrets` are the collections of Secrets; what `lacks` says is never had.
        """
        self._lacks = dict(lacks or {})
        self._root, self._path = root, path
        self._targets, self._kept, self._held, self._secrets = targets, kept, held, secrets
        self._reads: Reads | None = None
        self._edition = 0
        self._basis: Basis | None = None
        self._too_large: set[str] = set()
        self._batches: deque[tuple[int, Mapping[str, Collection[ObjectKey]]]] = deque()
        self._known: dict[tuple[str, ObjectKey], bytes] = {}  # inputs as OPA has them, oldest first
        self._known_bytes = 0
        self._forgotten = 0
        self._apart: list[str] = []  # collections that are being written without a number
        # Weakly, or data of long ago would be kept for the sake of inputs that nobody wants.
        self._inputs: deque[tuple[weakref.ref[RecordedInput], int]] = deque()
        self._bytes = 0

    def policies_changing(self) -> None:
        """Witness nothing until it is known which policies are in force."""
        self._reads, self._basis = None, None
        self._forget(list(self._known))  # more of each may be kept from here on
        self._edition += 1

    def policies_changed(self, reads: Reads) -> None:
        """Witness decisions that read this."""
        self.policies_changing()
        self._reads = reads
        self._too_large.clear()

    def batch(self, changes: Mapping[str, Collection[ObjectKey]], number: int) -> None:
        """Take note that a batch is on its way to OPA, and what it changes, by collection."""
        self._batches.append((number, changes))
        self._forget((name, key) for name, keys in changes.items() for key in keys)
        if len(self._batches) > _BATCHES:
            self._forgotten = self._batches.popleft()[0]

    @contextmanager
    def apart(self, name: str) -> Generator[None]:
        """Take note that a collection is written as a whole, without a number."""
        self._apart.append(name)
        self._forget_whole(name)
        try:
            yield
        finally:
            self._apart.remove(name)
            self._forget_whole(name)

    def ask(
        self, collection: str, keys: Sequence[ObjectKey], *, afresh: bool = False
    ) -> InputRequest | None:
        """Return what to ask for beside decisions on these objects, None: nothing."""
        if self._reads is None or collection in self._secrets():
            return None
        names, lacks = self._wanted(self._reads)
        basis, inputs = None, dict[int, bytes]()
        if not (afresh or self._apart):
            basis = self._still(self._basis)
            found = ((n, self._known.get((collection, key))) for n, key in enumerate(keys))
            inputs = {n: body for n, body in found if body is not None}
        return InputRequest(
            collection, keys, () if basis else names, lacks, basis, inputs, self._edition
        )

    def heard(
        self,
        asked: InputRequest,
        fence: Iterable[str],
        data: Mapping[str, msgspec.Raw],
        inputs: Mapping[int, msgspec.Raw],
    ) -> dict[int, RecordedInput]:
        """Return what an answer stands on by the number of the object; nothing where it is unsure.

        Raises Outdated where only another question tells.
        """
        reads, number = self._reads, max(map(int, fence), default=0)
        if asked.edition != self._edition or reads is None:
            return {}
        # What was written meanwhile is known no more.
        for n in asked.inputs:
            if self._known.get((asked.collection, asked.keys[n])) is not asked.inputs[n]:
                raise Outdated
        if asked.basis is not None and not self._is_of(asked.basis, number):
            raise Outdated
        basis = asked.basis or self._brought(asked, reads, number, data)
        brought = {n: bytes(body) for n, body in inputs.items() if n in asked.wanted}
        self._learn(asked, brought, number)
        return {n: self._evidence(body, basis) for n, body in {**asked.inputs, **brought}.items()}

    def _brought(
        self, asked: InputRequest, reads: Reads, number: int, brought: Mapping[str, msgspec.Raw]
    ) -> Basis:
        lacks = dict(asked.lacks)
        collections = {}
        for name in asked.names:
            body = bytes(brought.get(name, b"{}"))
            if len(body) > MOST_BYTES:
                self._too_large.add(name)
                lacks[name] = _TOO_LARGE
            else:
                collections[name] = body
        inputs = {str(gvr): self._kept(name, reads) for name, gvr in self._targets().items()}
        kept = {name: self._kept(name, reads) for name in collections}
        found = Basis(
            self._root, self._path, reads.input.paths, inputs, collections, kept, lacks, number
        )
        self._basis = None if self._apart else found
        while self._batches and self._batches[0][0] <= number:
            self._batches.popleft()
        return found

    def _learn(self, asked: InputRequest, brought: Mapping[int, bytes], number: int) -> None:
        """Know inputs as they were at a batch, but for those that one after it changes."""
        if self._apart:
            return
        later = [changes.get(asked.collection, ()) for n, changes in self._batches if n > number]
        for n, body in brought.items():
            ident = asked.collection, asked.keys[n]
            if not any(asked.keys[n] in keys for keys in later):
                self._forget([ident])
                self._known[ident] = body
                self._known_bytes += len(body) + _OVERHEAD
        while self._known_bytes > _INPUT_BYTES:
            self._forget([next(iter(self._known))])

    def _forget(self, idents: Iterable[tuple[str, ObjectKey]]) -> None:
        for ident in idents:
            if (body := self._known.pop(ident, None)) is not None:
                self._known_bytes -= len(body) + _OVERHEAD

    def _forget_whole(self, name: str) -> None:
        self._basis = None
        self._forget([ident for ident in self._known if ident[0] == name])

    def _evidence(self, body: bytes, basis: Basis) -> RecordedInput:
        """Return an input with its data, as long as there is room for it."""
        found, size = RecordedInput(body, basis), len(body) + _OVERHEAD
        self._inputs.append((weakref.ref(found), size))
        self._bytes += size
        while self._bytes > _INPUT_BYTES:
            ref, size = self._inputs.popleft()
            self._bytes -= size
            if (oldest := ref()) is not None:
                oldest.input = None
        return found

    def _still(self, basis: Basis | None) -> Basis | None:
        """Return it where nothing was sent since that changes it."""
        last = self._batches[-1][0] if self._batches else 0
        return basis if basis is not None and self._is_of(basis, last) else None

    def _is_of(self, basis: Basis, number: int) -> bool:
        """Tell whether OPA held this data when `number` was the last batch it had taken."""
        if basis is not self._basis or self._forgotten > basis.number:
            return False
        return not any(
            basis.number < n <= number and changes.keys() & basis.collections.keys()
            for n, changes in self._batches
        )

    def _wanted(self, reads: Reads) -> tuple[tuple[str, ...], dict[str, str]]:
        lacks = self._lacks | dict.fromkeys(reads.impure, _IMPURE)
        if reads.gave_up is not None:
            lacks["policies"] = f"they could not be analysed: {reads.gave_up}"
        others = (f.path for f in reads.others if not is_decision(f.path, self._path))
        lacks |= {f"data.{shown(path)}": "it is not replicated" for path in others}
        names, targets, secrets = [], self._targets(), self._secrets()
        for name, document in reads.resources.items():
            if not document.used and reads.gave_up is None:
                continue
            if name in targets:
                lacks[name] = "decisions are about it"
            elif name in secrets:
                lacks[name] = "it holds Secrets"
            elif self._held(name) > MOST_OBJECTS or name in self._too_large:
                lacks[name] = _TOO_LARGE
            else:
                names.append(name)
        return tuple(names), lacks


def is_decision(path: Path, decision: str) -> bool:
    """Tell whether a path below `data` is that of the decision, whose rules say what is there."""
    return path == tuple(decision.split("/"))


_IMPURE = "what it answers changes without any data"
_TOO_LARGE = f"it has more than {MOST_OBJECTS:,} objects, or {MOST_BYTES >> 20} MiB"
