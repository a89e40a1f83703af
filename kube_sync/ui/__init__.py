"""The web page: decisions, their reasons, and the state of replication. Read only."""

from __future__ import annotations
