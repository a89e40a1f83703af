"""`kube-sync replay`: recorded decisions made again, by the same policies or by others."""

from __future__ import annotations
