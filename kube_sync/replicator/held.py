"""What OPA holds of one collection: the resourceVersion of each object, and a digest of its body.

One value of bytes for each object, the digest before the version: with half a million objects two
tables of their own take 60 MB more. It keeps no bodies.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, KeysView

from kube_sync.objects import ObjectKey

_SIZE = 16  # bytes of a digest


class Held:
    """The objects of one collection in OPA."""

    def __init__(self, *, digested: bool = False) -> None:
        """Keep digests of the bodies too if `digested`."""
        self._digested = digested
        self._size = _SIZE if digested else 0
        self._states: dict[ObjectKey, bytes] = {}

    def __contains__(self, key: object) -> bool:
        return key in self._states

    def __iter__(self) -> Iterator[ObjectKey]:
        return iter(self._states)

    def __len__(self) -> int:
        return len(self._states)

    def keys(self) -> KeysView[ObjectKey]:
        """Return a view of all objects."""
        return self._states.keys()

    def version(self, key: ObjectKey) -> str | None:
        """Return the resourceVersion of an object, None if OPA does not hold it."""
        state = self._states.get(key)
        return None if state is None else state[self._size :].decode()

    def has_version(self, key: ObjectKey, version: str) -> bool:
        """Return whether OPA holds this version of an object."""
        state = self._states.get(key)
        return state is not None and state[self._size :] == version.encode()

    def has_body(self, key: ObjectKey, body: bytes) -> bool:
        """Return whether OPA is known to hold this body of an object: only if it is `digested`."""
        state = self._states.get(key) if self._digested else None
        return state is not None and state[: self._size] == _digest(body)

    def put(self, key: ObjectKey, version: str, body: bytes) -> None:
        """Record that OPA holds an object in this state."""
        self._states[key] = (_digest(body) if self._digested else b"") + version.encode()

    def renew(self, key: ObjectKey, version: str) -> None:
        """Record that the body of an object that OPA holds is that of a newer version too."""
        self._states[key] = self._states[key][: self._size] + version.encode()

    def remove(self, key: ObjectKey) -> bool:
        """Record that OPA does not hold an object; return whether it did."""
        return self._states.pop(key, None) is not None


def _digest(body: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=_SIZE).digest()
