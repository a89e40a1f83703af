"""The record of an addition: the first step of a move that adds the new clusters first.

The annotation `kube-sync.io/addition` is a JSON object. The PATCH that adds the clusters writes it
too, so neither exists without the other, and a restart goes on from there. It ends with the PATCH
that takes the old clusters away, or when the decision and the placement agree again.

Everybody with write access to the object can write this annotation. So it never says what to write:
a cluster that it names can only be taken from the placement that the object has. A malformed
record, or one with a time in the future, counts as none: at worst, an owner keeps their own object
where it is, as is possible by writing the placement itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Final, Literal

import msgspec

from kube_sync.errors import NO_JSON

ADDITION: Final = "kube-sync.io/addition"

_CLOCKS_DIFFER_SECONDS: Final = 5
_LATEST: Final = 253_402_300_799  # the last second of the year 9999
_LONGEST: Final = 65_536  # characters: a fourth of the size limit of all annotations of an object

Step = Literal["added", "reverted", "kept"]
_sorted = msgspec.json.Encoder(order="sorted")


class Addition(msgspec.Struct, frozen=True, omit_defaults=True):
    """The state of a move: `step` since `at` (Unix seconds), on the way to the placement `to`.

    `added`: the clusters that were added, and are not healthy yet as far as known. `reverted`: they
    were taken back; `kept`: they were not healthy in time, and left. `to` is a digest of clusters
    (`moves.Change.after`), `policy` that of the policies that decided, `seen` one of the object's
    spec and of the clusters when an addition was taken back.
    """

    to: str
    at: Annotated[int, msgspec.Meta(ge=0, le=_LATEST)]
    added: tuple[str, ...] = ()
    step: Step = "added"
    policy: str = ""
    seen: str = ""


_additions = msgspec.json.Decoder(Addition)


def read_addition(annotations: Mapping[str, str], now: float) -> Addition | None:
    """Return the record on an object, None if it has none or a malformed one."""
    text = annotations.get(ADDITION)
    if text is None or len(text) > _LONGEST:
        return None
    try:
        found = _additions.decode(text)
    except NO_JSON:
        return None
    return None if found.at > now + _CLOCKS_DIFFER_SECONDS else found


def described(addition: Addition) -> str:
    """Describe the step of a move for people."""
    names, at = ", ".join(addition.added), datetime.fromtimestamp(addition.at, UTC)
    when = at.isoformat().replace("+00:00", "Z")
    if addition.step == "added":
        return f"added to {names} at {when}; the old clusters stay until it is healthy there"
    if addition.step == "reverted":
        return f"taken back at {when}: it was added to {names}, and was not healthy in time"
    return f"not healthy in time at {when}: it was added to {names}, and nothing is removed"


def write_addition(addition: Addition) -> str:
    """Return the annotation's value."""
    return _sorted.encode(addition).decode()
