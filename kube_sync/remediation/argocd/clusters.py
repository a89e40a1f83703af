"""The clusters that Argo CD knows, from the Secrets by which they are declared to it.

A cluster is a Secret in Argo CD's namespace with the label `argocd.argoproj.io/secret-type:
cluster` (Argo CD, "Declarative Setup", "Clusters"). Invariant: of its values only the name and the
address are kept, never the credentials beside them. The cluster that Argo CD itself runs in is
known without a Secret.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from kube_sync.errors import NO_JSON
from kube_sync.kube.cache import Cache, Changes
from kube_sync.kube.collection import Item
from kube_sync.objects import GroupVersionResource, ObjectKey

SECRETS: Final = GroupVersionResource("", "v1", "secrets")
CLUSTER: Final = "argocd.argoproj.io/secret-type=cluster"

_TYPE: Final = "argocd.argoproj.io/secret-type"
_LOCAL_NAME, _LOCAL_SERVER = "in-cluster", "https://kubernetes.default.svc"


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster as Argo CD knows it; `labels` are those of its Secret."""

    name: str
    server: str
    labels: Mapping[str, str]


class _Data(msgspec.Struct):
    name: bytes = b""  # msgspec decodes base64
    server: bytes = b""


class _Metadata(msgspec.Struct):
    labels: dict[str, str] | None = None


class _Secret(msgspec.Struct):
    metadata: _Metadata
    data: _Data | None = None


_secrets = msgspec.json.Decoder(_Secret)
_LOCAL = Cluster(_LOCAL_NAME, _LOCAL_SERVER, {})


class ArgoClusters(Cache[Cluster]):
    """The clusters of one Argo CD, by the keys of their Secrets."""

    def __init__(self, on_change: Callable[[Changes[Cluster]], None] = lambda _: None) -> None:
        super().__init__(_cluster, on_change)

    def named(self) -> Mapping[str, list[tuple[ObjectKey | None, Cluster]]]:
        """Return the clusters by name, each with the key of its Secret, if it has one."""
        found: dict[str, list[tuple[ObjectKey | None, Cluster]]] = defaultdict(list)
        for key, cluster in sorted(self.objects.items()):
            found[cluster.name].append((key, cluster))
        if not any(cluster.server == _LOCAL_SERVER for cluster in self.objects.values()):
            found[_LOCAL_NAME].append((None, _LOCAL))
        return found

    def by_server(self) -> Mapping[str, frozenset[str]]:
        """Return the names of the clusters at each address."""
        found: dict[str, frozenset[str]] = defaultdict(frozenset)
        for name, clusters in self.named().items():
            for _, cluster in clusters:
                found[cluster.server] |= {name}
        return found


def _cluster(item: Item) -> Cluster | None:
    try:
        secret = _secrets.decode(item.body)
        data = secret.data or _Data()
        name, server = data.name.decode(), data.server.decode().rstrip("/")
    except NO_JSON:  # Argo CD cannot read it either
        return None
    labels = {key: text for key, text in (secret.metadata.labels or {}).items() if key != _TYPE}
    return Cluster(name, server, labels) if name else None
