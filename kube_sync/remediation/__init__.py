"""Decisions to PATCHes: what a decision wants, where an object does not have it yet."""

from __future__ import annotations
