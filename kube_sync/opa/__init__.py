"""The only package that speaks OPA."""

from __future__ import annotations
