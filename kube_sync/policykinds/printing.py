"""What `check` commands print: an answer with its exit status, and what is said of policies.

Keeps true: nothing in a text can move a terminal's cursor.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from kube_sync.policykinds.reports import Report


@dataclass(frozen=True, slots=True)
class Answer:
    """What to print, and the exit status: 0 where all is admitted, else 1."""

    text: str
    status: int


def as_text(blocks: Iterable[str], reports: Mapping[str, Report], *, unused: str) -> str:
    """Return these blocks, and what is said of the policies themselves, by name.

    `unused` is the title of what decisions do not use.
    """
    return "\n\n".join(_plain(block) for block in (*blocks, *_on_policies(reports, unused)))


def as_json(document: Mapping[str, Any], reports: Mapping[str, Report]) -> str:
    """Return the same for programs."""
    whole = {**document, "reports": dict(sorted(reports.items()))}
    return msgspec.json.format(msgspec.json.encode(whole), indent=2).decode()


def _on_policies(reports: Mapping[str, Report], unused: str) -> Iterable[str]:
    problems = {name: report.problems for name, report in reports.items()}
    findings = {name: report.findings for name, report in reports.items()}
    for title, told in (
        (unused, problems),
        ("policies that may not mean what they seem to:", findings),
    ):
        if lines := [f"  {name}: {line}" for name in sorted(told) for line in told[name]]:
            yield "\n".join([title, *lines])


def _plain(text: str) -> str:
    return "".join(c if c.isprintable() or c == "\n" else " " for c in text)
