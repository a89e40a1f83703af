"""A sink that no part of the project knows: it writes each placement to a ConfigMap.

docs/sinks.md has the class word by word.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import msgspec

from kube_sync.decisions.decision import PLACEMENT
from kube_sync.errors import NotFound
from kube_sync.guard import HISTORY
from kube_sync.kube.cache import Cache, Changes
from kube_sync.kube.client import KubeClient
from kube_sync.kube.collection import KubeCollection
from kube_sync.kube.configmaps import CONFIGMAPS
from kube_sync.objects import GroupVersionResource, ObjectKey
from kube_sync.processes.sinks import Parts
from kube_sync.remediation.decision_cache import Key
from kube_sync.remediation.plan import Current, Decided, Nothing, Publish, Step, Write
from kube_sync.remediation.sinks.placement import clusters_of, kept, plan_placement
from kube_sync.remediation.sinks.sink import Changed, Sink
from kube_sync.runtime.services import Service

LABEL = "example.com/placement-of"  # the resource


class ConfigMapSink:
    """Writes the clusters of each placement to a ConfigMap beside the target."""

    name = "config_maps"

    def __init__(self, kube: KubeClient) -> None:
        self._kube = kube
        self._subscribers: list[Changed] = []
        self.there = Cache[dict[str, Any]](  # filled by a watch of the ConfigMaps with the label
            lambda item: msgspec.json.decode(item.body), self._differ, lambda: self._notify(None)
        )

    @property
    def unknown(self) -> str:
        return "" if self.there.served else "ConfigMaps of placements"

    def subscribe(self, changed: Changed) -> None:
        self._subscribers.append(changed)

    def keys(self) -> list[Key]:
        return [_key(found) for found in self.there.objects.values()]

    def read(self, key: Key, target: Current) -> Current:
        found = self.there.get(_place(key))
        if found is None or found["data"]["uid"] != target.uid:
            return kept(target, None)
        history = found["metadata"].get("annotations", {}).get(HISTORY)
        version = found["metadata"]["resourceVersion"]
        return kept(target, found["data"]["clusters"].split(), history, version)

    def plan(self, key: Key, wanted: Decided, current: Current | None) -> Step:
        if current is not None:
            return plan_placement(wanted, current)
        return Publish("", {PLACEMENT: None}) if self.there.get(_place(key)) else Nothing()

    async def write(self, key: Key, step: Write) -> None:
        place = _place(key)
        path, text = CONFIGMAPS.path(place.namespace, place.name), step.annotations[PLACEMENT]
        if text is None:
            with suppress(NotFound):
                await self._kube.request("DELETE", path)
            return
        history = step.annotations.get(HISTORY)
        body = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": place.name,
                "labels": {LABEL: key[0].resource},
                "annotations": {HISTORY: history} if history else {},
                **({"resourceVersion": step.version} if step.version else {}),
            },
            "data": {
                "clusters": " ".join(sorted(clusters_of(text) or ())),
                "uid": step.uid,
                "target": f"{key[0].group}/{key[0].version}/{key[0].resource}/{key[1].name}",
            },
        }
        await self._kube.request(
            "PATCH",
            path,
            params={"fieldManager": "kube-sync-remediator", "force": "true"},
            body=msgspec.json.encode(body),
            content_type="application/apply-patch+yaml",
        )

    def _differ(self, changes: Changes[dict[str, Any]]) -> None:
        self._notify([_key(found) for pair in changes.values() for found in pair if found])

    def _notify(self, keys: list[Key] | None) -> None:
        for changed in self._subscribers:
            changed(keys)


def _place(key: Key) -> ObjectKey:
    return ObjectKey(key[1].namespace, f"placement-{key[0].resource}-{key[1].name}")


def _key(found: dict[str, Any]) -> Key:
    group, version, resource, name = found["data"]["target"].split("/")
    namespace = found["metadata"]["namespace"]
    return GroupVersionResource(group, version, resource), ObjectKey(namespace, name)


def make(parts: Parts) -> tuple[Sink, list[Service]]:
    """Return the sink and the watch that it reads."""
    sink, kube = ConfigMapSink(parts.context.kube), parts.context.kube
    source = KubeCollection(kube, CONFIGMAPS, label_selector=LABEL)
    return sink, [parts.context.followed("ConfigMaps of placements", source, sink.there)]
