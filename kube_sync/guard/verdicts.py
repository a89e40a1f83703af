"""What the guard says of one change, and what it shows of those that wait."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal[
    "empty",  # it would empty the workload
    "nowhere",  # its placement has no cluster that the fleet has
    "oscillation",
    "unseen",  # not yet weighed together with all others
    "fleet",  # stale, or shrunk
    "mass",  # too many at once
    "limits",  # it is not known what policies limit
    "not_before",
    "dwell",
    "cooldown",
    "budget",
]


@dataclass(frozen=True, slots=True)
class Allowed:
    """Carry it out, with `history` as the value of the annotation `kube-sync.io/moves`.

    `warning`: what is wrong with the placement although it is carried out, "": nothing.
    """

    history: str
    warning: str = ""


@dataclass(frozen=True, slots=True)
class Withheld:
    """Leave the object as it is for now.

    `until` is when to ask again, in Unix seconds; None: time alone releases nothing, ask when the
    next assessment differs, or the object or its decision does. `approve` is the name that an
    operator's approval has to give. `namespace`: it holds the moves of that namespace alone.
    """

    kind: Kind
    reason: str
    release: str
    until: float | None = None
    approve: str | None = None
    namespace: str | None = None


@dataclass(frozen=True, slots=True)
class PendingChange:
    """A change that waits, for what, and since when (Unix seconds)."""

    held: Withheld
    since: float
