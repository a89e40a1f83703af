"""Output of the `check` commands: text or JSON with an exit status, and the reports on policies.

Invariant: no text contains characters that move a terminal's cursor.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kube_sync.observability.printing import indented, joined, plain
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
    return joined(plain(block, "\n") for block in (*blocks, *_on_policies(reports, unused)))


def as_json(document: Mapping[str, Any], reports: Mapping[str, Report]) -> str:
    """Return the same as JSON."""
    return indented({**document, "reports": dict(sorted(reports.items()))})


def _on_policies(reports: Mapping[str, Report], unused: str) -> Iterable[str]:
    problems = {name: report.problems for name, report in reports.items()}
    findings = {name: report.findings for name, report in reports.items()}
    for title, told in (
        (unused, problems),
        ("policies that may not mean what they seem to:", findings),
    ):
        if lines := [f"  {name}: {line}" for name in sorted(told) for line in told[name]]:
            yield "\n".join([title, *lines])
