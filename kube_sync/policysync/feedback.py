"""Parses the feedback on a copy in the status of its ManifestWork.

Invariant: what the agent reported for an earlier generation of the work does not count for this
one. The values read from the spoke's object identify their copy (the field `digest`), since the
agent reads them on its own schedule: up to a minute later.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from kube_sync.errors import NO_JSON
from kube_sync.policysync.ancestors import is_reserved, reported
from kube_sync.policysync.copies import Feedback
from kube_sync.topology.raw_json import UNREADABLE, items, mapping, number, text

_VALUES: Final[Mapping[str, tuple[str, type]]] = {
    "String": ("string", str),
    "Integer": ("integer", int),
    "Boolean": ("boolean", bool),
    "JsonRaw": ("jsonRaw", str),
}


def feedback_of(work: Mapping[str, Any]) -> Feedback | None:
    """Return the feedback, None if there is none; unreadable parts are a problem."""
    try:
        status = mapping(work, "status")
        if not status:
            return None
        manifest = next(items(status, "resourceStatus", "manifests"), {})
        columns = {name: found for name, found in _columns(manifest) if is_reserved(name)}
        values = {name: one for name, one in _values(manifest) if name not in columns}
        applied = _applied(work, status)
        problem = "; ".join(_problems(status, manifest, applied=applied))
        return Feedback(applied, values, problem, reported(_copy(work), columns))
    except UNREADABLE as error:
        return Feedback(None, {}, f"the status of the work cannot be read: {error}")


def _applied(work: Mapping[str, Any], status: Mapping[str, Any]) -> bool | None:
    for one in items(status, "conditions"):
        if text(one, "type") == "Applied":
            seen, is_now = number(one, "observedGeneration"), number(work, "metadata", "generation")
            if seen is not None and is_now is not None and seen < is_now:
                return None
            return {"True": True, "False": False}.get(text(one, "status"))
    return None


def _copy(work: Mapping[str, Any]) -> Mapping[str, Any]:
    return next(items(work, "spec", "workload", "manifests"), {})


def _columns(manifest: Mapping[str, Any]) -> Iterator[tuple[str, Sequence[object]]]:
    """Yield the matches of each field: one, or the list that an agent reports as raw JSON."""
    for name, value in _values(manifest):
        yield name, (value,)
    for one in items(manifest, "statusFeedback", "values"):
        if text(one, "fieldValue", "type") == "JsonRaw":
            yield text(one, "name"), _list(text(one, "fieldValue", "jsonRaw"))


def _list(raw: str) -> Sequence[object]:
    try:
        found = msgspec.json.decode(raw)
    except NO_JSON:
        return ()
    return found if isinstance(found, list) else ()


def _values(manifest: Mapping[str, Any]) -> Iterator[tuple[str, str | int | bool]]:
    for one in items(manifest, "statusFeedback", "values"):
        field, kind = _VALUES.get(text(one, "fieldValue", "type"), ("", str))
        value = mapping(one, "fieldValue").get(field)
        name = text(one, "name")
        # A boolean is an int in Python, but no Integer.
        if name and type(value) is kind and isinstance(value, str | int):
            yield name, value


def _problems(
    status: Mapping[str, Any], manifest: Mapping[str, Any], *, applied: bool | None
) -> Iterator[str]:
    """Yield why it is not applied, in the words of the spoke's API server, or cannot be read."""
    conditions = {text(one, "type"): one for one in items(manifest, "conditions")}
    for one in items(status, "conditions"):
        conditions.setdefault(text(one, "type"), one)
    kinds = ["Applied"] if applied is False else []
    for kind in [*kinds, "StatusFeedbackSynced"]:
        if text(found := conditions.get(kind, {}), "status") == "False":
            yield text(found, "message") or text(found, "reason") or f"{kind} is False"
