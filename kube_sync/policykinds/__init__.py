"""What policy kinds of ours have in common: their conditions, and objects in files to check."""

from __future__ import annotations
