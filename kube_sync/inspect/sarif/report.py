"""Formats findings as SARIF 2.1.0, and writes them beside what a command prints.

Invariant: the text is valid by the schema of OASIS, and has what GitHub's code scanning needs of a
result: a rule with texts, a message, and a file with its row. A finding without a file is a
notification of the run instead. Equal findings give equal text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kube_sync import __version__
from kube_sync.errors import SyncError, Terminal
from kube_sync.inspect.sarif.positions import Position, Positions
from kube_sync.inspect.sarif.rules import NOT_RUN, Level, rule_of, warning_rule
from kube_sync.observability.printing import indented, plain
from kube_sync.policies.policywarning import PolicyWarning

_SCHEMA: Final = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)
_LINE: Final = re.compile(r"(?P<file>[^:\n]+):(?P<row>\d+): (?P<message>.+)")


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding; `file` is a file as the user spelt it, "" if there is none."""

    rule: str
    message: str
    file: str = ""
    row: int = 0  # 0: unknown

    @property
    def level(self) -> Level:
        """How bad it is."""
        return rule_of(self.rule).level


def of_warnings(warnings: Iterable[PolicyWarning]) -> Iterator[Finding]:
    """Yield the warnings on policies, each once: files may share policies."""
    for one in dict.fromkeys(warnings):
        meant = f" (meant: {one.suggestion}?)" if one.suggestion else ""
        yield Finding(warning_rule(one.code), f"{one.message}{meant}", one.file, one.row)


def of_error(error: SyncError) -> Iterator[Finding]:
    """Yield each line of an error, at the file and row that it begins with."""
    for line in str(error).splitlines():
        found = _LINE.fullmatch(line)
        if found is None:
            yield Finding(NOT_RUN, line)
        else:
            yield Finding(NOT_RUN, found["message"], found["file"], int(found["row"]))


def write_sarif(file: str | None, command: str, findings: Iterable[Finding]) -> None:
    """Write the report of a command to a file, if one is asked for. Raises Terminal."""
    if file is not None:
        write_report("--sarif", file, as_sarif(command, findings))


def write_report(option: str, file: str, text: str) -> None:
    """Write a report to the file that an option names, making its folder. Raises Terminal."""
    try:
        path = Path(file)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        msg = f"{option}: {file}: {error.strerror}"
        raise Terminal(msg) from error


def as_sarif(command: str, findings: Iterable[Finding]) -> str:
    """Return the report of one run of a command of `kube-sync`."""
    known, positions = [*dict.fromkeys(findings)], Positions()
    placed = [(one, positions.find(one.file, one.row) if one.file else None) for one in known]
    rules = sorted({one.rule for one in known})
    run = {
        "tool": {
            "driver": {
                "name": "kube-sync",
                "version": __version__,
                "rules": [_rule(name) for name in rules],
            }
        },
        # Code scanning keeps the findings of each such category apart.
        "automationDetails": {"id": f"kube-sync/{command}/"},
        "columnKind": "unicodeCodePoints",
        "invocations": [
            {
                "executionSuccessful": all(one.rule != NOT_RUN for one in known),
                "toolExecutionNotifications": [
                    _notification(one, rules) for one, at in placed if at is None
                ],
            }
        ],
        "results": [_result(one, at, rules) for one, at in placed if at is not None],
    }
    return indented({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}) + "\n"


def _rule(name: str) -> dict[str, Any]:
    rule = rule_of(name)
    return {
        "id": name,
        "shortDescription": {"text": rule.text},
        "fullDescription": {"text": rule.text},
        "help": {"text": f"See docs/{rule.page} of kube-sync."},
        "defaultConfiguration": {"level": rule.level},
    }


def _result(one: Finding, at: Position, rules: Sequence[str]) -> dict[str, Any]:
    region = {
        "startLine": at.row,
        "startColumn": 1,
        "endLine": at.row,
        "endColumn": at.length + 1,
    }
    location = {"artifactLocation": {"uri": at.uri}, "region": region}
    return {
        "ruleId": one.rule,
        "ruleIndex": rules.index(one.rule),
        "level": one.level,
        "message": _message(one.message),
        "locations": [{"physicalLocation": location}],
    }


def _notification(one: Finding, rules: Sequence[str]) -> dict[str, Any]:
    where = f"{one.file}:{one.row}: " if one.file and one.row else ""
    return {
        "associatedRule": {"id": one.rule, "index": rules.index(one.rule)},
        "level": one.level,
        "message": _message(f"{where}{one.message}"),
    }


def _message(text: str) -> dict[str, str]:
    """Return a text of others without a link, as `[text](target)` is one (SARIF 2.1.0, 3.11.6)."""
    return {"text": plain(text, "\n").replace("](", "] (")}
