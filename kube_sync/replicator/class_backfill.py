"""Classify objects by a digest of the fields that a decision reads, and backfill missing classes.

Invariant: two objects of one class, as passed to `input`, have equal projections to the paths,
numbers as they are spelt. The digest is that of the reference projection (`opa.analysis.paths`) in
both implementations. The fast one decodes only the fields it keeps; an object of another shape than
the paths suggest goes through the slow one.

The replicator keeps no bodies of objects that OPA held before the policies' reads were known. So
missing classes take another LIST, beside the Reflector's: it writes nothing and leaves the watch
alone. A Mirror's `learning` ends with the LIST, failed or not, since decisions wait for it; a LIST
that fails is repeated. A few objects are not worth a LIST: each becomes a class of its own.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Collection, Iterable
from decimal import Decimal
from types import GenericAlias
from typing import Any, Final, NoReturn

import msgspec
import structlog

from kube_sync.decisions.classes import Classify, may_share
from kube_sync.decisions.requested import requested_classifier
from kube_sync.errors import SyncError
from kube_sync.opa.analysis.paths import EACH, Key, Path, project
from kube_sync.opa.analysis.reads import Reads
from kube_sync.replicator.mirror import Mirror
from kube_sync.replicator.replica import Replica
from kube_sync.runtime.backoff import Backoff

log: structlog.stdlib.BoundLogger = structlog.get_logger()

FEW = 200  # fewer objects than this are evaluated one by one rather than listed
_LIST_SECONDS = 60.0

_SIZE: Final = 16  # bytes

# Numbers keep their digits: OPA does not round, so it distinguishes what floats do not.
_documents = msgspec.json.Decoder(float_hook=Decimal)
_encode = msgspec.json.Encoder(order="sorted", decimal_format="number").encode


def classifier(paths: Iterable[Path]) -> Classify | None:
    """Return a function from an object's JSON to its class, None if all of it is read.

    The function raises msgspec.DecodeError and RecursionError.
    """
    kept = tuple(paths)
    if () in kept:
        return None  # each object would be a class of its own, at the highest cost

    return requested_classifier(_classifier(kept), kept)


def _classifier(kept: tuple[Path, ...]) -> Classify:
    def slow(body: bytes) -> bytes:
        return _digest(project(_documents.decode(body), kept))

    try:
        quick = msgspec.json.Decoder(_shape(kept), float_hook=Decimal)
    except _NoShape:
        return slow

    def classify(body: bytes) -> bytes:
        try:
            return _digest(quick.decode(body))
        except msgspec.ValidationError:
            return slow(body)

    return classify


class _NoShape(Exception):
    """No msgspec type can express these paths."""


def _digest(value: object) -> bytes:
    return hashlib.blake2b(_encode(value), digest_size=_SIZE).digest()


def _shape(paths: Collection[Path]) -> Any:  # noqa: ANN401 - a type, made here
    """Return a type that decodes only what lies at `paths`, and encodes to the same."""
    if () in paths:
        return Any
    below: dict[Key, list[Path]] = {}
    for key, *rest in paths:
        below.setdefault(key, []).append(tuple(rest))
    if EACH not in below:
        return _members({str(key): _shape(rest) for key, rest in below.items()})
    if len(below) > 1:
        raise _NoShape
    return GenericAlias(list, (_shape(below[EACH]),))


def _members(shapes: dict[str, Any]) -> Any:  # noqa: ANN401 - a type, made here
    names = {f"f{index}": key for index, key in enumerate(shapes)}
    fields = [(name, shapes[key] | msgspec.UnsetType, msgspec.UNSET) for name, key in names.items()]
    try:
        return msgspec.defstruct("Kept", fields, rename=names)
    except ValueError as error:  # a name with a quote in it
        raise _NoShape from error


Widen = Callable[[Reads], Reads]
Pupils = Callable[[], Iterable[Replica]]


class ClassBackfill:
    """Keeps the classes of the Mirrors' objects complete, in one epoch."""

    def __init__(self, *, few: int = FEW, backoff: Backoff | None = None) -> None:
        self._few = few
        self._backoff = backoff or Backoff(longest=5.0)
        self._reads: Reads | None = None
        self._widened: dict[str, Widen] = {}  # for evaluations beside the policies in force
        self._paths: object = None
        self._classify: Classify | None = None
        self._wake = asyncio.Event()

    def change(self, reads: Reads | None) -> None:
        """Classify by the input fields in `reads`, None: not at all."""
        self._reads = reads
        self._change()

    def widen(self, name: str, widen: Widen | None) -> None:
        """Classify also by the fields that `widen` adds for evaluation `name`; None removes it."""
        self._widened.pop(name, None)
        if widen is not None:
            self._widened[name] = widen
        self._change()

    def _change(self) -> None:
        reads = self._reads
        if reads is not None:
            for widen in self._widened.values():
                reads = widen(reads)
        paths = reads.input.paths if reads is not None and may_share(reads) else None
        if paths != self._paths:
            self._paths = paths
            self._classify = None if paths is None else classifier(paths)

    def classify(self, mirror: Mirror, *, target: bool) -> None:
        """Classify the objects of a Mirror if it is a target of decisions."""
        mirror.classify(self._classify if target else None)
        if mirror.unknown >= self._few:
            mirror.learning = True
            self._wake.set()

    async def run(self, pupils: Pupils, on_done: Callable[[], None]) -> NoReturn:
        """List the collections that lack classes, one after the other, until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            failed = False
            for pupil in [*pupils()]:
                if pupil.mirror.unknown >= self._few:
                    failed |= not await self._list_classes(pupil)
                pupil.mirror.learning = False
                on_done()
            if failed:
                await self._backoff.wait()
                self._wake.set()
            else:
                self._backoff.progressed()

    async def _list_classes(self, pupil: Replica) -> bool:
        """List a collection once; return whether that succeeded."""
        try:
            async with asyncio.timeout(_LIST_SECONDS):
                await pupil.feed.list_classes(pupil.mirror)
        except (SyncError, TimeoutError) as error:
            log.warning("classes_not_learnt", resource=pupil.mirror.name, error=str(error))
            return False
        members = pupil.mirror.members
        log.info(
            "classes_learnt",
            resource=pupil.mirror.name,
            objects=members.known,
            classes=members.classes,
        )
        return True
