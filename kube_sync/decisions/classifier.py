"""Classifiers: functions from an object to a digest of the fields that a decision reads.

Invariant: two objects of one class, as passed to `input`, have equal projections to the paths,
numbers as they are spelt. The digest is that of the reference projection (`opa.analysis.paths`) in
both implementations. The fast one decodes only the fields it keeps; an object of another shape than
the paths suggest goes through the slow one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable
from decimal import Decimal
from types import GenericAlias
from typing import Any, Final

import msgspec

from kube_sync.decisions.classes import Classify
from kube_sync.decisions.requested import requested_classifier
from kube_sync.opa.analysis.paths import EACH, Key, Path, project

_SIZE: Final = 16  # bytes

# Numbers keep their digits: OPA does not round, so it distinguishes what floats do not.
_documents = msgspec.json.Decoder(float_hook=Decimal)
_encode = msgspec.json.Encoder(order="sorted", decimal_format="number").encode


def classifier(paths: Iterable[Path]) -> Classify | None:
    """Return a function from a stored object's JSON to its class, None if all of it is read.

    The function puts requested values back, as `input` has them, and raises msgspec.DecodeError and
    RecursionError.
    """
    kept = tuple(paths)
    found = input_classifier(kept)
    return None if found is None else requested_classifier(found, kept)


def input_classifier(paths: Iterable[Path]) -> Classify | None:
    """Return a function from the JSON of an input to its class, None if all of it is read.

    The function raises msgspec.DecodeError and RecursionError.
    """
    kept = tuple(paths)
    if () in kept:
        return None  # each object would be a class of its own, at the highest cost

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
