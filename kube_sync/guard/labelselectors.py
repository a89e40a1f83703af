"""Label selectors as people type them: `kubectl get --selector`. Pure.

The grammar is that of apimachinery (`labels.Parse`), the meaning of each operator that of
`selectors.py`.
"""

from __future__ import annotations

import re
from typing import Final

from kube_sync.errors import Misconfigured
from kube_sync.guard.selectors import Requirement

# Kubernetes, "Labels and Selectors: Syntax and character set".
_NAME: Final = r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_KEY: Final = rf"(?:[a-z0-9](?:[-a-z0-9.]{{0,251}}[a-z0-9])?/)?{_NAME}"
_ONE: Final = re.compile(
    rf"""\s*(?:
      (?P<absent>!)\s*(?P<no>{_KEY})
    | (?P<key>{_KEY})(?:
          \s*(?P<sign>==?|!=|>|<)\s*(?P<value>(?:{_NAME})?)
        | \s+(?P<set>in|notin)\s*\(\s*(?P<values>(?:{_NAME})?(?:\s*,\s*(?:{_NAME})?)*)\s*\)
      )?
    )\s*(?P<end>,|$)""",
    re.VERBOSE,
)
_EXPECTED: Final = "not a label selector, as a=b, a!=b, 'a in (x,y)', 'a notin (x)', a, '!a'"


def parse_labels(text: str) -> tuple[Requirement, ...]:
    """Parse a label selector into its requirements. Raises Misconfigured."""
    found, at = list[Requirement](), 0
    while True:
        one = _ONE.match(text, at)
        wrong = _EXPECTED if one is None else _wrong(_requirement(one))
        if one is None or wrong is not None:
            msg = f'--selector: "{text}": {wrong}'
            raise Misconfigured(msg)
        found.append(_requirement(one))
        if not one["end"]:
            return tuple(found)
        at = one.end()


def _requirement(one: re.Match[str]) -> Requirement:
    if one["absent"]:
        return Requirement(one["no"], "!")
    if one["sign"]:
        return Requirement(one["key"], one["sign"], (one["value"],))
    if one["set"]:
        values = tuple(value.strip() for value in one["values"].split(","))
        return Requirement(one["key"], one["set"], values)
    return Requirement(one["key"], "exists")


def _wrong(requirement: Requirement) -> str | None:
    if requirement.operator in (">", "<") and not (requirement.values or ("",))[0].isdecimal():
        return f"{requirement.key}{requirement.operator} takes an integer"
    return None
