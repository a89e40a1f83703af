"""Read the inputs of decisions with the decisions: the object, and the other data they read.

Invariant: OPA returns both in the very query that decides, so they are of one state. Data of an
earlier answer is reused only while the number of the last batch, which each answer contains, proves
that it was not written since. An input is reused until a batch that changes it is sent, so a sweep
over unchanged objects transfers none. Missing data is listed with the reason. Secrets are never
requested. The bytes of inputs are limited: the oldest are dropped first, and later decisions that
share them have none.
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
from kube_sync.opa.analysis.result import Reads, shown

MOST_OBJECTS: Final = 1_000  # of a collection that is recorded
MOST_BYTES: Final = 4 << 20  # the same, in bytes

_INPUT_BYTES = 16 << 20
_OVERHEAD = 500  # bytes of bookkeeping for an input
_BATCHES = 10_000  # batches that are remembered

Fields = tuple[Path, ...] | None  # the fields of each object in OPA, None: all


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class Basis:
    """One state of the data that decisions read; `lacks` lists missing data with the reason.

    `reads` are the paths read of the input, `inputs` the fields in OPA of targets by resource,
    `kept` those of other collections.
    """

    root: str
    path: str
    reads: tuple[Path, ...]
    inputs: Mapping[str, Fields]
    collections: Mapping[str, bytes]  # JSON as stored in OPA
    kept: Mapping[str, Fields]
    lacks: Mapping[str, str]
    number: int = 0  # of the last batch in it


class RecordedInput:
    """One input with the other data; the input is None if it was dropped."""

    __slots__ = ("__weakref__", "basis", "input")

    def __init__(self, found: bytes, basis: Basis) -> None:
        self.input: bytes | None = found
        self.basis = basis


@dataclass(frozen=True, slots=True)
class InputRequest:
    """The collections and inputs that a query has to return, and what replaces the others."""

    collection: str
    keys: Sequence[ObjectKey]
    names: tuple[str, ...]
    lacks: Mapping[str, str]
    basis: Basis | None
    inputs: Mapping[int, bytes]  # by the number of the object
    edition: int

    @property
    def missing_inputs(self) -> list[int]:
        """The numbers of the objects whose inputs are requested."""
        return [number for number in range(len(self.keys)) if number not in self.inputs]


class Outdated(Exception):
    """The data was written since it was read: query again, for all of it."""


class InputReader:
    """Reads the inputs of decisions, through one epoch of OPA's data."""

    def __init__(
        self,
        root: str,
        path: str,
        *,
        targets: Callable[[], Mapping[str, GroupVersionResource]],
        fields_of: Callable[[str, Reads], Fields],
        count_of: Callable[[str], int],
        secrets: Callable[[], Collection[str]],
        lacks: Mapping[str, str] | None = None,
    ) -> None:
        """`path` is the decision's.

        `fields_of` returns the fields of a collection's objects in OPA, `count_of` their number.
        `secrets` are the collections of Secrets; data in `lacks` is always missing.
        """
        self._lacks = dict(lacks or {})
        self._root, self._path = root, path
        self._targets, self._secrets = targets, secrets
        self._fields_of, self._count_of = fields_of, count_of
        self._reads: Reads | None = None
        self._edition = 0
        self._basis: Basis | None = None
        self._too_large: set[str] = set()
        self._batches: deque[tuple[int, Mapping[str, Collection[ObjectKey]]]] = deque()
        # Inputs as OPA has them, oldest first.
        self._cached: dict[tuple[str, ObjectKey], bytes] = {}
        self._cached_bytes = 0
        self._forgotten = 0
        # Collections that are being written without a batch number.
        self._written_whole: list[str] = []
        # Weak references, or old data would be kept alive for inputs that nobody uses.
        self._inputs: deque[tuple[weakref.ref[RecordedInput], int]] = deque()
        self._bytes = 0

    def policies_changing(self) -> None:
        """Record no inputs until it is known which policies are in force."""
        self._reads, self._basis = None, None
        self._evict(list(self._cached))  # OPA may hold more fields of each from now on
        self._edition += 1

    def policies_changed(self, reads: Reads) -> None:
        """Record the inputs of decisions that read this."""
        self.policies_changing()
        self._reads = reads
        self._too_large.clear()

    def batch(self, changes: Mapping[str, Collection[ObjectKey]], number: int) -> None:
        """Record that a batch is being sent to OPA, and what it changes, by collection."""
        self._batches.append((number, changes))
        self._evict((name, key) for name, keys in changes.items() for key in keys)
        if len(self._batches) > _BATCHES:
            self._forgotten = self._batches.popleft()[0]

    @contextmanager
    def writing_whole(self, name: str) -> Generator[None]:
        """Mark a collection as being written as a whole, without a batch number."""
        self._written_whole.append(name)
        self._evict_collection(name)
        try:
            yield
        finally:
            self._written_whole.remove(name)
            self._evict_collection(name)

    def new_request(
        self, collection: str, keys: Sequence[ObjectKey], *, full: bool = False
    ) -> InputRequest | None:
        """Return the inputs to request with decisions on these objects, None: none."""
        if self._reads is None or collection in self._secrets():
            return None
        names, lacks = self._collections_to_request(self._reads)
        basis, inputs = None, dict[int, bytes]()
        if not (full or self._written_whole):
            basis = self._unchanged_basis(self._basis)
            found = ((n, self._cached.get((collection, key))) for n, key in enumerate(keys))
            inputs = {n: body for n, body in found if body is not None}
        return InputRequest(
            collection, keys, () if basis else names, lacks, basis, inputs, self._edition
        )

    def read_answer(
        self,
        request: InputRequest,
        fence: Iterable[str],
        data: Mapping[str, msgspec.Raw],
        inputs: Mapping[int, msgspec.Raw],
    ) -> dict[int, RecordedInput]:
        """Return the inputs of an answer by the number of the object; none if they are uncertain.

        Raises Outdated if only another query can tell.
        """
        reads, number = self._reads, max(map(int, fence), default=0)
        if request.edition != self._edition or reads is None:
            return {}
        # Inputs that were written meanwhile are not known any more.
        for n in request.inputs:
            if self._cached.get((request.collection, request.keys[n])) is not request.inputs[n]:
                raise Outdated
        if request.basis is not None and not self._is_basis_of(request.basis, number):
            raise Outdated
        basis = request.basis or self._new_basis(request, reads, number, data)
        received = {n: bytes(body) for n, body in inputs.items() if n in request.missing_inputs}
        self._cache(request, received, number)
        return {
            n: self._record_input(body, basis) for n, body in {**request.inputs, **received}.items()
        }

    def _new_basis(
        self, request: InputRequest, reads: Reads, number: int, received: Mapping[str, msgspec.Raw]
    ) -> Basis:
        lacks = dict(request.lacks)
        collections = {}
        for name in request.names:
            body = bytes(received.get(name, b"{}"))
            if len(body) > MOST_BYTES:
                self._too_large.add(name)
                lacks[name] = _TOO_LARGE
            else:
                collections[name] = body
        inputs = {str(gvr): self._fields_of(name, reads) for name, gvr in self._targets().items()}
        kept = {name: self._fields_of(name, reads) for name in collections}
        found = Basis(
            self._root, self._path, reads.input.paths, inputs, collections, kept, lacks, number
        )
        self._basis = None if self._written_whole else found
        while self._batches and self._batches[0][0] <= number:
            self._batches.popleft()
        return found

    def _cache(self, request: InputRequest, received: Mapping[int, bytes], number: int) -> None:
        """Cache inputs as of a batch, except those that a later batch changes."""
        if self._written_whole:
            return
        later = [changes.get(request.collection, ()) for n, changes in self._batches if n > number]
        for n, body in received.items():
            ident = request.collection, request.keys[n]
            if not any(request.keys[n] in keys for keys in later):
                self._evict([ident])
                self._cached[ident] = body
                self._cached_bytes += len(body) + _OVERHEAD
        while self._cached_bytes > _INPUT_BYTES:
            self._evict([next(iter(self._cached))])

    def _evict(self, idents: Iterable[tuple[str, ObjectKey]]) -> None:
        for ident in idents:
            if (body := self._cached.pop(ident, None)) is not None:
                self._cached_bytes -= len(body) + _OVERHEAD

    def _evict_collection(self, name: str) -> None:
        self._basis = None
        self._evict([ident for ident in self._cached if ident[0] == name])

    def _record_input(self, body: bytes, basis: Basis) -> RecordedInput:
        """Return an input with its data; drop the oldest inputs beyond the limit."""
        found, size = RecordedInput(body, basis), len(body) + _OVERHEAD
        self._inputs.append((weakref.ref(found), size))
        self._bytes += size
        while self._bytes > _INPUT_BYTES:
            ref, size = self._inputs.popleft()
            self._bytes -= size
            if (oldest := ref()) is not None:
                oldest.input = None
        return found

    def _unchanged_basis(self, basis: Basis | None) -> Basis | None:
        """Return the data if nothing that was sent since changes it."""
        last = self._batches[-1][0] if self._batches else 0
        return basis if basis is not None and self._is_basis_of(basis, last) else None

    def _is_basis_of(self, basis: Basis, number: int) -> bool:
        """Return whether OPA held this data when `number` was its last batch."""
        if basis is not self._basis or self._forgotten > basis.number:
            return False
        return not any(
            basis.number < n <= number and changes.keys() & basis.collections.keys()
            for n, changes in self._batches
        )

    def _collections_to_request(self, reads: Reads) -> tuple[tuple[str, ...], dict[str, str]]:
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
            elif self._count_of(name) > MOST_OBJECTS or name in self._too_large:
                lacks[name] = _TOO_LARGE
            else:
                names.append(name)
        return tuple(names), lacks


def is_decision(path: Path, decision: str) -> bool:
    """Return whether a path below `data` is that of the decision, which policies define."""
    return path == tuple(decision.split("/"))


_IMPURE = "what it answers changes without any data"
_TOO_LARGE = f"it has more than {MOST_OBJECTS:,} objects, or {MOST_BYTES >> 20} MiB"
