"""The audit ledger: every decision and write, by whom and why, in a hash-chained SQLite file."""

from __future__ import annotations
