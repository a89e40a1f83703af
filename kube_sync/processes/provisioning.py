"""`kube-sync provision`: the Secrets of an installation, once."""

from __future__ import annotations

import time
from collections.abc import Callable

from kube_sync.config import Settings
from kube_sync.kube.client import kube_client
from kube_sync.provisioning.keeper import provision
from kube_sync.provisioning.wanted import wanted


async def run_provision(
    settings: Settings, *, tokens_only: bool, now: Callable[[], float] = time.time
) -> list[str]:
    """Create and renew what is due; return a line for each change. Raises SyncError."""
    async with kube_client(settings.kubernetes) as kube:
        return await provision(kube, wanted(settings, certificates=not tokens_only), now())
