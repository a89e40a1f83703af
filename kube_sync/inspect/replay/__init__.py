"""`kube-sync replay`: evaluates recorded decisions again, by the same or other policies."""

from __future__ import annotations
