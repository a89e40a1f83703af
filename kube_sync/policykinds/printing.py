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
    """What to print, with the exit status, and what there is against it."""

    text: str
    status: int
    complaints: tuple[str, ...] = ()


def as_text(blocks: Iterable[str], reports: Mapping[str, Report], *, unused: str) -> str:
    """Return these blocks, and what is said of the policies themselves, by name.

    `unused` is the title of what decisions do not use.
    """
    return "\n\n".join(plain(block) for block in (*blocks, *_on_policies(reports, unused)))


def as_json(document: Mapping[str, Any], reports: Mapping[str, Report]) -> str:
    """Return the same for programs."""
    whole = {**document, "reports": dict(sorted(reports.items()))}
    return indented(whole)


def indented(whole: Mapping[str, Any]) -> str:
    """Return JSON for programs, and for people who look at it."""
    return msgspec.json.format(msgspec.json.encode(whole), indent=2).decode()


def plain(text: str, keep: str = "\n") -> str:
    """Return a text with a space for what would move a cursor, but for what is to be kept."""
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
