"""Replicates Kubernetes collections into OPA's data, and reloads an OPA that lost it."""

from __future__ import annotations
