"""What the agent reads of an object by feedback rules: scalars, each with its type.

Keeps true: one bad path drops no other; a value that is missing or null is left out in silence; a
list, an object or a float is an error, unless `raw` (the feature gate RawFeedbackJsonString, off
as in the agent); of several matches the first counts without `raw`, their list with it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tests.ocm.jsonpath import BadPath, find

RAW_LIMIT = 1024  # bytes of JSON
_SYNCED = "StatusFeedbackSynced"


def feedback(
    body: Mapping[str, Any], rules: Sequence[Mapping[str, Any]], *, raw: bool = False
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Return the values that rules ask for, and the condition that says how it went."""
    if not rules:
        return [], {"type": _SYNCED, "status": "True", "reason": "NoStatusFeedbackSynced"}
    values: list[dict[str, Any]] = []
    errors: list[str] = []
    for path in (path for rule in rules for path in _paths(rule)):
        try:
            value = _value(path, body, raw=raw)
        except ValueError as error:
            errors.append(str(error))
        else:
            values += [{"name": path["name"], "fieldValue": value}] if value else []
    if not errors:
        return values, {"type": _SYNCED, "status": "True", "reason": _SYNCED}
    said = errors[0] if len(errors) == 1 else f"[{', '.join(errors)}]"
    return values, {
        "type": _SYNCED,
        "status": "False",
        "reason": "StatusFeedbackSyncFailed",
        "message": f"Sync status feedback failed with error {said}",
    }


def _paths(rule: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    if rule["type"] != "JSONPaths":
        msg = f"the stand-in does not know feedback rules of type {rule['type']}"
        raise NotImplementedError(msg)
    paths: Sequence[Mapping[str, Any]] = rule.get("jsonPaths", ())
    return paths


def _value(path: Mapping[str, Any], body: Mapping[str, Any], *, raw: bool) -> dict[str, Any] | None:
    """Return the typed value of a path, None where there is none. Raises ValueError."""
    name = path["name"]
    if path.get("version") and path["version"] != body["apiVersion"].rpartition("/")[2]:
        msg = f"version set in the path {name} is not matched for the related resource"
        raise ValueError(msg)
    try:
        found = find(path["path"], body)
    except BadPath as error:
        msg = f"failed to parse json path {path['path']} of {name} with error: {error}"
        raise ValueError(msg) from error
    if not found:
        return None
    value = found if raw and len(found) > 1 else found[0]
    return None if value is None else _typed(name, value, raw=raw)


def _typed(name: str, value: object, *, raw: bool) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"type": "Boolean", "boolean": value}
    if isinstance(value, int):
        return {"type": "Integer", "integer": value}
    if isinstance(value, str):
        return {"type": "String", "string": value}
    if not raw:
        msg = f"the type {type(value).__name__} of the value for {name} is not found"
        raise ValueError(msg)
    text = json.dumps(value, separators=(",", ":"))
    if len(text.encode()) > RAW_LIMIT:
        msg = (
            f"the length of returned json raw string for name {name} is larger than the maximum "
            f"length {RAW_LIMIT}"
        )
        raise ValueError(msg)
    return {"type": "JsonRaw", "jsonRaw": text}
