"""Reports of writes to the ledger: before the PATCH, after it, and while it is held.

A report contains the values that differ, and what approved the write: the approval in its history,
with the place where that was given, or a person in mode `manual`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Protocol

from kube_sync.decisions.records import Target
from kube_sync.guard import HISTORY, read_history
from kube_sync.ledger.reports import Report, Values, shortened
from kube_sync.remediation.decision_cache import Key
from kube_sync.remediation.holds import Wait, changes_of
from kube_sync.remediation.plan import Current, Write
from kube_sync.remediation.writer import Outcome


class Reports(Protocol):
    """Sends reports to the ledger."""

    @property
    def are_discarded(self) -> bool:
        """Whether there is no ledger, as far as is known."""

    def new_id(self) -> str:
        """Return a unique name for a write."""

    def enqueue(self, report: Report) -> None:
        """Send a report without waiting for it."""

    async def deliver(self, report: Report) -> bool:
        """Send a report and wait for a bounded time; return whether it is in the ledger."""


class AuditLog:
    """Reports the remediator's writes to the ledger."""

    def __init__(self, reports: Reports, where: Callable[[str], str]) -> None:
        """`where` returns where the approval of that name was given, "" if that is not known."""
        self._reports = reports
        self._where = where

    async def intend(self, key: Key, current: Current, step: Write, approved: str) -> str:
        """Report a PATCH that is about to be sent, in bounded time; return a name for it.

        The name is empty if there is no ledger.
        """
        if self._reports.are_discarded:
            return ""
        old, new = _values(changes_of(current, step))
        name = self._reports.new_id()
        report = Report(
            name,
            "intent",
            target(key),
            current.uid,
            old,
            new,
            approved=shortened(self._approved(step) or approved),
        )
        await self._reports.deliver(report)
        return name

    def ended(self, name: str, key: Key, current: Current, outcome: Outcome) -> None:
        """Report the outcome of a PATCH, if it was reported before."""
        if not name:
            return
        note = shortened(outcome.error)
        about = target(key), current.uid
        self._reports.enqueue(Report(name, "outcome", *about, status=outcome.status, note=note))

    def held(self, key: Key, wait: Wait) -> None:
        """Report a write that is held, and the reason."""
        old, new = _values(wait.changes)
        report = Report(
            self._reports.new_id(),
            "held",
            target(key),
            wait.uid,
            old,
            new,
            status=wait.kind,
            note=shortened(f"{wait.reason}; released by: {wait.release}"),
        )
        self._reports.enqueue(report)

    def _approved(self, step: Write) -> str:
        history = read_history({HISTORY: step.annotations.get(HISTORY) or "[]"}, math.inf)
        name = history[-1].approval if history else ""
        return " ".join(filter(None, (name, self._where(name)))) if name else ""


def target(key: Key) -> Target:
    """Return the ledger's name of an object."""
    return Target.of(*key)


def _values(changes: Mapping[str, tuple[str | None, str | None]]) -> tuple[Values, Values]:
    return {k: old for k, (old, _) in changes.items()}, {k: new for k, (_, new) in changes.items()}
