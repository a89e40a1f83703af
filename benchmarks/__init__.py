"""Ratios against a floor that is measured in the same run, on the same servers."""

from __future__ import annotations
