"""The schema of the value `config`: that of kube-sync's own configuration, in one piece.

Helm reads `on` and `off` as booleans where they are not in quotes; the schema refuses these, too.
"""

from __future__ import annotations

from typing import Any

from kube_sync.inspect.schemas import configuration
from tools.charting.schemas import Schema


def config_schema() -> Schema:
    """Return the JSON Schema of the configuration, without references into itself."""
    whole = configuration()
    parts = whole.pop("$defs")
    found: Schema = _inlined(whole, parts)
    return {key: value for key, value in found.items() if key not in ("$schema", "title")}


def _inlined(node: Any, parts: Schema) -> Any:
    if isinstance(node, list):
        return [_inlined(one, parts) for one in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        return _inlined(parts[node["$ref"].rpartition("/")[2]], parts)
    found: Schema = {key: _inlined(value, parts) for key, value in node.items() if value != []}
    rest = {key: value for key, value in found.items() if key != "anyOf"}
    match found.get("anyOf"):
        case [{"type": str(kind)} as one, {"type": "null"}]:
            return {**one, **rest, "type": [kind, "null"]}
        case [{"enum": [*words]}, {"type": "null"}]:
            return {**rest, "enum": [*words, None]}
    return found
