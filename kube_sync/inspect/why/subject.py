"""Which object and which cluster a person means. Pure.

Keeps true: what is found is one object of a collection that decisions are about; where there is
none, what comes nearest is named, and nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

import msgspec

from kube_sync.config import Resource
from kube_sync.errors import NO_JSON, Broken, Misconfigured
from kube_sync.inspect.plan.cluster_changes import named
from kube_sync.inspect.plan.snapshot import Objects
from kube_sync.kube.collection import Item
from kube_sync.objects import ObjectKey

DEFAULT: Final = "default"  # the namespace of what names none, as kubectl has it
_NEAR: Final = 3


@dataclass(frozen=True, slots=True)
class Subject:
    """The object that is asked about."""

    resource: Resource
    item: Item

    @property
    def key(self) -> ObjectKey:
        """Where it lies."""
        return self.item.key

    def __str__(self) -> str:
        """Name it as people do."""
        return f"{self.resource.name} {self.item.key}"


class _Kind(msgspec.Struct):
    kind: str = ""


_kinds = msgspec.json.Decoder(_Kind)


def subject(
    asked: str,
    namespace: str | None,
    targets: Iterable[Resource],
    objects: Mapping[str, Objects],
) -> Subject:
    """Return the object of `kind/name`. Raises Misconfigured; Broken, naming what comes near."""
    kind, name = kind_and_name(asked)
    known = list(targets)
    fits = [r for r in known if kind.lower() in _spellings(r, objects.get(r.name, {}))]
    if not fits:
        names = ", ".join(r.name for r in known)
        raise Broken([f"{asked}: decisions are not about {kind}, but about {names}"])
    found = [
        Subject(resource, item)
        for resource in fits
        for key in (ObjectKey(namespace or DEFAULT, name), ObjectKey("", name))
        if (item := objects.get(resource.name, {}).get(key)) is not None
    ]
    if not found:
        raise Broken([_missing(asked, name, namespace, fits, objects)])
    if len(found) > 1:
        several = " or ".join(f"{s.resource.name}/{name}" for s in found)
        raise Broken([f"{asked}: it may be {several}: say which"])
    return found[0]


def cluster(asked: str, clusters: Objects) -> Item:
    """Return the one cluster of a name, `namespace/name` or bare. Raises Broken."""
    names = {spelt: str(key) for key in clusters for spelt in (key.name, str(key))}
    near = get_close_matches(asked, names, _NEAR) or sorted({k.name for k in clusters})[:_NEAR]
    return clusters[named(asked, clusters, "--cluster", perhaps=_perhaps(near))]


def kind_and_name(text: str) -> tuple[str, str]:
    """Return what `replicaset/web` names. Raises Misconfigured."""
    kind, _, name = text.partition("/")
    if not kind or not name:
        msg = f"{text}: expected KIND/NAME, as in replicaset/web"
        raise Misconfigured(msg)
    return kind, name


def _spellings(resource: Resource, objects: Objects) -> Iterator[str]:
    plural = resource.resource
    yield from (resource.name, plural, f"{plural}.{resource.group}", str(resource.gvr))
    yield from (plural.removesuffix("s"), plural.removesuffix("es"))
    if plural.endswith("ies"):
        yield plural.removesuffix("ies") + "y"
    if (first := next(iter(objects.values()), None)) is not None:
        try:
            yield _kinds.decode(first.body).kind.lower()
        except NO_JSON:
            return


def _missing(
    asked: str,
    name: str,
    namespace: str | None,
    fits: Iterable[Resource],
    objects: Mapping[str, Objects],
) -> str:
    keys = [key for resource in fits for key in objects.get(resource.name, {})]
    elsewhere = sorted(str(key) for key in keys if key.name == name)
    near = get_close_matches(name, {key.name for key in keys}, _NEAR)
    others = sorted(str(key) for key in keys if key.name in near)
    where = namespace or DEFAULT
    return f"there is no {asked} in namespace {where}{_perhaps((elsewhere or others)[:_NEAR])}"


def _perhaps(near: Iterable[str]) -> str:
    found = ", ".join(near)
    return f"; perhaps {found}?" if found else ""
