"""Readiness conditions of a process, each with its reason.

Each part of a process owns one named condition and reports what it waits for, or that it is met.
The process is ready when no condition waits; a part that never reported does not count.
"""

from __future__ import annotations

from collections.abc import Callable

import structlog

log: structlog.stdlib.BoundLogger = structlog.get_logger()


class Readiness:
    """The conditions of one process."""

    def __init__(self) -> None:
        self._waiting: dict[str, str] = {}
        self._fine: dict[str, str] = {}

    def waiting(self, condition: str, reason: str) -> None:
        """Report that `condition` is not met, and why, in one line for an operator."""
        if self._waiting.get(condition) != reason:
            log.warning("not_ready", condition=condition, reason=reason)
        self._waiting[condition] = reason
        self._fine.pop(condition, None)

    def met(self, condition: str) -> None:
        """Report that `condition` is met."""
        self.noted(condition, "ok")

    def noted(self, condition: str, detail: str) -> None:
        """Report that `condition` is met, with a detail for people."""
        if self._waiting.pop(condition, None) is not None:
            log.info("ready", condition=condition)
        self._fine[condition] = detail

    def forget(self, condition: str) -> None:
        """Remove `condition`: its subject is gone."""
        self._waiting.pop(condition, None)
        self._fine.pop(condition, None)

    def reporter(self, condition: str) -> Callable[[str | None], None]:
        """Return a function that takes why `condition` is not met, or None when it is."""

        def report(reason: str | None) -> None:
            if reason is None:
                self.met(condition)
            else:
                self.waiting(condition, reason)

        return report

    @property
    def reasons(self) -> dict[str, str]:
        """The reasons of conditions that are not met; empty when the process is ready."""
        return dict(sorted(self._waiting.items()))

    @property
    def conditions(self) -> dict[str, str]:
        """Every condition with `ok`, its detail, or its reason, for people."""
        return dict(sorted({**self._fine, **self._waiting}.items()))
