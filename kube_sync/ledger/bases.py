"""Encodes the OPA data behind decisions as texts: one per state, with parts that states share.

Invariant: decoding returns the data of OPA byte by byte; equal data has one digest. A state
names parts of a few objects each, so that one changed object costs one part and the list of
parts. Pure.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, Literal

import msgspec

from kube_sync.decisions.input_reader import Basis, Fields
from kube_sync.ledger.entries import Text, text, text_of

_PARTS: Final = 32  # of one collection

_members = msgspec.json.Decoder(dict[str, msgspec.Raw])


class State(msgspec.Struct, frozen=True):
    """The content of a row's `data` text; the fields are those of a Basis.

    `collections` are digests of parts: lists of keys in the collection, and the objects there.
    """

    root: str
    path: str
    reads: tuple[tuple[str | None, ...], ...]
    inputs: Mapping[str, Fields]
    collections: Mapping[str, tuple[str, ...]]
    kept: Mapping[str, Fields]
    lacks: Mapping[str, str]
    v: Literal[1] = 1


# Not kube.meta: only the name distinguishes an object from a map of objects by name.
class _Metadata(msgspec.Struct):
    name: str


class _Object(msgspec.Struct):
    metadata: _Metadata


_Part = list[tuple[tuple[str, ...], msgspec.Raw]]
_states = msgspec.json.Decoder(State)
_objects = msgspec.json.Decoder(_Object)
_parts = msgspec.json.Decoder(_Part)


def text_of_basis(basis: Basis) -> Text:
    """Encode a state as a text with its parts. Raises msgspec.DecodeError."""
    parts = {name: _divided(body) for name, body in basis.collections.items()}
    state = State(
        basis.root,
        basis.path,
        basis.reads,
        basis.inputs,
        {name: tuple(part.digest for part in found) for name, found in parts.items()},
        basis.kept,
        basis.lacks,
    )
    whole = text_of(state)
    return msgspec.structs.replace(
        whole, parts=tuple(part for found in parts.values() for part in found)
    )


def state_of(body: bytes) -> State:
    """Decode the text of a state. Raises msgspec.DecodeError."""
    return _states.decode(body)


def parts_of(body: bytes) -> list[str]:
    """Return the digests of all parts that a state names, none if the text is no state."""
    try:
        return [part for parts in state_of(body).collections.values() for part in parts]
    except msgspec.DecodeError:
        return []


def collection_of(parts: Iterable[bytes]) -> bytes:
    """Join parts to a collection as OPA holds it. Raises msgspec.DecodeError."""
    found: dict[str, msgspec.Raw] = {}
    inside: dict[str, dict[str, msgspec.Raw]] = {}
    for part in parts:
        for (top, *below), body in _parts.decode(part):
            if below:
                inside.setdefault(top, {})[below[0]] = body
            else:
                found[top] = body
    return msgspec.json.encode({**found, **inside})


def _divided(body: bytes) -> tuple[Text, ...]:
    parts: dict[int, _Part] = {}
    for where, found in sorted(_spread(body), key=lambda one: one[0]):
        number = zlib.crc32("/".join(where).encode()) % _PARTS
        parts.setdefault(number, []).append((where, found))
    return tuple(text(msgspec.json.encode(part)) for _, part in sorted(parts.items()))


def _spread(body: bytes) -> Iterator[tuple[tuple[str, ...], msgspec.Raw]]:
    """Yield each object of a collection with the keys of its place."""
    for top, found in _members.decode(body).items():
        inside = {} if _is_object(found) else _inside(found)
        if not inside:
            yield (top,), found
        for name, one in inside.items():
            yield (top, name), one


def _is_object(body: msgspec.Raw) -> bool:
    try:
        _objects.decode(body)
    except msgspec.ValidationError:
        return False
    return True


def _inside(body: msgspec.Raw) -> dict[str, msgspec.Raw]:
    try:
        return _members.decode(body)
    except msgspec.ValidationError:
        return {}
