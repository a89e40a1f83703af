"""Finds the object and the cluster that a user names. Pure.

Invariant: the result is one object of a collection with decisions; if there is
none, similar names are reported, and nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

import msgspec

from kube_sync.config import Resource
from kube_sync.errors import NO_JSON, Broken
from kube_sync.inspect.plan.cluster_changes import named
from kube_sync.inspect.plan.snapshot import Objects
from kube_sync.kube.collection import Item
from kube_sync.kube.naming import DEFAULT, Named, Reference, is_built_in, refused, spellings, within
from kube_sync.objects import ObjectKey

_NEAR: Final = 3


@dataclass(frozen=True, slots=True)
class Subject:
    """The object of the question."""

    resource: Resource
    item: Item

    @property
    def key(self) -> ObjectKey:
        """Its namespace and name."""
        return self.item.key

    def __str__(self) -> str:
        """Format for people."""
        return f"{self.resource.name} {self.item.key}"


class _Kind(msgspec.Struct):
    kind: str = ""


_kinds = msgspec.json.Decoder(_Kind)


def find_subject(
    reference: Reference,
    namespace: str | None,
    targets: Iterable[Resource],
    objects: Mapping[str, Objects],
    kinds: Mapping[str, frozenset[str]] | None = None,
) -> Subject:
    """Return the object that is named. Raises Misconfigured; Broken, naming what comes near.

    `kinds` are more names of resources, by their names in OPA.
    """
    known = list(targets)
    spellings_by_name = {r.name: _spellings(r, objects.get(r.name, {}), kinds or {}) for r in known}
    readings = within(reference, namespace)
    found = {
        (resource.name, key): Subject(resource, item)
        for one in readings
        for resource in _matching(one, known, spellings_by_name)
        for key in one.keys(namespace)
        if (item := objects.get(resource.name, {}).get(key)) is not None
    }
    if not found:
        likeliest = next(
            (one for one in readings if _matching(one, known, spellings_by_name)), readings[-1]
        )
        matching = _matching(likeliest, known, spellings_by_name)
        if _is_of_another_kind(readings, known, spellings_by_name):
            raise Broken([refused(reference[0].text, reference[0].kind or "", spellings_by_name)])
        raise Broken([_missing(likeliest, namespace, matching, objects)])
    if len(found) > 1:
        several = " or ".join(f"{name}/{key}" for name, key in found)
        raise Broken([f"{reference[0].text}: it may be {several}: say which"])
    return next(iter(found.values()))


def _matching(
    one: Named, known: Iterable[Resource], spellings_by_name: Mapping[str, frozenset[str]]
) -> list[Resource]:
    return [r for r in known if one.kind is None or one.kind.lower() in spellings_by_name[r.name]]


def _is_of_another_kind(
    readings: Reference, known: Iterable[Resource], spellings_by_name: Mapping[str, frozenset[str]]
) -> bool:
    """Tell whether the first word can only be a kind, of which nothing is decided."""
    first = readings[0]
    if first.kind is None or _matching(first, known, spellings_by_name):
        return False
    return len(readings) == 1 or is_built_in(first.kind)


def find_cluster(reference: str, clusters: Objects) -> Item:
    """Return the one cluster of a name, `namespace/name` or bare. Raises Broken."""
    names = {spelt: str(key) for key in clusters for spelt in (key.name, str(key))}
    similar = (
        get_close_matches(reference, names, _NEAR) or sorted({k.name for k in clusters})[:_NEAR]
    )
    return clusters[named(reference, clusters, "CLUSTER", perhaps=_suggestion(similar))]


def _spellings(
    resource: Resource, objects: Objects, kinds: Mapping[str, frozenset[str]]
) -> frozenset[str]:
    return (
        spellings(resource.gvr)
        | {resource.name.lower(), *_kind_of(objects)}
        | kinds.get(resource.name, frozenset())
    )


def _kind_of(objects: Objects) -> Iterator[str]:
    if (first := next(iter(objects.values()), None)) is not None:
        try:
            yield _kinds.decode(first.body).kind.lower()
        except NO_JSON:
            return


def _missing(
    likeliest: Named,
    namespace: str | None,
    matching: Iterable[Resource],
    objects: Mapping[str, Objects],
) -> str:
    name, where = likeliest.name or "", likeliest.namespace or namespace or DEFAULT
    keys = [key for resource in matching for key in objects.get(resource.name, {})]
    elsewhere = sorted({str(key) for key in keys if key.name == name})
    similar = get_close_matches(name, {key.name for key in keys}, _NEAR)
    others = sorted({str(key) for key in keys if key.name in similar})
    what = likeliest.text if likeliest.namespace is None else name
    return f"there is no {what} in namespace {where}{_suggestion((elsewhere or others)[:_NEAR])}"


def _suggestion(similar: Iterable[str]) -> str:
    found = ", ".join(similar)
    return f"; perhaps {found}?" if found else ""
