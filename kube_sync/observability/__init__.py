"""What a person or a machine can see of a running process: logs, metrics, readiness."""

from __future__ import annotations
