"""Logs, metrics and readiness of a running process."""

from __future__ import annotations
