"""MetadataPolicy around its Rego: what would happen to an object, before it does."""

from __future__ import annotations
