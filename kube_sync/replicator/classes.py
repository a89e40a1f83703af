"""The class of an object: a digest of what a decision reads of it.

Keeps true: two objects of one class, as they were asked for, have equal projections to the paths,
numbers as they are spelt; the digest is that of the reference projection
(`kube_sync.analysis.paths`), whichever way it was found. The quick way decodes only what is kept;
what has another shape than the paths suggest goes the other way.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable
from decimal import Decimal
from types import GenericAlias
from typing import Any, Final

import msgspec

from kube_sync.analysis.paths import EACH, Key, Path, project
from kube_sync.decisions.classes import Classify
from kube_sync.decisions.requested import classified

_SIZE: Final = 16  # bytes

# Numbers keep their digits: OPA does not round, so it may tell apart what floats do not.
_documents = msgspec.json.Decoder(float_hook=Decimal)
_encode = msgspec.json.Encoder(order="sorted", decimal_format="number").encode


def classifier(paths: Iterable[Path]) -> Classify | None:
    """Return what tells the class of an object's JSON, None where all of it is read.

    It raises msgspec.DecodeError and RecursionError.
    """
    kept = tuple(paths)
    if () in kept:
        return None  # each would be a class of its own, found at the highest price

    return classified(_classifier(kept), kept)


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
    """The paths name what no type can say."""


def _digest(value: object) -> bytes:
    return hashlib.blake2b(_encode(value), digest_size=_SIZE).digest()


def _shape(paths: Collection[Path]) -> Any:  # noqa: ANN401 - a type, made here
    """Return a type that decodes to what lies at `paths`, and encodes as that."""
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
