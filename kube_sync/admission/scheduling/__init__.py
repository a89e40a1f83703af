"""SchedulingPolicy around its Rego: the objects it begins with, its conditions, and `check`."""

from __future__ import annotations
