"""The brakes: what of a decision may be carried out now, what waits, and what would release it.

Pure: no I/O and no clock. `now` is Unix seconds that never go back within a process: the wall
clock at its start plus what a monotonic clock has counted since. Read once, the wall clock lets
times be compared with those that an earlier process wrote on the objects; never read again, its
jumps mean nothing.
"""

from __future__ import annotations

from kube_sync.guard.assessment import Assessment, Fleet
from kube_sync.guard.guard import Guard
from kube_sync.guard.history import HISTORY, read_history
from kube_sync.guard.inventory import Inventory
from kube_sync.guard.limits import Limits, Tightening, limits_of, parse_tightening, stricter
from kube_sync.guard.moves import Change, compare
from kube_sync.guard.placements import Placements
from kube_sync.guard.verdicts import Allowed, PendingChange, Withheld

__all__ = [
    "HISTORY",
    "Allowed",
    "Assessment",
    "Change",
    "Fleet",
    "Guard",
    "Inventory",
    "Limits",
    "PendingChange",
    "Placements",
    "Tightening",
    "Withheld",
    "compare",
    "limits_of",
    "parse_tightening",
    "read_history",
    "stricter",
]
