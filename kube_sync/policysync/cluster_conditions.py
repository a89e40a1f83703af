"""The answer of one cluster for one condition: the worst of all reports of its copy there.

A copy has conditions of its own, those of the entries of `status.ancestors`, or both, by whichever
controllers. False is worse than Unknown, and Unknown than True.

Invariant: a condition is True only if no report of the cluster says otherwise; a report of an
earlier generation, and a Gateway of the copy without an entry, count as Unknown.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from kube_sync.policysync.copies import Placed, Report
from kube_sync.policysync.feedback_fields import GENERATION, OBSERVED, PARTS, field_name

STATUSES: Final = ("True", "False", "Unknown")
_WORST_FIRST: Final = ("False", "Unknown", "True")
_PENDING: Final = "Pending"
_ENTRIES: Final = 16  # maxItems of PolicyStatus: entries of further Gateways have to be left out
_TEXT: Final = 240  # characters of all messages of one cluster together


class Answer(NamedTuple):
    """The value of one condition on one cluster."""

    status: str
    reason: str
    message: str


def has_reported(condition: str, one: Placed) -> bool:
    """Return whether a cluster has reported a condition, for any copy."""
    if one.feedback is None:
        return False
    reports = one.feedback.reports
    return field_name(condition, PARTS[0]) in one.feedback.values or any(
        report.condition == condition for report in reports
    )


def answer(condition: str, one: Placed) -> Answer:
    """Return the answer of a cluster for a condition."""
    names = sorted({key.name for key in one.gateways})
    found = [_current(report, one) for report in _reports(condition, one, names)]
    worst = next((s for s in _WORST_FIRST if any(r.status == s for r in found)), "")
    if not worst:
        return Answer("Unknown", _PENDING, f"it says nothing of {condition}")
    those = [report for report in found if report.status == worst]
    return _merge_reports(worst, those, several=len(names) > 1)


def _reports(condition: str, one: Placed, names: Collection[str]) -> Iterator[Report]:
    if (own := _own_report(condition, one)) is not None:
        yield own
    if one.feedback is None:
        return
    entries = [report for report in one.feedback.reports if report.gateway in ("", *names)]
    matching = [report for report in entries if report.condition == condition]
    yield from matching
    if own is None and any(report.gateway for report in entries) and len(names) <= _ENTRIES:
        for name in sorted({*names} - {report.gateway for report in matching}):
            text = f"nobody says anything of {condition} there"
            yield Report(name, condition, "Unknown", _PENDING, text, None)


def _own_report(condition: str, one: Placed) -> Report | None:
    """Return the condition of the copy itself."""
    values = {} if one.feedback is None else one.feedback.values
    if (status := values.get(field_name(condition, "status"))) is None:
        return None
    reason, message = (
        str(values.get(field_name(condition, part)) or "") for part in ("reason", "message")
    )
    generation = values.get(field_name(condition, OBSERVED))
    observed = generation if type(generation) is int else None
    return Report(
        "", condition, status if isinstance(status, str) else "", reason, message, observed
    )


def _current(report: Report, one: Placed) -> Report:
    """Return the effective report: one of an earlier generation, or of no status, is Unknown."""
    values = {} if one.feedback is None else one.feedback.values
    generation = values.get(GENERATION)
    observed = values.get(OBSERVED) if report.observed is None else report.observed
    if report.status not in STATUSES:
        message = f"it says nothing of {report.condition}"
        return report._replace(status="Unknown", reason=_PENDING, message=message)
    if isinstance(observed, int) and isinstance(generation, int) and observed < generation:
        message = "what it says is of an earlier generation"
        return report._replace(status="Unknown", reason=_PENDING, message=message)
    return report


def _merge_reports(status: str, reports: list[Report], *, several: bool) -> Answer:
    """Merge reports of one status; `several`: there are Gateways to distinguish."""
    reasons = {report.reason for report in reports}
    reason = reasons.pop() if len(reasons) == 1 else "Various"
    # An entry that was read by the name of its Gateway may have been read without it as well.
    of_gateways = {report.reason for report in reports if report.gateway}
    alike: dict[str, dict[str, None]] = {}
    for one in reports:
        if one.gateway or one.message or one.reason not in of_gateways:
            known = one.reason if one.reason != reason else ""  # the answer has it already
            text = ": ".join(filter(None, (known, one.message)))
            alike.setdefault(text, {})[one.gateway if several else ""] = None
    return Answer(status, reason, ", ".join(filter(None, _parts(alike))))


def _parts(alike: Mapping[str, Iterable[str]]) -> Iterator[str]:
    limit = _TEXT // len(alike)  # so that the message of one Gateway hides no other
    for text, gateways in alike.items():
        names = [name for name in gateways if name]
        prefix = f"Gateway{'s' * (len(names) > 1)} {', '.join(names)}" if names else ""
        fits = len(alike) == 1 or len(text) <= limit
        yield ": ".join(filter(None, (prefix, text if fits else f"{text[:limit]}…")))
