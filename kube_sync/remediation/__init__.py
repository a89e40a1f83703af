"""Remediation: writes the decision on each object to the API server as a PATCH."""

from __future__ import annotations
