"""The memory of decisions: what was decided, what was written, by whom and why; hash-chained."""

from __future__ import annotations
