"""Seal the note of requested values (`requested`), which proves that kube-sync wrote it.

A note is an annotation, so anybody who may write the object can write one. So it is sealed:
HMAC-SHA-256, with a key that replicator, remediator and webhook share, over the object's place, the
requests, and the present values of the placement and of the noted annotations. Invariant: with a
key, a note without a valid seal, or with a seal for other values, does not count.

The seal is a member of the note, with a key that nobody can request, so that readers of notes skip
it. It does not cover the uid: an object has none when admission first sees it. With `generateName`
it has no name either, and the seal covers that prefix.
"""

from __future__ import annotations

import base64
import hmac
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec
import structlog

from kube_sync.decisions.decision import PLACEMENT, REQUESTED, compact
from kube_sync.decisions.requested import requests, with_annotations
from kube_sync.errors import NO_JSON, Misconfigured
from kube_sync.kube.collection import Item
from kube_sync.objects import GroupVersionResource
from kube_sync.runtime.tokenfile import TokenFile

log: structlog.stdlib.BoundLogger = structlog.get_logger()

SEAL: Final = REQUESTED  # the seal's key in the note
_MARK: Final = REQUESTED.encode()
_SHORTEST: Final = 32  # characters of a key
_CHECK_SECONDS: Final = 1.0  # between two checks of the file: notes are read by the thousand


@dataclass(frozen=True, slots=True)
class Place:
    """The identity of an object, as far as known at its creation."""

    group: str
    resource: str
    namespace: str
    name: str  # "" for a create with generateName
    generate_name: str = ""


# Not kube.meta: no other invalid field may prevent the check of a note.
class _Metadata(msgspec.Struct, rename="camel"):
    annotations: dict[str, str] | None = None
    generate_name: str = ""


class _Object(msgspec.Struct):
    metadata: _Metadata


_objects = msgspec.json.Decoder(_Object)
_notes = msgspec.json.Decoder(dict[str, str | None])


class Seals:
    """Creates and verifies seals; without a key file, every note counts."""

    def __init__(self, path: str | None = None) -> None:
        """Read the keys. Raises Misconfigured: no file, no key in it, or one that is too short."""
        self._file = TokenFile(path)
        self._next_check = time.monotonic() + _CHECK_SECONDS
        self._keys = self._read()
        self._reported: set[GroupVersionResource] = set()

    @property
    def is_required(self) -> bool:
        """Whether notes must be sealed."""
        return bool(self._keys)

    def has_valid_seal(self, annotations: Mapping[str, str], place: Place) -> bool:
        """Return whether the note among these annotations has a valid seal."""
        if (text := annotations.get(REQUESTED)) is None:
            return False
        try:
            sealed = _notes.decode(text).get(SEAL)
        except NO_JSON:
            return False
        if sealed is None or not sealed.isascii():
            return False
        noted = requests(annotations)
        content = noted, covered_values(noted, annotations)
        places = [place]
        if place.generate_name and place.name.startswith(place.generate_name):
            places.append(_generated(place))
        expected = [_seal(key, found, *content) for key in self._current_keys() for found in places]
        return any(hmac.compare_digest(sealed, one) for one in expected)

    def sealed_note(
        self,
        noted: Mapping[str, str | None],
        stored: Mapping[str, str],
        place: Place,
        found: str | None = None,
    ) -> str:
        """Return the note to write beside the annotations that are to be `stored`.

        It is the text that was `found`, if that has the same requests and a valid seal.
        """
        requested = {key: value for key, value in noted.items() if key != SEAL}
        if not self.is_required:
            return compact(requested)
        annotations = {**stored, REQUESTED: found} if found is not None else {}
        if (
            found is not None
            and requests(annotations) == requested
            and self.has_valid_seal(annotations, place)
        ):
            return found
        named = place if place.name else _generated(place)
        sealed = _seal(self._current_keys()[0], named, requested, covered_values(requested, stored))
        return compact({**requested, SEAL: sealed})

    def without_unsealed_note(self, gvr: GroupVersionResource, item: Item) -> bytes:
        """Return the JSON of an object, without its note unless the seal is valid."""
        if not self.is_required or _MARK not in item.body:
            return item.body
        try:
            metadata = _objects.decode(item.body).metadata
        except NO_JSON:
            return item.body  # its reader reports the error
        annotations, key = metadata.annotations or {}, item.key
        place = Place(gvr.group, gvr.resource, key.namespace, key.name, metadata.generate_name)
        if REQUESTED not in annotations or self.has_valid_seal(annotations, place):
            return item.body
        if gvr not in self._reported:  # once: after an upgrade there may be many
            self._reported.add(gvr)
            log.warning("note_not_sealed", resource=str(gvr), key=str(key))
        return bytes(with_annotations(item.body, without_note(annotations)))

    def _current_keys(self) -> tuple[bytes, ...]:
        if (now := time.monotonic()) < self._next_check:
            return self._keys
        self._next_check = now + _CHECK_SECONDS
        try:
            self._keys = self._read()
        except Misconfigured as error:  # former seals stay valid
            log.warning("keys_not_read", reason=str(error))
        return self._keys

    def _read(self) -> tuple[bytes, ...]:
        found = self._file.all()
        if any(len(key) < _SHORTEST for key in found):
            msg = f"placement.key_file: a key has less than {_SHORTEST} characters"
            raise Misconfigured(msg)
        return tuple(key.encode() for key in found)


def covered_values(noted: Iterable[str], annotations: Mapping[str, str]) -> dict[str, str | None]:
    """Return the values that a seal covers besides the requests: placement and noted keys."""
    return {key: annotations.get(key) for key in sorted({*noted, PLACEMENT})}


def without_note(annotations: Mapping[str, str]) -> dict[str, str]:
    """Return all annotations but the note."""
    return {key: value for key, value in annotations.items() if key != REQUESTED}


def _generated(place: Place) -> Place:
    return Place(place.group, place.resource, place.namespace, "", place.generate_name)


def _seal(
    key: bytes,
    place: Place,
    noted: Mapping[str, str | None],
    stored: Mapping[str, str | None],
) -> str:
    prefix = "" if place.name else place.generate_name
    identity = (place.group, place.resource, place.namespace, place.name, prefix)
    message = msgspec.json.encode((SEAL, identity, noted, stored), order="sorted")
    digest = hmac.digest(key, message, "sha256")
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")
