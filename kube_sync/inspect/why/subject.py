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
from kube_sync.kube.naming import (
    DEFAULT,
    Named,
    Reference,
    is_built_in,
    refused,
    spellings,
    within,
)
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


def subject(
    asked: Reference,
    namespace: str | None,
    targets: Iterable[Resource],
    objects: Mapping[str, Objects],
    kinds: Mapping[str, frozenset[str]] | None = None,
) -> Subject:
    """Return the object that is named. Raises Misconfigured; Broken, naming what comes near.

    `kinds` are more names of resources, by their names in OPA.
    """
    known = list(targets)
    words = {r.name: _spellings(r, objects.get(r.name, {}), kinds or {}) for r in known}
    readings = within(asked, namespace)
    found = {
        (resource.name, key): Subject(resource, item)
        for one in readings
        for resource in _fitting(one, known, words)
        for key in one.keys(namespace)
        if (item := objects.get(resource.name, {}).get(key)) is not None
    }
    if not found:
        likely = next((one for one in readings if _fitting(one, known, words)), readings[-1])
        fits = _fitting(likely, known, words)
        if _is_of_another_kind(readings, known, words):
            raise Broken([refused(asked[0].text, asked[0].kind or "", words)])
        raise Broken([_missing(likely, namespace, fits, objects)])
    if len(found) > 1:
        several = " or ".join(f"{name}/{key}" for name, key in found)
        raise Broken([f"{asked[0].text}: it may be {several}: say which"])
    return next(iter(found.values()))


def _fitting(
    one: Named, known: Iterable[Resource], words: Mapping[str, frozenset[str]]
) -> list[Resource]:
    return [r for r in known if one.kind is None or one.kind.lower() in words[r.name]]


def _is_of_another_kind(
    readings: Reference, known: Iterable[Resource], words: Mapping[str, frozenset[str]]
) -> bool:
    """Tell whether the first word can only be a kind, of which nothing is decided."""
    first = readings[0]
    if first.kind is None or _fitting(first, known, words):
        return False
    return len(readings) == 1 or is_built_in(first.kind)


def cluster(asked: str, clusters: Objects) -> Item:
    """Return the one cluster of a name, `namespace/name` or bare. Raises Broken."""
    names = {spelt: str(key) for key in clusters for spelt in (key.name, str(key))}
    near = get_close_matches(asked, names, _NEAR) or sorted({k.name for k in clusters})[:_NEAR]
    return clusters[named(asked, clusters, "CLUSTER", perhaps=_perhaps(near))]


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
    likely: Named,
    namespace: str | None,
    fits: Iterable[Resource],
    objects: Mapping[str, Objects],
) -> str:
    name, where = likely.name or "", likely.namespace or namespace or DEFAULT
    keys = [key for resource in fits for key in objects.get(resource.name, {})]
    elsewhere = sorted({str(key) for key in keys if key.name == name})
    near = get_close_matches(name, {key.name for key in keys}, _NEAR)
    others = sorted({str(key) for key in keys if key.name in near})
    what = likely.text if likely.namespace is None else name
    return f"there is no {what} in namespace {where}{_perhaps((elsewhere or others)[:_NEAR])}"


def _perhaps(near: Iterable[str]) -> str:
    found = ", ".join(near)
    return f"; perhaps {found}?" if found else ""
