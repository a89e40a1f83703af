"""The only package that speaks the Kubernetes API."""

from __future__ import annotations
