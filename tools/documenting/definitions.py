"""docs/crds.md: the fields of kube-sync's own kinds, rendered from their definitions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

_HEAD: Final = """\
# Custom resources
This page lists the fields of each kind that kube-sync defines. It is written by
`python -m tools.documenting` from `manifests/crds/`; do not edit. `kubectl explain` prints the same
where the definitions are installed.

In a path, `[]` stands for the items of a list and `.*` for the values of a map.
"""
_COLUMNS: Final = "| field | type | meaning |\n|---|---|---|"
# Of every object; a table of ours says nothing of it.
_COMMON: Final = frozenset({"apiVersion", "kind", "metadata"})
_Schema = Mapping[str, Any]


def rendered(folder: Path) -> str:
    """Return the page about the definitions in the files of a folder."""
    texts = (file.read_text(encoding="utf-8") for file in sorted(folder.glob("*.yaml")))
    found = [document for text in texts for document in yaml.safe_load_all(text)]
    kinds = [one for one in found if one["kind"] == "CustomResourceDefinition"]
    return "\n".join([_HEAD, *(_kind(one["spec"]) for one in kinds)])


def _kind(spec: Mapping[str, Any]) -> str:
    (version,) = spec["versions"]
    schema = version["schema"]["openAPIV3Schema"]
    names = spec["names"]
    short = ", ".join(f"`{name}`" for name in names.get("shortNames", ()))
    scope = {"Cluster": "cluster-scoped", "Namespaced": "namespaced"}[spec["scope"]]
    lines = [
        f"## {names['kind']}",
        _cell(schema["description"]),
        "",
        f"`{spec['group']}/{version['name']}`, {scope}, `{names['plural']}`"
        + (f" (short: {short})" if short else ""),
        "",
        _COLUMNS,
        *(_row(path, field, required=required) for path, field, required in _fields(schema)),
    ]
    return "\n".join(lines) + "\n"


def _fields(schema: _Schema, above: str = "") -> Iterator[tuple[str, _Schema, bool]]:
    """Yield each field below a schema: its path, its own schema, and whether it is required."""
    for name, field in schema.get("properties", {}).items():
        if above or name not in _COMMON:
            path = f"{above}{name}"
            yield path, field, name in schema.get("required", ())
            yield from _fields(field, f"{path}.")
    for part, suffix in (("items", "[]."), ("additionalProperties", ".*.")):
        if isinstance(below := schema.get(part), Mapping):
            yield from _fields(below, above.removesuffix(".") + suffix)


def _row(path: str, field: _Schema, *, required: bool) -> str:
    meaning = _cell(field.get("description", ""))
    return f"| `{path}`{', required' if required else ''} | {_type(field)} | {meaning} |"


def _type(field: _Schema) -> str:
    if values := field.get("enum"):
        return "one of " + ", ".join(f"`{value}`" for value in values)
    if items := field.get("items"):
        return f"list of {_type(items)}"
    if isinstance(values := field.get("additionalProperties"), Mapping):
        return f"map of {_type(values)}"
    return str(field.get("type", "any"))


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").replace("<", "\\<").replace("*", "\\*").split())
