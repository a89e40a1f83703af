"""The report of the Rego on one policy, as lines for people.

Invariant: a result of OPA that is no report raises Undecided.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from kube_sync.errors import Undecided, json_errors_as


class Report(msgspec.Struct, frozen=True):
    """Why decisions do not use a policy or a part of it, and what may not mean what it seems to."""

    problems: tuple[str, ...]
    findings: tuple[str, ...]


class _Message(msgspec.Struct):
    """One message, with its path and, for findings, a reason in one word."""

    message: str
    path: str = ""
    reason: str = ""


class _Answer(msgspec.Struct):
    problems: list[str | _Message]
    findings: list[str | _Message]


def report_of(answer: Any, rule: str) -> Report:  # noqa: ANN401 - any JSON
    """Parse the value of a rule into a report. Raises Undecided if it is none."""
    with json_errors_as(Undecided, f"{rule} is no report"):
        found = msgspec.convert(answer, _Answer)
    return Report(_lines(found.problems), _lines(found.findings))


def read_report(answer: bytes, rule: str) -> Report:
    """Parse a report from JSON. Raises Undecided."""
    with json_errors_as(Undecided, f"{rule} is no report"):
        found = msgspec.json.decode(answer)
    return report_of(found, rule)


def _lines(messages: Iterable[str | _Message]) -> tuple[str, ...]:
    return tuple(one if isinstance(one, str) else _line(one) for one in messages)


def _line(message: _Message) -> str:
    return ": ".join(part for part in (message.path, message.reason, message.message) if part)
