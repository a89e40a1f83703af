"""kube-sync: replicates clusters into Open Policy Agent, and applies its placement decisions."""

from __future__ import annotations

__version__ = "0.1.0"

CONFIG_ENV = "KUBE_SYNC_CONFIG"  # the variable that names the configuration file
