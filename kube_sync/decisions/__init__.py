"""Data and policy to decisions, and to the stream that tells which of them changed."""

from __future__ import annotations
