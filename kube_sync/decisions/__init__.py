"""Evaluates policies over the data in OPA, and streams the decisions that changed."""

from __future__ import annotations
