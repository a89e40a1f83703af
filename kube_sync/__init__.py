"""kube-sync: the sidecar pair that makes Open Policy Agent a fleet's placement brain."""

from __future__ import annotations

__version__ = "0.1.0"
