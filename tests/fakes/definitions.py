"""CustomResourceDefinitions, as short as tests want to say them, and as a fake serves them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kube_sync.kube.definitions import DEFINITIONS
from kube_sync.objects import GroupVersionResource, ObjectKey
from tests.fakes.apiserver import FakeApiServer

Object = dict[str, Any]

POLICY = {"gateway.networking.k8s.io/policy": "Inherited"}
_FIELD = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
ANYTHING = {"type": "object", "properties": {"spec": _FIELD, "status": _FIELD}}


def definition(
    kind: str,
    group: str,
    *versions: str,
    namespaced: bool = True,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    schema: Mapping[str, Any] = ANYTHING,
    unserved: Sequence[str] = (),
) -> Object:
    """Return a definition that an API server takes; the first version is the stored one."""
    plural = plural_of(kind)
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{plural}.{group}",
            "labels": dict(labels or {}),
            "annotations": dict(annotations or {}),
        },
        "spec": {
            "group": group,
            "names": {
                "kind": kind,
                "listKind": f"{kind}List",
                "plural": plural,
                "singular": kind.lower(),
            },
            "scope": "Namespaced" if namespaced else "Cluster",
            "versions": [
                {
                    "name": version,
                    "served": version not in unserved,
                    "storage": number == 0,
                    "schema": {"openAPIV3Schema": dict(schema)},
                    "subresources": {"status": {}},
                }
                for number, version in enumerate(versions)
            ],
        },
    }


def plural_of(kind: str) -> str:
    low = kind.lower()
    return f"{low[:-1]}ies" if low.endswith("y") else f"{low}es" if low[-1] == "s" else f"{low}s"


def resource(kind: str, group: str, version: str) -> GroupVersionResource:
    return GroupVersionResource(group, version, plural_of(kind))


def install(api: FakeApiServer, body: Object, *, established: bool = True) -> None:
    """Put a definition into a fake, which serves what it defines if it is established."""
    spec, metadata = body["spec"], dict(body["metadata"])
    key = ObjectKey("", metadata.pop("name"))
    condition = {"type": "Established", "status": "True" if established else "False"}
    for version in spec["versions"] if established else ():
        gvr = GroupVersionResource(spec["group"], version["name"], spec["names"]["plural"])
        if version["served"]:
            namespaced = spec["scope"] == "Namespaced"
            api.define(gvr, spec["names"]["kind"], builtin=False, namespaced=namespaced)
    api.put(DEFINITIONS, key, metadata=metadata, spec=spec, status={"conditions": [condition]})


def uninstall(api: FakeApiServer, body: Object) -> None:
    """Let a fake forget a definition, what it defined, and all objects of it."""
    spec = body["spec"]
    for version in spec["versions"]:
        gvr = GroupVersionResource(spec["group"], version["name"], spec["names"]["plural"])
        for key in list(api.objects(gvr)):
            api.delete(gvr, key)
        if version["served"]:
            api.undefine(gvr)
    api.delete(DEFINITIONS, ObjectKey("", body["metadata"]["name"]))
