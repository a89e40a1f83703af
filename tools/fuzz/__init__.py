"""Odd input for every parser of the project, made of good input by seeded mutations."""

from __future__ import annotations
