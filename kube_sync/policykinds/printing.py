"""Output of the `check` commands: text or JSON with an exit status, and the reports on policies.

Invariant: no text contains characters that move a terminal's cursor.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from kube_sync.policykinds.reports import Report


@dataclass(frozen=True, slots=True)
class Answer:
    """The output, the exit status, and complaints."""

    text: str
    status: int
    complaints: tuple[str, ...] = ()


def as_text(blocks: Iterable[str], reports: Mapping[str, Report], *, unused: str) -> str:
    """Return these blocks, and the reports on the policies, by name.

    `unused` is the title of problems, which keep policies out of decisions.
    """
    return "\n\n".join(plain(block) for block in (*blocks, *_on_policies(reports, unused)))


def as_json(document: Mapping[str, Any], reports: Mapping[str, Report]) -> str:
    """Return the same as JSON."""
    whole = {**document, "reports": dict(sorted(reports.items()))}
    return indented(whole)


def indented(whole: Mapping[str, Any]) -> str:
    """Return indented JSON."""
    return msgspec.json.format(msgspec.json.encode(whole), indent=2).decode()


def plain(text: str, keep: str = "\n") -> str:
    """Return a text with spaces for characters that move a cursor, except those in `keep`."""
    return "".join(c if c.isprintable() or c in keep else " " for c in text)


def _on_policies(reports: Mapping[str, Report], unused: str) -> Iterable[str]:
    problems = {name: report.problems for name, report in reports.items()}
    findings = {name: report.findings for name, report in reports.items()}
    for title, told in (
        (unused, problems),
        ("policies that may not mean what they seem to:", findings),
    ):
        if lines := [f"  {name}: {line}" for name in sorted(told) for line in told[name]]:
            yield "\n".join([title, *lines])
