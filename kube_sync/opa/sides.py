"""Which objects a canary decides on: a share of all, drawn by their names, and whole namespaces.

Invariant: the side of an object follows from its name and the canary's terms alone, so it is the
same in every process and after each restart; an object in a share is in each larger share. The
kind does not count: objects of one name (a workload and its Service) are on one side, and neither
a review's object nor a list's states its kind reliably. Pure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from hashlib import sha256
from typing import Final

from kube_sync.objects import ObjectKey

NAMESPACES: Final = 250  # OPA iterates over them for each object
DIGITS: Final = 12  # hexadecimal digits of the digest: shares differ by at least 4e-15
_SHARE = re.compile(r"(0(\.[0-9]{1,12})?|1(\.0{1,12})?)")
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")  # RFC 1123, "label"
_ALL = "g"  # above every digest: they are compared as text


@dataclass(frozen=True, slots=True)
class Side:
    """The objects on which the canary decides for the policy `stands_for`, `<namespace>/<name>`."""

    stands_for: str
    share: str = "0"  # of all objects, as text: from 0 to 1
    namespaces: frozenset[str] = frozenset()  # all objects in them

    def has(self, key: ObjectKey) -> bool:
        """Return whether the canary decides on an object; one without a name is in no share."""
        if key.namespace in self.namespaces:
            return True
        if not key.name:
            return False
        drawn = sha256(f"{self.stands_for}/{key.namespace}/{key.name}".encode()).hexdigest()
        return drawn[:DIGITS] < below(self.share)


def side_of(stands_for: str, share: str | None, namespaces: str | None) -> Side:
    """Parse a side; the namespaces are separated by commas. Raises ValueError."""
    found = frozenset(name.strip() for name in (namespaces or "").split(",")) - {""}
    if len(found) > NAMESPACES:
        msg = f"{len(found)} namespaces are named, and {NAMESPACES} may be: give a share instead"
        raise ValueError(msg)
    if bad := [name for name in found if _NAMESPACE.fullmatch(name) is None]:
        msg = f"{min(bad)!r:.80} is no name of a namespace"
        raise ValueError(msg)
    if share is None and not found:
        msg = "neither a share of the objects nor any namespace is given"
        raise ValueError(msg)
    share = "0" if share is None else share.strip()
    if _SHARE.fullmatch(share) is None:
        msg = f"{share!r:.80} is no share: a number from 0 to 1, as in 0.1"
        raise ValueError(msg)
    return Side(stands_for, share, found)


def description(side: Side) -> str:
    """Return a description of a side, for people."""
    share = f"{(Decimal(side.share) * 100).normalize():f} % of all objects"
    whole = f"all in {', '.join(sorted(side.namespaces))}"
    if not side.namespaces:
        return share
    return f"{share} and {whole}" if Decimal(side.share) else whole


@lru_cache(maxsize=64)
def below(share: str) -> str:
    """Return the text just above the digests of a share."""
    part = Decimal(share)
    return _ALL if part == 1 else f"{int(part * 16**DIGITS):0{DIGITS}x}"
