"""Derive Ready, Reconciling and Stalled of a PlacementPolicy from Compiled and Active.

A policy in force is ready. One that waits for others, is counted, or would be in force if a person
took it to `active` is reconciling. One at fault is stalled, even while its last good version is in
force: what its author wrote is not. Pure.
"""

from __future__ import annotations

from typing import Final

from kube_sync.kube.conditions import Condition, standard

WAITING_REASON: Final = "Waiting"  # of Compiled: other policies are tried first
NOT_COUNTED: Final = "NotCounted"  # of Active: a canary that is counted first
_TO_APPROVE: Final = ("Candidate", "Shadow", "Canary")  # of Active: a stage without trouble
_APPROVAL: Final = "AwaitingApproval"


def standard_of(name: str, compiled: Condition, active: Condition) -> list[Condition]:
    """Return the three conditions of the policy of this name."""
    if compiled.status == "False":
        waits = compiled.reason == WAITING_REASON
        return standard("Reconciling" if waits else "Stalled", compiled.reason, compiled.message)
    if active.status == "True":
        return standard("Ready", active.reason, active.message)
    if compiled.status == "True" and active.reason in _TO_APPROVE:
        command = f"kube-sync stage placementpolicy/{name} active"
        message = f"{active.message}\nit waits for a person: `{command}` puts it into force"
        return standard("Reconciling", _APPROVAL, message)
    if active.reason in (*_TO_APPROVE, NOT_COUNTED):
        return standard("Reconciling", active.reason, active.message)
    return standard("Stalled", active.reason, active.message)
