"""A page to look at: what is decided where, why, and how replication fares. Read only."""

from __future__ import annotations
