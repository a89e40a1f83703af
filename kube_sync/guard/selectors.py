"""Cluster selectors: parsing of the annotation, and matching of its requirements to labels. Pure.

The annotation `federation.alpha.kubernetes.io/cluster-selector` is a JSON list of `{"key",
"operator", "values"}`. Validation and the meaning of each operator follow Kubernetes federation
(`clusterselector.SendToCluster`) and apimachinery (`labels.Requirement.Matches`), which refuse the
whole list for one wrong requirement.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from kube_sync.errors import NO_JSON

EXPECTED: Final = 'a list of {"key": LABEL, "operator": "In", "values": [VALUE, …]}'

_SPELLINGS: Final[Mapping[str, Sequence[str]]] = {
    "In": ("In", "in"),
    "NotIn": ("NotIn", "notin"),
    "Equals": ("=", "=="),
    "NotEquals": ("!=",),
    "Exists": ("Exists", "exists"),
    "DoesNotExist": ("DoesNotExist", "!"),
    "Gt": ("Gt", "gt", ">"),
    "Lt": ("Lt", "lt", "<"),
}
_OPERATORS: Final = {text: name for name, texts in _SPELLINGS.items() for text in texts}
_ONE: Final = ("Equals", "NotEquals", "Gt", "Lt")  # operators with one value
_INTEGERS: Final = ("Gt", "Lt")


class Requirement(msgspec.Struct, frozen=True):
    """One requirement; other members are ignored."""

    key: str
    operator: str
    values: tuple[str, ...] | None = None


_requirements = msgspec.json.Decoder(tuple[Requirement, ...])


def parse_selector(value: str) -> tuple[Requirement, ...]:
    """Parse a cluster selector into its requirements. Raises ValueError with the reason."""
    try:
        found = _requirements.decode(value)
    except NO_JSON as error:
        raise ValueError(str(error)) from error
    for requirement in found:
        if (wrong := _wrong(requirement)) is not None:
            raise ValueError(wrong)
    return found


def matches(requirements: Sequence[Requirement], labels: Mapping[str, str]) -> bool:
    """Return whether labels meet every requirement."""
    return all(_meets(requirement, labels) for requirement in requirements)


def _wrong(requirement: Requirement) -> str | None:
    values = requirement.values or ()
    match _OPERATORS.get(requirement.operator):
        case None:
            known = ", ".join(texts[0] for texts in _SPELLINGS.values())
            return f"there is no operator {requirement.operator!r} (one of {known})"
        case "In" | "NotIn" if not values:
            return f"{requirement.operator} needs a value"
        case "Exists" | "DoesNotExist" if values:
            return f"{requirement.operator} takes no values"
        case operator if operator in _ONE and len(values) != 1:
            return f"{requirement.operator} takes one value"
        case operator if operator in _INTEGERS and _integer(values[0]) is None:
            return f"{requirement.operator} takes an integer"
    return None if requirement.key else "a requirement has an empty key"


def _meets(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    has, values = labels.get(requirement.key), requirement.values or ()
    match _OPERATORS[requirement.operator]:
        case "In" | "Equals":
            return has in values
        case "NotIn" | "NotEquals":
            return has not in values
        case "Exists":
            return has is not None
        case "DoesNotExist":
            return has is None
        case operator:
            found, limit = _integer(has or ""), _integer(values[0])
            if found is None or limit is None:
                return False
            return found > limit if operator == "Gt" else found < limit


def _integer(text: str) -> int | None:
    """Parse an integer as Go does (`strconv.ParseInt`, base 10)."""
    digits = text.removeprefix("-") if text.startswith("-") else text.removeprefix("+")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 19):  # noqa: PLR2004 - int64
        return None
    return int(text)
