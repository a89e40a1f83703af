"""Writes what a topology says to the API server: statuses, conditions on targets, a picture."""

from __future__ import annotations
