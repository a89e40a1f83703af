"""Applies the cluster changes of the command line to a snapshot. Pure.

Invariant: a change of a cluster that does not exist is an error, unless a file adds it; so is an
ambiguous name. Changes apply in one order: files, then fields, then removed clusters.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from kube_sync.errors import NO_JSON, Broken
from kube_sync.inspect.plan.snapshot import Objects
from kube_sync.kube.collection import Item, ResourceVersion
from kube_sync.objects import ObjectKey

_MAPS: Final = ("labels", "annotations")


@dataclass(frozen=True, slots=True)
class Facts:
    """The requested changes: whole clusters by file, fields as spelt, and removed clusters."""

    added: Sequence[tuple[str, Mapping[str, Any]]] = ()  # file and object
    fields: Sequence[str] = ()
    removed: Sequence[str] = ()

    def __bool__(self) -> bool:
        return bool(self.added or self.fields or self.removed)


@dataclass(frozen=True, slots=True)
class _Field:
    """One field to set; the `value` UNSET removes it."""

    path: tuple[str, ...]
    value: Any


def applied(facts: Facts, clusters: Objects) -> dict[ObjectKey, Item]:
    """Return the clusters after the changes. Raises Broken with all impossible ones."""
    found, problems = dict(clusters), list[str]()
    for file, body in facts.added:
        try:
            item = _added_item(file, body)
            found[item.key] = item
        except Broken as error:
            problems.append(str(error))
    for text in facts.fields:
        try:
            key, field = _read(text, found)
            found[key] = _changed(found[key], field, text)
        except Broken as error:
            problems.append(str(error))
    for name in facts.removed:
        try:
            del found[named(name, found, "--remove-cluster")]
        except Broken as error:
            problems.append(str(error))
    if problems:
        raise Broken(problems)
    return found


def named(
    name: str, keys: Iterable[ObjectKey], option: str, what: str = "cluster", perhaps: str = ""
) -> ObjectKey:
    """Return the one key of a name, `namespace/name` or bare. Raises Broken with similar names."""
    fits = [key for key in keys if name in (str(key), key.name)]
    if len(fits) == 1:
        return fits[0]
    if not fits:
        raise Broken([f"{option}: there is no {what} {name}{perhaps}"])
    several = " or ".join(sorted(map(str, fits)))
    raise Broken([f"{option}: {name} may be {several}: say which"])


def _read(text: str, clusters: Objects) -> tuple[ObjectKey, _Field]:
    """Parse the cluster and the field; names may contain dots, so the longest match counts."""
    option = "--set-cluster"
    name_and_path, equals, value = text.partition("=")
    names = sorted({n for key in clusters for n in (str(key), key.name)}, key=len, reverse=True)
    name = next((n for n in names if name_and_path.startswith(f"{n}.")), None)
    if name is None:
        raise Broken([f"{option} {text}: there is no cluster {name_and_path.split('.', 1)[0]}"])
    path = name_and_path[len(name) + 1 :]
    if not equals:
        if not path.endswith("-") or path == "-":
            wanted = "NAME.PATH=VALUE, or NAME.PATH- to take it away"
            raise Broken([f"{option} {text}: expected {wanted}"])
        return named(name, clusters, option), _Field(_path(path[:-1], text), msgspec.UNSET)
    found = _path(path, text)
    plain = found[:1] == ("metadata",) and found[1:2] in {(m,) for m in _MAPS}
    return named(name, clusters, option), _Field(found, value if plain else _json(value))


def _path(text: str, whole: str) -> tuple[str, ...]:
    head, _, key = text.removeprefix("metadata.").partition(".")
    path = ("metadata", head, key) if head in _MAPS else tuple(text.split("."))
    if not all(path):
        raise Broken([f"--set-cluster {whole}: {text or 'nothing'} is no field"])
    if path in {("metadata", "name"), ("metadata", "namespace")}:
        raise Broken([f"--set-cluster {whole}: a cluster of another name is another cluster"])
    return path


def _json(text: str) -> Any:  # noqa: ANN401 - any JSON
    try:
        return msgspec.json.decode(text)
    except NO_JSON:
        return text


def _changed(item: Item, field: _Field, text: str) -> Item:
    whole = msgspec.json.decode(item.body)
    *above, last = field.path
    inside = whole
    for part in above:
        inside = inside.setdefault(part, {}) if isinstance(inside, dict) else None
    if not isinstance(inside, dict):
        raise Broken([f"--set-cluster {text}: {item.key} has no such field: it lies in no object"])
    if field.value is msgspec.UNSET:
        inside.pop(last, None)
    else:
        inside[last] = field.value
    return Item(item.key, item.uid, item.version, msgspec.json.encode(whole))


def _added_item(file: str, body: Mapping[str, Any]) -> Item:
    metadata = body.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    if not isinstance(metadata, dict) or not isinstance(name, str) or not name:
        raise Broken([f"{file}: a cluster without metadata.name"])
    key = ObjectKey(str(metadata.get("namespace") or ""), name)
    return Item(
        key, str(metadata.get("uid", "")), ResourceVersion(""), msgspec.json.encode(dict(body))
    )
