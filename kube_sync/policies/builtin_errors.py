"""Count the builtins that fail in decisions, by the row that calls them. Pure.

OPA takes a call that fails for undefined, so what depends on it silently drops out. Invariant: no
value is quoted, since a status is read by others than the object; `kube-sync why` quotes OPA.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kube_sync.policies.policywarning import PolicyWarning

BUILTIN_ERROR: Final = "eval_builtin_error"  # OPA's code


@dataclass(frozen=True, slots=True, order=True)
class FailingCall:
    """A call of a builtin that fails."""

    module: str
    row: int
    builtin: str


def failing(causes: Iterable[Mapping[str, Any]]) -> Counter[FailingCall]:
    """Return the calls that failed, each with the number of times."""
    return Counter(
        FailingCall(
            str(location.get("file", "")),
            int(location.get("row", 0)),
            str(cause.get("message", "")).partition(":")[0],
        )
        for cause in causes
        if cause.get("code") == BUILTIN_ERROR and (location := cause.get("location") or {})
    )


def warnings(calls: Mapping[FailingCall, int]) -> Iterable[PolicyWarning]:
    """Yield a warning for each call that failed on a sample of the objects."""
    for call, times in sorted(calls.items()):
        text = (
            f"{call.builtin} failed {times} times on a sample of the objects, and what depends on"
            " its result is undefined there: `kube-sync why` quotes the error"
        )
        if times == 1:
            text = text.replace("1 times", "once")
        yield PolicyWarning("eval_builtin_error", call.module, call.row, text)
