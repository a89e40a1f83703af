"""A warning to the author of a policy that is in force all the same."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kube_sync.config import WarningCode

MOST: Final = 20  # on one policy
_CHARACTERS: Final = 1_000  # of a message
_SUGGESTION: Final = 300  # characters

Warnings = Mapping[str, Sequence["PolicyWarning"]]  # by module id


@dataclass(frozen=True, slots=True)
class PolicyWarning:
    """What is doubted about a policy, where, and what was probably meant."""

    code: WarningCode
    file: str  # the module's id, "" for the policy as a whole
    row: int  # 0: unknown
    message: str
    suggestion: str = ""

    def fields(self) -> dict[str, Any]:
        """Return it as JSON, without what is unknown."""
        found = {
            "code": self.code,
            "file": self.file,
            "row": self.row,
            "message": self.message[:_CHARACTERS],
            "suggestion": self.suggestion[:_SUGGESTION],
        }
        return {name: value for name, value in found.items() if value}

    def line(self, names: Mapping[str, str] | None = None) -> str:
        """Return it in one line; `names` maps module ids to names for people."""
        file = (names or {}).get(self.file, self.file)
        where = f"{file}:{self.row}: " if file and self.row else f"{file}: " if file else ""
        meant = f" (meant: {self.suggestion}?)" if self.suggestion else ""
        return f"{where}{self.code}: {self.message}{meant}"[:_CHARACTERS]


def listed(warnings: Sequence[PolicyWarning]) -> list[dict[str, Any]]:
    """Return a bounded list of warnings as JSON, with the number of the others."""
    left = len(warnings) - MOST
    more = [{"code": "more", "message": f"and {left} more"}] if left > 0 else []
    return [warning.fields() for warning in warnings[:MOST]] + more


def by_module(warnings: Iterable[PolicyWarning]) -> dict[str, list[PolicyWarning]]:
    """Return warnings by the id of their module."""
    found: dict[str, list[PolicyWarning]] = {}
    for warning in warnings:
        found.setdefault(warning.file, []).append(warning)
    return found


def as_warnings(code: WarningCode, texts: Mapping[str, Iterable[str]]) -> list[PolicyWarning]:
    """Return texts by module as warnings with one code, each about the module as a whole."""
    return [
        PolicyWarning(code, module, 0, text) for module, found in texts.items() for text in found
    ]


def without(warnings: Iterable[PolicyWarning], off: Iterable[str]) -> Iterator[PolicyWarning]:
    """Yield the warnings of codes that are not switched off."""
    dropped = {*off}
    return (warning for warning in warnings if warning.code not in dropped)
