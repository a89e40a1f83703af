"""Extract what a field manager applied to an object, to apply it again with a change.

An apply gives up what it does not name (Kubernetes, "Server-Side Apply"), so whoever applies for a
manager that exists has to name all of its fields; client-go's `Extract…` functions do the same. The
names of fields are those of `fieldsV1` (structured-merge-diff, fieldpath/serialize-pe.go):
`f:` a field, `k:` an item of a list by its keys, `v:` an item by its value, `i:` by its position,
`.` the item itself. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from kube_sync.errors import NO_JSON, Terminal


def applied_status(document: Mapping[str, Any], manager: str, api_version: str) -> dict[str, Any]:
    """Return the fields of the status that `manager` applied; empty if it applied none.

    Raises Terminal if it applied them in another version, or if they cannot be told.
    """
    status: dict[str, Any] = {}
    for entry in document.get("metadata", {}).get("managedFields") or ():
        if (entry.get("manager"), entry.get("operation")) != (manager, "Apply"):
            continue
        if entry.get("subresource") != "status":
            continue
        if entry.get("apiVersion") != api_version:
            msg = f"{manager} writes {entry.get('apiVersion')}, and this is {api_version}"
            raise Terminal(msg)
        fields = entry.get("fieldsV1", {}).get("f:status", {})
        status = dict(_fields_of(_extract(document.get("status", {}), fields)))
    return status


def _extract(value: object, fields: Mapping[str, Any]) -> object:
    """Return the part of a value that `fields` name."""
    named = {name: below for name, below in fields.items() if name != "."}
    if not fields:
        return value  # a leaf, or a whole that is replaced at once
    if isinstance(value, Mapping):
        return dict(_members(value, named))
    if isinstance(value, list):
        return list(_items(value, named))
    return value


def _members(value: Mapping[str, Any], named: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, below in named.items():
        field = name.removeprefix("f:")
        if field == name:
            raise _unknown(name)
        if field in value:
            yield field, _extract(value[field], below)


def _items(value: Sequence[Any], named: Mapping[str, Any]) -> Iterator[Any]:
    for name, below in named.items():
        kind, _, text = name.partition(":")
        try:
            wanted = msgspec.json.decode(text)
        except NO_JSON as error:
            raise _unknown(name) from error
        match kind:
            case "k":
                for item in value:
                    if all(item.get(key) == has for key, has in wanted.items()):
                        yield {**wanted, **_fields_of(_extract(item, below))}
            case "v":
                yield from (item for item in value if item == wanted)
            case _:
                raise _unknown(name)


def _fields_of(item: object) -> Mapping[str, Any]:
    return item if isinstance(item, Mapping) else {}


def _unknown(name: str) -> Terminal:
    return Terminal(f"the managed field {name!r} cannot be read")
