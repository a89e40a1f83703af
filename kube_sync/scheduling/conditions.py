"""What is found out about a SchedulingPolicy, as the conditions of its status.

Keeps true: two reports that say the same make the same conditions, but for the time of the last
transition, which is kept as long as a condition's status is (meta/v1 Condition). So a policy whose
conditions are right already is not written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from kube_sync.errors import Undecided

REPORT: Final = "kube_sync/scheduling/validation/report"
ACCEPTED: Final = "Accepted"
FINDINGS: Final = "Findings"
_MESSAGE: Final = 32768  # characters: the most that meta/v1 allows in a condition's message
_TIME: Final = "lastTransitionTime"

Json = dict[str, Any]


class Report(msgspec.Struct, frozen=True):
    """Why decisions do not use a policy, and what in it may not mean what it seems to."""

    problems: tuple[str, ...]
    findings: tuple[str, ...]


def read_report(answer: bytes | None) -> Report:
    """Return what OPA answered. Raises Undecided when that is no report."""
    if answer is None:
        msg = f"OPA does not know data.{REPORT.replace('/', '.')}"
        raise Undecided(msg)
    try:
        return msgspec.json.decode(answer, type=Report)
    except (msgspec.DecodeError, RecursionError) as error:
        msg = f"data.{REPORT.replace('/', '.')} is no report: {error}"
        raise Undecided(msg) from error


def conditions(
    report: Report, generation: int, found: Sequence[Mapping[str, Any]], now: str
) -> list[Json]:
    """Return the conditions of a policy that has `found`; `now` is as in RFC 3339."""
    accepted = not report.problems
    told = report.problems or ("decisions use this policy",)
    wanted = [_condition(ACCEPTED, accepted, "Valid" if accepted else "Invalid", told)]
    told = report.findings or ("nothing was found",)
    questionable = bool(report.findings)
    reason = "Questionable" if questionable else "Clear"
    wanted.append(_condition(FINDINGS, questionable, reason, told))
    known = {one.get("type"): one for one in found}
    return [_dated(one, known.get(one["type"]), generation, now) for one in wanted]


def are_right(found: Sequence[Mapping[str, Any]], wanted: Sequence[Mapping[str, Any]]) -> bool:
    """Tell whether a policy has the wanted conditions already; others that it has do not count."""
    known = {one.get("type"): one for one in found}
    return all(known.get(one["type"]) == one for one in wanted)


def _condition(kind: str, holds: bool, reason: str, told: Iterable[str]) -> Json:  # noqa: FBT001
    message = "\n".join(told)
    if len(message) > _MESSAGE:
        message = message[: _MESSAGE - 2] + " …"
    return {"type": kind, "status": str(holds), "reason": reason, "message": message}


def _dated(wanted: Json, found: Mapping[str, Any] | None, generation: int, now: str) -> Json:
    since = now
    if found is not None and found.get("status") == wanted["status"]:
        since = found.get(_TIME) or since
    return {**wanted, "observedGeneration": generation, _TIME: since}
