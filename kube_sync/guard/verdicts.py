"""Verdicts of the guard on a change: allowed or withheld, and the state of a pending one."""

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
    "limits",  # the limits that policies set are not known
    "not_before",
    "dwell",
    "cooldown",
    "budget",
]


@dataclass(frozen=True, slots=True)
class Allowed:
    """The change may be written, with `history` as the annotation `kube-sync.io/moves`.

    `warning`: what is wrong with the placement nevertheless, "" if nothing.
    """

    history: str
    warning: str = ""


@dataclass(frozen=True, slots=True)
class Withheld:
    """The change is held for now.

    `until`: when to retry, in Unix seconds; None: time alone releases nothing, retry when the
    assessment, the object or its decision changes. `approve`: the name that an operator's approval
    has to give. `namespace`: the hold is on the moves of that namespace alone.
    """

    kind: Kind
    reason: str
    release: str
    until: float | None = None
    approve: str | None = None
    namespace: str | None = None


@dataclass(frozen=True, slots=True)
class PendingChange:
    """A change that is held, by what, and since when (Unix seconds)."""

    held: Withheld
    since: float
