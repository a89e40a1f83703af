"""MetadataPolicy around its Rego: the `check` command, which shows its effect on objects."""

from __future__ import annotations
