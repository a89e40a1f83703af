"""Aggregates what clusters report of a policy's copies to the conditions of the hub's policy.

A condition is True only if it is True on every cluster, False if it is False on one, and
Unknown if a cluster has not reported yet; its message names the clusters.

Invariant: a report counts only if it is of the cluster's current copy, and of the generation
that its API server holds; any other is ignored. The same reports make the same conditions, in
whatever order they came.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from kube_sync.kube.conditions import Condition, message
from kube_sync.policysync.cluster_conditions import STATUSES, Answer, answer, has_reported
from kube_sync.policysync.copies import Copy, Placed
from kube_sync.policysync.desired import Desired
from kube_sync.policysync.feedback_fields import CONDITIONS, NAMES, OF_COPY
from kube_sync.topology.conditions import listed

SYNCED: Final = "kube-sync.io/Synced"
_WORD: Final = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]{0,1022}[A-Za-z0-9_])?")  # meta/v1 Condition
_TEXT: Final = 256  # characters of one cluster's message
_SHOWN: Final = 20  # clusters that are named for one message


def aggregate(
    wanted: Desired,
    placed: Mapping[str, Placed],
    others: Iterable[str] = (),
    errors: Mapping[str, str] | None = None,
    cut: Iterable[str] = (),
) -> tuple[Condition, ...]:
    """Return the conditions of a policy, none if no spoke is to have a copy.

    `others` are references of the policy that are not synced; `errors`, by cluster, the reasons
    why a copy is not placed, and `cut` what of all this is not in the policy's annotations.
    """
    if not wanted.concerned:
        return ()
    missing = {c: _missing_report(copy, placed.get(c)) for c, copy in wanted.copies.items()}
    found = [
        _merge_answers(condition, _answers(condition, missing, placed))
        for condition in CONDITIONS
        if _is_reported(condition, wanted.copies, placed)
    ]
    notes = [*cut], [f"not synced: {one}" for one in others]
    return (_synced(wanted, placed, notes, errors or {}), *found)


def extra_values(
    wanted: Desired, placed: Mapping[str, Placed]
) -> dict[str, dict[str, str | int | bool]]:
    """Return the configured status fields that the clusters report of their copies."""
    found = {}
    for cluster, copy in wanted.copies.items():
        if not _missing_report(copy, placed.get(cluster)):
            values = sorted(_values(placed[cluster]).items())
            found[cluster] = {name: value for name, value in values if name not in NAMES}
    return {cluster: values for cluster, values in sorted(found.items()) if values}


def _values(one: Placed) -> Mapping[str, str | int | bool]:
    return {} if one.feedback is None else one.feedback.values


def _is_reported(condition: str, copies: Mapping[str, Copy], placed: Mapping[str, Placed]) -> bool:
    """Return whether the kind has a condition: some cluster has reported it, for any copy."""
    return any(has_reported(condition, placed[cluster]) for cluster in copies if cluster in placed)


def _missing_report(copy: Copy, one: Placed | None) -> str:
    """Return why a cluster has no report that counts, "" if it has one."""
    if one is None or one.digest != copy.digest:
        return "it is not placed there yet"
    if one.feedback is not None and one.feedback.applied is False:
        return f"it could not be applied: {one.feedback.problem}"
    if one.feedback is None or one.feedback.values.get(OF_COPY) != copy.digest:
        return "it has not answered yet"
    return ""


def _answers(
    condition: str, missing: Mapping[str, str], placed: Mapping[str, Placed]
) -> dict[str, Answer]:
    return {
        cluster: Answer("Unknown", "Pending", why) if why else answer(condition, placed[cluster])
        for cluster, why in missing.items()
    }


def _merge_answers(condition: str, answers: Mapping[str, Answer]) -> Condition:
    statuses = {one.status for one in answers.values()}
    status = next((one for one in ("False", "Unknown") if one in statuses), "True")
    those = {cluster: one for cluster, one in answers.items() if one.status == status}
    reasons = {one.reason for one in those.values()}
    # The API server refuses a reason that is no word (meta/v1 Condition).
    reason = reasons.pop() if len(reasons) == 1 else "Various"
    reason = reason if _WORD.fullmatch(reason) else status
    return Condition(condition, status, reason, message(_entries(those)))


def _entries(answers: Mapping[str, Answer]) -> list[str]:
    """Format one entry per message, with its clusters, sorted by the first of them."""
    alike: dict[str, list[str]] = {}
    for cluster, one in sorted(answers.items()):
        text = ": ".join(part for part in (_escape(one.reason), _escape(one.message)) if part)
        alike.setdefault(text, []).append(cluster)
    return [f"{listed(clusters, most=_SHOWN)}: {text}" for text, clusters in alike.items()]


def _escape(text: str) -> str:
    """Escape a cluster's message so that it cannot imitate the entry of another cluster."""
    escaped = "".join(c if c.isprintable() else " " for c in text[: 2 * _TEXT]).replace(";", ",")
    return escaped if len(escaped) <= _TEXT else f"{escaped[: _TEXT - 1]}…"


def _synced(
    wanted: Desired,
    placed: Mapping[str, Placed],
    remarks: tuple[list[str], list[str]],
    errors: Mapping[str, str],
) -> Condition:
    answers = {
        c: Answer("False", "", errors[c]) if c in errors else _copy_answer(copy, placed.get(c))
        for c, copy in wanted.copies.items()
    }
    by_status = {
        status: _entries({c: one for c, one in answers.items() if one and one.status == status})
        for status in STATUSES
    }
    unread = by_status["True"]
    cut, notes = remarks
    # These first: a list that is too long is cut at its end.
    unsynced = [*cut, *by_status["False"], *by_status["Unknown"]]
    if wanted.problems or wanted.refused:
        reason = "PlacementUnknown" if wanted.problems else "RefNotPermitted"
        first = [*wanted.problems, *wanted.refused]
        return _condition("False", reason, [*first, *unsynced, *notes, *unread])
    if by_status["False"]:
        return _condition("False", "NotApplied", [*unsynced, *notes, *unread])
    if by_status["Unknown"]:
        return _condition("Unknown", "Pending", [*unsynced, *notes, *unread])
    if not answers:
        return _condition("False", "NoClusters", ["its Gateways are placed on no cluster", *notes])
    synced = f"synced to {listed(answers, most=_SHOWN)}"
    return _condition("True", "Synced", [synced, *cut, *notes, *unread])


def _copy_answer(copy: Copy, one: Placed | None) -> Answer | None:
    """Return what to report of one copy, None if it is there without problems."""
    if one is None or one.digest != copy.digest or one.feedback is None:
        return Answer("Unknown", "", "it waits to be applied")
    if one.feedback.applied is False:
        return Answer("False", "", _missing_report(copy, one))
    if one.feedback.applied is None and _missing_report(copy, one):
        return Answer("Unknown", "", "it waits to be applied")
    if one.feedback.problem:
        return Answer("True", "not all of its status can be read", one.feedback.problem)
    return None


def _condition(status: str, reason: str, notes: Iterable[str]) -> Condition:
    return Condition(SYNCED, status, reason, message(notes))
