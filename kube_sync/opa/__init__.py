"""The OPA client and everything else that talks to OPA; no other package does."""

from __future__ import annotations
