"""The wiring: the only package that knows every part."""

from __future__ import annotations

from kube_sync.app.approving import run_approve, run_approve_removals
from kube_sync.app.commands import (
    run_admit,
    run_all,
    run_policy_sync,
    run_remediate,
    run_replicate,
    run_topology,
)
from kube_sync.app.provisioning import run_provision
from kube_sync.app.staging import run_stage

__all__ = [
    "run_admit",
    "run_all",
    "run_approve",
    "run_approve_removals",
    "run_policy_sync",
    "run_provision",
    "run_remediate",
    "run_replicate",
    "run_stage",
    "run_topology",
]
