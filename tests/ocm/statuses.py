"""What the agent says of a work and of its manifests, in conditions.

Keeps true: a condition's time changes only with its status, but for StatusFeedbackSynced, whose
time is that of the newest change of a value too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tests.ocm.spoke import said
from tests.ocm.works import Body, identity

THERE = {
    "type": "Available",
    "status": "True",
    "reason": "ResourceAvailable",
    "message": "Resource is available",
}
NOT_THERE = {
    "type": "Available",
    "status": "False",
    "reason": "ResourceNotAvailable",
    "message": "Resource is not available",
}
UNKNOWN = {
    "type": "Available",
    "status": "Unknown",
    "reason": "IncompletedResourceMeta",
    "message": "Resource meta is incompleted",
}


def not_fetched(error: Exception) -> dict[str, str]:
    """Return the condition of an object that could not be read."""
    return {
        "type": "Available",
        "status": "Unknown",
        "reason": "FetchingResourceFailed",
        "message": f"Failed to fetch resource: {said(error)}",
    }


def applied_entry(work: Body, meta: Body, trouble: Exception | None, now: str) -> dict[str, Any]:
    """Return what is said of one manifest after it was applied; what it said before stays."""
    condition = {
        "type": "Applied",
        "status": "True",
        "reason": "AppliedManifestComplete",
        "message": "Apply manifest complete",
        "observedGeneration": work["metadata"]["generation"],
    }
    if trouble is not None:
        message = f"Failed to apply manifest: {said(trouble)}"
        condition |= {"status": "False", "reason": "AppliedManifestFailed", "message": message}
    before = _before(work, meta)
    conditions = with_condition(before.get("conditions", ()), condition, now)
    # As Go writes it: a struct is never left out.
    kept = {"statusFeedback": before.get("statusFeedback", {})}
    return {"conditions": conditions, "resourceMeta": dict(meta), **kept}


def applied_status(work: Body, entries: Sequence[Body], now: str) -> dict[str, Any]:
    """Return the status of a work whose manifests were applied."""
    done = all(_status(entry, "Applied") == "True" for entry in entries)
    condition = {
        "type": "Applied",
        "status": "True" if done else "False",
        "reason": "AppliedManifestWorkComplete" if done else "AppliedManifestWorkFailed",
        "message": "Apply manifest work complete" if done else "Failed to apply manifest work",
        "observedGeneration": work["metadata"]["generation"],
    }
    return _status_of(work, entries, condition, now)


def with_available(entry: Body, condition: Mapping[str, Any], now: str) -> dict[str, Any]:
    """Return what is said of a manifest, with whether its object is there."""
    return {**entry, "conditions": with_condition(entry["conditions"], condition, now)}


def with_feedback(
    entry: Body, values: list[dict[str, Any]], condition: Mapping[str, Any], now: str
) -> dict[str, Any]:
    """Return what is said of a manifest, with the values that were read of its object."""
    conditions = list(entry["conditions"])
    if values != entry.get("statusFeedback", {}).get("values", []):
        conditions = [one for one in conditions if one["type"] != condition["type"]]
    conditions = with_condition(conditions, condition, now)
    return {
        **entry,
        "conditions": conditions,
        "statusFeedback": {"values": values} if values else {},
    }


def available_status(work: Body, entries: Sequence[Body], now: str) -> dict[str, Any]:
    """Return the status of a work whose objects were read."""
    missing = sum(_status(entry, "Available") == "False" for entry in entries)
    unknown = sum(_status(entry, "Available") == "Unknown" for entry in entries)
    condition = {
        "type": "Available",
        "status": "True",
        "reason": "ResourcesAvailable",
        "message": "All resources are available",
        "observedGeneration": work["metadata"]["generation"],
    }
    if missing:
        message = f"{missing} of {len(entries)} resources are not available"
        condition |= {"status": "False", "reason": "ResourcesNotAvailable", "message": message}
    elif unknown:
        message = f"{unknown} of {len(entries)} resources have unknown status"
        condition |= {"status": "Unknown", "reason": "ResourcesStatusUnknown", "message": message}
    return _status_of(work, entries, condition, now)


def with_condition(
    conditions: Iterable[Body], new: Mapping[str, Any], now: str
) -> list[dict[str, Any]]:
    """Return conditions with a new one in its place; its time changes only with its status."""
    new = {"message": "", **new}
    old = [dict(one) for one in conditions]
    for index, one in enumerate(old):
        if one["type"] == new["type"]:
            same = one["status"] == new["status"]
            at = {"lastTransitionTime": one["lastTransitionTime"] if same else now}
            return [*old[:index], new | at, *old[index + 1 :]]
    return [*old, new | {"lastTransitionTime": now}]


def is_true(conditions: Iterable[Body], type_: str, generation: int) -> bool:
    """Tell whether a condition holds for a generation."""
    return any(
        c["type"] == type_ and c["status"] == "True" and c.get("observedGeneration") == generation
        for c in conditions
    )


def _before(work: Body, meta: Body) -> Body:
    entries: Sequence[Body] = work.get("status", {}).get("resourceStatus", {}).get("manifests", ())
    wanted = identity(meta)
    return next((one for one in entries if identity(one["resourceMeta"]) == wanted), {})


def _status(entry: Body, type_: str) -> str | None:
    return next((c["status"] for c in entry["conditions"] if c["type"] == type_), None)


def _status_of(
    work: Body, entries: Sequence[Body], condition: Mapping[str, Any], now: str
) -> dict[str, Any]:
    status = work.get("status", {})
    return {
        **status,
        "conditions": with_condition(status.get("conditions", ()), condition, now),
        "resourceStatus": {**status.get("resourceStatus", {}), "manifests": list(entries)},
    }
