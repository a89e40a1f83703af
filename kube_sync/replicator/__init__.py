"""Kubernetes to OPA: what is mirrored, how it is written, and how a lost OPA is found."""

from __future__ import annotations
