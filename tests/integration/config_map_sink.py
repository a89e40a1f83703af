"""A sink that no part of the project knows: it keeps each placement in a ConfigMap.

docs/sinks.md has this module word by word.
"""

from __future__ import annotations

from typing import Any

import msgspec

from kube_sync.kube.collection import Item, KubeCollection
from kube_sync.kube.configmaps import CONFIGMAPS
from kube_sync.objects import GroupVersionResource, ObjectKey
from kube_sync.processes.sinks import Parts
from kube_sync.remediation.sinks.object_sink import Kept, ObjectForm, ObjectSink
from kube_sync.remediation.sinks.sink import Sink
from kube_sync.runtime.services import Service

LABEL = "example.com/placement-of"  # the resource


def read(item: Item) -> Kept:
    data = msgspec.json.decode(item.body)["data"]
    gvr = GroupVersionResource(*data["resource"].split("/"))
    target = gvr, ObjectKey(item.key.namespace, data["name"])
    return Kept(target, data["uid"], data["clusters"].split())


def document(wanted: Kept) -> dict[str, Any]:
    gvr, key = wanted.target
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": f"placement-{gvr.resource}-{key.name}",
            "namespace": key.namespace,
            "labels": {LABEL: gvr.resource},
        },
        "data": {
            "resource": f"{gvr.group}/{gvr.version}/{gvr.resource}",
            "name": key.name,
            "uid": wanted.uid,
            "clusters": " ".join(wanted.clusters),
        },
    }


def make(parts: Parts) -> tuple[Sink, list[Service]]:
    """Return the sink, and the watch of the ConfigMaps with the label."""
    kube = parts.context.kube
    sink = ObjectSink("config_maps", ObjectForm(CONFIGMAPS, read, document), kube)
    source = KubeCollection(kube, CONFIGMAPS, label_selector=LABEL)
    return sink, [parts.context.followed("ConfigMaps of placements", source, sink.store)]
