"""SchedulingPolicy around its Rego: its default objects, its conditions, and `check`."""

from __future__ import annotations
