"""Writes a topology's results to the API server: statuses, conditions on targets, a picture."""

from __future__ import annotations
