"""Stores objects of a scenario in the replicator's collections. Pure.

Invariant: an object is in every collection of its kind, in a namespace if its kind is namespaced;
without one it is in `default`, as with kubectl, and an object without a uid gets one,
as from the API server. An object that the API server would refuse is a Misfit.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from kube_sync.config import Resource, Settings
from kube_sync.errors import Terminal
from kube_sync.inspect.scenarios.format import Facts, keys
from kube_sync.inspect.survey.exported import is_of
from kube_sync.inspect.survey.places import guess_places
from kube_sync.kube.collection import Item, ResourceVersion
from kube_sync.objects import ObjectKey
from kube_sync.opa.analysis.result import Collection

FACTS: Final = keys(Facts)  # fields that a scenario may set

_DEFAULT: Final = "default"
_TEXTS: Final = ("labels", "annotations")
_UIDS: Final = uuid.UUID("6f1d5a0e-4d0b-5f0e-9d0f-2a8c6c1b7e11")  # of objects without one
# Of clusters that a scenario describes by their facts alone.
_KINDS: Final = {"clusterprofiles": "ClusterProfile", "managedclusters": "ManagedCluster"}

Body = dict[str, Any]
Path = tuple[str, ...]


class InvalidObject(Terminal):
    """An object that cannot be stored; the caller knows the location."""


class Collections:
    """The collections of the configuration."""

    def __init__(self, settings: Settings, cluster_scoped: Iterable[str] = ()) -> None:
        """Determine the namespaced collections. Raises Misconfigured."""
        self.places: Mapping[str, Collection] = guess_places(settings.replicate, cluster_scoped)
        self._resources = {r.name: r for r in settings.replicate.resources}
        self.targets = frozenset(r.name for r in settings.targets())
        self.data_label = settings.policies.labelled.data  # of ConfigMaps with JSON data

    def items_of(self, body: Body) -> list[tuple[str, Item]]:
        """Return an object with each of its collections. Raises Misfit."""
        names = self.of(body)
        if not names:
            what = f"{body.get('apiVersion')} {body.get('kind')}"
            known = ", ".join(str(r.gvr) for r in self._resources.values())
            msg = f"{what} is of no collection of replicate.resources ({known})"
            raise InvalidObject(msg)
        return [(name, self.item(name, body)) for name in names]

    def of(self, body: Body) -> list[str]:
        """Return the collections of an object's kind."""
        version, kind = str(body.get("apiVersion")), str(body.get("kind"))
        return [name for name, r in self._resources.items() if is_of(version, kind, r)]

    def item(self, name: str, body: Body) -> Item:
        """Return an object as an item of a collection. Raises Misfit."""
        metadata = body.get("metadata")
        if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str):
            msg = "no Kubernetes object: metadata.name is missing"
            raise InvalidObject(msg)
        for path, message in invalid_metadata(body):
            msg = f"{'.'.join(path)}: {message}"
            raise InvalidObject(msg)
        key = self.key(name, metadata.get("namespace"), metadata["name"])
        uid = str(metadata.get("uid") or uuid.uuid5(_UIDS, f"{name}/{key}"))
        inside = {"namespace": key.namespace} if key.namespace else {}
        whole = {**body, "metadata": {**metadata, **inside, "uid": uid}}
        try:
            return Item(key, uid, ResourceVersion(""), msgspec.json.encode(whole))
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            msg = f"not of JSON: {error}"
            raise InvalidObject(msg) from error

    def key(self, name: str, namespace: object, own: str) -> ObjectKey:
        """Return the key of an object in a collection. Raises Misfit."""
        if not self.places[name].namespaced:
            if namespace:
                msg = f"{name} lie in no namespace"
                raise InvalidObject(msg)
            return ObjectKey("", own)
        return ObjectKey(str(namespace or _DEFAULT), own)

    def item_of_facts(self, name: str, text: str, facts: Mapping[str, Any]) -> Item:
        """Return an object that is made of facts alone. Raises Misfit."""
        namespace, _, own = text.rpartition("/")
        resource = self._resources[name]
        key = self.key(name, namespace, own)
        metadata = {"name": key.name, **({"namespace": key.namespace} if key.namespace else {})}
        return self.item(name, with_facts({**_heading(resource), "metadata": metadata}, facts))

    def item_with_facts(self, name: str, item: Item, facts: Mapping[str, Any]) -> Item:
        """Return an object with changed facts. Raises Misfit."""
        return self.item(name, with_facts(msgspec.json.decode(item.body), facts))


def with_facts(body: Body, facts: Mapping[str, Any]) -> Body:
    """Return an object with these facts merged into it (RFC 7386): null removes."""
    metadata = {key: facts[key] for key in _TEXTS if key in facts}
    rest = {key: value for key, value in facts.items() if key not in _TEXTS}
    found: Body = merged(body, {"metadata": metadata, **rest})
    return found


def merged(value: Any, patch: Any) -> Any:  # noqa: ANN401 - any JSON
    """Return JSON with a merge patch applied (RFC 7386)."""
    if not isinstance(patch, dict):
        return patch
    found = dict(value) if isinstance(value, dict) else {}
    for key, below in patch.items():
        if below is None:
            found.pop(key, None)
        else:
            found[key] = merged(found.get(key), below)
    return found


def invalid_metadata(body: Mapping[str, Any]) -> Iterator[tuple[Path, str]]:
    """Yield what the API server would refuse: labels and annotations that are no text."""
    metadata = body.get("metadata")
    for name in _TEXTS:
        found = metadata.get(name) if isinstance(metadata, dict) else None
        path = ("metadata", name)
        if found is None:
            continue
        if not isinstance(found, dict):
            yield path, f"{name} are a mapping"
            continue
        for key, value in found.items():
            if not isinstance(value, str):
                yield (*path, key), f"{name} are texts: put it into quotes"


def _heading(resource: Resource) -> Body:
    kind = _KINDS.get(resource.resource)
    return {"apiVersion": resource.gvr.api_version, **({"kind": kind} if kind else {})}
