"""JSON Schemas of the configuration, of scenarios and of the decision stream, for editors.

Invariant: they are made from the types by which the files are read and the records are written, and
their descriptions from the text beside these, so none differs from what is accepted. What types
cannot say (a name that has to exist, keys that exclude each other) only the commands check.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, get_args, get_origin, get_type_hints

import msgspec

from kube_sync.config import Settings
from kube_sync.config.explanation import about, texts_of
from kube_sync.decisions.records import GroupRecord, Record
from kube_sync.inspect.scenarios.format import ScenarioFile
from kube_sync.observability.printing import indented

Schema = dict[str, Any]
_Struct = type[msgspec.Struct]
_DRAFT: Final = "https://json-schema.org/draft/2020-12/schema"
_RECORDS: Final = "A record of the decision stream (docs/decisions.md). Ignore unknown fields."


def configuration() -> Schema:
    """Return the schema of the configuration file."""
    found = _of(Settings, "kube-sync configuration")
    # Before it is checked, what is null is dropped, but not from the items of lists.
    for struct in _structs(Settings, through_lists=False):
        part = found if struct is Settings else found["$defs"][struct.__name__]
        part["properties"] = {
            name: _nullable(schema) for name, schema in part["properties"].items()
        }
    return found


def scenario() -> Schema:
    """Return the schema of a scenario file."""
    return _of(ScenarioFile, "kube-sync scenario")


def decisions() -> Schema:
    """Return the schema of a record of the decision stream."""
    members = get_args(Record | GroupRecord)
    schemas, parts = msgspec.json.schema_components(members)
    structs = [struct for member in members for struct in _structs(member)]
    head = {"$schema": _DRAFT, "title": "kube-sync decision record", "description": _RECORDS}
    return {**head, "anyOf": [*schemas], "$defs": _described(parts, structs)}


SCHEMAS: Final[Mapping[str, Callable[[], Schema]]] = {
    "config": configuration,
    "scenario": scenario,
    "decisions": decisions,
}


def text(name: str) -> str:
    """Return a schema as indented JSON."""
    return indented(SCHEMAS[name]()) + "\n"


def _of(whole: _Struct, title: str) -> Schema:
    _, parts = msgspec.json.schema_components([whole])
    described = _described(parts, _structs(whole))
    top = described.pop(whole.__name__)
    return {"$schema": _DRAFT, "title": title, **top, "$defs": described}


def _described(parts: Mapping[str, Schema], structs: Iterator[_Struct] | list[_Struct]) -> Schema:
    """Return the parts with the texts of their types, and of their fields."""
    found = {name: dict(part) for name, part in sorted(parts.items())}
    for struct in structs:
        part, texts = found[struct.__name__], texts_of(struct)
        part.pop("title", None)
        part["description"] = about(struct)
        properties = dict(part["properties"])
        for field in msgspec.structs.fields(struct):
            schema = dict(properties[field.encode_name])
            if "$ref" in schema:
                schema.pop("default", None)  # that of each of its fields says it
            elif field.name in texts:
                schema.pop("description", None)
            if field.name in texts:
                schema = {"description": texts[field.name], **schema}
            schema |= _keyed(field.type)
            properties[field.encode_name] = schema
        part["properties"] = properties
    return found


def _keyed(kind: Any) -> Schema:  # noqa: ANN401 - any type
    """Return what the keys of a mapping have to be; msgspec's schemas leave it out."""
    if get_origin(kind) is not Mapping:
        return {}
    found = msgspec.json.schema(get_args(kind)[0])
    names = {key: value for key, value in found.items() if key not in ("type", "description")}
    return {"propertyNames": names} if names else {}


def _structs(whole: _Struct, *, through_lists: bool = True) -> Iterator[_Struct]:
    """Yield a type and all that its fields have, each once."""
    found, waiting = dict[_Struct, None](), [whole]
    while waiting:
        struct = waiting.pop()
        if struct not in found:
            found[struct] = None
            kinds = get_type_hints(struct).values()
            waiting += [s for kind in kinds for s in _within(kind, through_lists=through_lists)]
    yield from found


def _within(kind: Any, *, through_lists: bool) -> Iterator[_Struct]:  # noqa: ANN401 - any type
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        yield kind
    elif through_lists or getattr(kind, "__origin__", None) is not tuple:
        for argument in get_args(kind):
            yield from _within(argument, through_lists=through_lists)


def _nullable(schema: Schema) -> Schema:
    """Return the schema of what may be null instead."""
    if isinstance(below := schema.get("additionalProperties"), dict):
        schema = {**schema, "additionalProperties": _nullable(below)}
    match schema:
        case {"anyOf": [*choices]}:
            null = {"type": "null"}
            return schema if null in choices else {**schema, "anyOf": [*choices, null]}
        case {"enum": [*values]}:
            return {**schema, "enum": [*values, None]}
        case {"type": str(kind)}:
            return {**schema, "type": [kind, "null"]}
        case {"$ref": reference}:
            rest = {key: value for key, value in schema.items() if key != "$ref"}
            return {**rest, "anyOf": [{"$ref": reference}, {"type": "null"}]}
        case _:
            return schema
