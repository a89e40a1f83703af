"""Wires the installation of the default objects for SchedulingPolicies."""

from __future__ import annotations

from functools import partial
from typing import Final

from kube_sync.admission.scheduling.bootstrap import Bootstrap
from kube_sync.opa.client import OpaClient
from kube_sync.processes.context import Context
from kube_sync.runtime.services import Service

_CONDITION: Final = "scheduling bootstrap"


def install_defaults(context: Context, opa: OpaClient) -> Service:
    """Return the service that creates missing default objects, once `opa` knows the rights."""
    root = context.settings.replicate.root

    async def known(path: tuple[str, ...]) -> bool:
        return await opa.get_data((root, *path)) is not None

    # Noted only: it delays no decision, so the process is ready without it.
    context.readiness.noted(_CONDITION, "not done yet")
    note = partial(context.readiness.noted, _CONDITION)
    return Bootstrap(context.kube, known, note).run
