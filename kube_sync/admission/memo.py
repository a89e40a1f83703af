"""What was decided a moment ago, so that the API server's second question needs no second decision.

An object that may still be changed is asked about at `/admit/…`, and what became of it at
`/validate/…`, milliseconds later and as a rule unchanged but for what was patched. Keeps true: only
what is equal in all that the decision looks at is known again (who asks, where, and the spec with
the patch in it), for a few seconds, and only after a decision that was really made; whatever
another webhook changed meanwhile is asked about anew. No more than a bounded number is remembered,
as digests.
"""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from kube_sync.admission.review import Review
from kube_sync.admission.ruling import Operation

_SECONDS = 5.0  # longer than the API server takes from one question to the other
_MOST = 10_000
# Made by the API server of the class's name, between the two questions.
_DERIVED = ("priority", "preemptionPolicy")


class _Object(msgspec.Struct):
    spec: dict[str, Any]


class _Request(msgspec.Struct, rename="camel"):
    object: _Object
    user_info: msgspec.Raw = msgspec.Raw(b"null")
    kind: msgspec.Raw = msgspec.Raw(b"null")


class Memo:
    """The decisions of the last seconds that admitted an object."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until: OrderedDict[bytes, float] = OrderedDict()

    def note(self, review: Review, patch: Iterable[Operation]) -> None:
        """Remember that an object may be created, as it is with this patch."""
        if (digest := _digest(review, patch)) is not None:
            self._until[digest] = self._clock() + _SECONDS
            self._until.move_to_end(digest)
            if len(self._until) > _MOST:
                self._until.popitem(last=False)

    def knows(self, review: Review) -> bool:
        """Tell whether just this was decided a moment ago, and admitted."""
        digest = _digest(review, ())
        return digest is not None and self._until.get(digest, 0.0) > self._clock()


def _digest(review: Review, patch: Iterable[Operation]) -> bytes | None:
    """Return what stands for the question, None where it cannot be told."""
    if review.operation != "CREATE" or review.subresource:
        return None
    try:
        request = msgspec.json.decode(review.request, type=_Request)
        spec = request.object.spec
        for operation in patch:
            _apply(spec, operation)
    except (msgspec.DecodeError, RecursionError, LookupError, TypeError, ValueError):
        return None
    rest = {name: value for name, value in spec.items() if name not in _DERIVED}
    asked = (review.namespace, request.user_info, request.kind, rest)
    return hashlib.sha256(msgspec.json.encode(asked, order="sorted")).digest()


def _apply(spec: dict[str, Any], operation: Operation) -> None:
    """Apply one operation below /spec (RFC 6902, section 4). Raises LookupError and its like."""
    empty, root, *parents, leaf = operation.path.split("/")
    if (empty, root) != ("", "spec") or operation.op not in ("add", "remove", "replace"):
        raise ValueError(operation.path)
    below: Any = spec
    for part in parents:
        below = below[int(part)] if isinstance(below, list) else below[_plain(part)]
    if operation.op == "remove":
        del below[int(leaf) if isinstance(below, list) else _plain(leaf)]
        return
    if operation.value is msgspec.UNSET:
        raise ValueError(operation.path)
    value = msgspec.json.decode(operation.value)
    if not isinstance(below, list):
        below[_plain(leaf)] = value
    elif operation.op == "replace":
        below[int(leaf)] = value
    else:
        below.insert(len(below) if leaf == "-" else int(leaf), value)


def _plain(part: str) -> str:
    return part.replace("~1", "/").replace("~0", "~")
