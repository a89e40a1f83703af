"""The guard: which changes may be written now, which are held, and what releases each of these.

Pure: no I/O and no clock. `now` is Unix seconds that never decrease within a process: the wall
clock at process start plus monotonic time since. So times compare with those that an earlier
process wrote on the objects, and a jump of the wall clock has no effect.
"""

from __future__ import annotations

from kube_sync.guard.additions import ADDITION, Addition, read_addition
from kube_sync.guard.assessment import Assessment, Fleet
from kube_sync.guard.guard import Guard
from kube_sync.guard.history import HISTORY, read_history
from kube_sync.guard.inventory import Inventory
from kube_sync.guard.limits import Limits, Tightening, limits_of, parse_tightening, stricter
from kube_sync.guard.moves import Change, Comparer, compare, placement_digest
from kube_sync.guard.placements import Placements
from kube_sync.guard.verdicts import Allowed, PendingChange, Withheld

__all__ = [
    "ADDITION",
    "HISTORY",
    "Addition",
    "Allowed",
    "Assessment",
    "Change",
    "Comparer",
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
    "placement_digest",
    "read_addition",
    "read_history",
    "stricter",
]
