"""Pods as far as their files and ports are concerned: what a container runs, and on which files.

A path in a container is traced to the key of the ConfigMap or Secret that is mounted there, so
that somebody else who may read that object sees the same content. Pure but for the LIST.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final, NamedTuple

import msgspec

from kube_sync.errors import decoded
from kube_sync.kube.client import KubeClient
from kube_sync.objects import GroupVersionResource, ObjectKey

PODS: Final = GroupVersionResource("", "v1", "pods")
CONFIGMAPS: Final = "configmaps"
SECRETS: Final = "secrets"


class ContentKey(NamedTuple):
    """A key of a ConfigMap or a Secret in the pod's namespace."""

    resource: str  # CONFIGMAPS or SECRETS
    name: str
    key: str


class _Named(msgspec.Struct):
    name: str = ""


class Env(msgspec.Struct):
    """A variable of a container; `value` is None where it comes from elsewhere."""

    name: str
    value: str | None = None


class EnvFrom(msgspec.Struct, rename="camel"):
    """A ConfigMap whose keys are variables of a container."""

    prefix: str = ""
    config_map_ref: _Named | None = None


class _Mount(msgspec.Struct, rename="camel"):
    name: str
    mount_path: str
    sub_path: str = ""


class _Item(msgspec.Struct):
    key: str
    path: str


class _ConfigMapSource(msgspec.Struct):
    name: str = ""
    items: tuple[_Item, ...] = ()


class _SecretSource(msgspec.Struct, rename="camel"):
    secret_name: str = ""
    name: str = ""  # in a projected volume
    items: tuple[_Item, ...] = ()


class _Source(msgspec.Struct, rename="camel"):
    config_map: _ConfigMapSource | None = None
    secret: _SecretSource | None = None


class _Projected(msgspec.Struct):
    sources: tuple[_Source, ...] = ()


class _Volume(msgspec.Struct, rename="camel"):
    name: str
    config_map: _ConfigMapSource | None = None
    secret: _SecretSource | None = None
    projected: _Projected | None = None


class Container(msgspec.Struct, rename="camel"):
    """A container, with what it was started with."""

    name: str
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    env: tuple[Env, ...] = ()
    env_from: tuple[EnvFrom, ...] = ()
    volume_mounts: tuple[_Mount, ...] = ()

    @property
    def words(self) -> tuple[str, ...]:
        """Its command line, as far as the pod says it."""
        return (*self.command, *self.args)

    def option(self, name: str) -> str | None:
        """Return the value of an option of its command line."""
        for word, following in zip(self.words, (*self.words[1:], None), strict=True):
            if word == name:
                return following
            if word.startswith(f"{name}="):
                return word.partition("=")[2]
        return None


class _Condition(msgspec.Struct):
    type: str
    status: str


class _Metadata(msgspec.Struct, rename="camel"):
    name: str
    namespace: str
    deletion_timestamp: str | None = None


class _Spec(msgspec.Struct):
    containers: tuple[Container, ...] = ()
    volumes: tuple[_Volume, ...] = ()


class _Status(msgspec.Struct):
    phase: str = ""
    conditions: tuple[_Condition, ...] = ()


class _Pod(msgspec.Struct):
    metadata: _Metadata
    spec: _Spec
    status: _Status = msgspec.field(default_factory=_Status)


class _Pods(msgspec.Struct):
    items: tuple[_Pod, ...]


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod that runs or is about to."""

    key: ObjectKey
    ready: bool
    containers: tuple[Container, ...]
    volumes: tuple[_Volume, ...]

    def content_of(self, container: Container, path: str) -> ContentKey | None:
        """Return what a file of a container is made of; None: of nothing that others can read."""
        wanted = PurePosixPath(path)
        for mount in sorted(container.volume_mounts, key=lambda m: -len(m.mount_path)):
            place = PurePosixPath(mount.mount_path)
            if wanted.is_relative_to(place):
                inside = str(PurePosixPath(mount.sub_path) / wanted.relative_to(place))
                found = [v for v in self.volumes if v.name == mount.name]
                return next((key for v in found for key in _keys(v, inside)), None)
        return None


async def list_pods(client: KubeClient, namespace: str | None, selector: str) -> list[Pod]:
    """Return the pods with these labels that are not on their way out. Raises SyncError."""
    body = await client.request("GET", PODS.path(namespace), params={"labelSelector": selector})
    pods = decoded(body, _Pods, "what answers is no list of pods").items
    return [
        Pod(
            ObjectKey(pod.metadata.namespace, pod.metadata.name),
            any(c.type == "Ready" and c.status == "True" for c in pod.status.conditions),
            pod.spec.containers,
            pod.spec.volumes,
        )
        for pod in pods
        if pod.metadata.deletion_timestamp is None and pod.status.phase not in _ENDED
    ]


_ENDED: Final = ("Succeeded", "Failed")


def _keys(volume: _Volume, path: str) -> Iterator[ContentKey]:
    """Yield the key that a volume shows at a path."""
    projected = volume.projected.sources if volume.projected else ()
    for source in (_Source(volume.config_map, volume.secret), *projected):
        if (maps := source.config_map) is not None:
            yield from _shown(CONFIGMAPS, maps.name, maps.items, path)
        if (secret := source.secret) is not None:
            yield from _shown(SECRETS, secret.secret_name or secret.name, secret.items, path)


def _shown(resource: str, name: str, items: tuple[_Item, ...], path: str) -> Iterator[ContentKey]:
    if not items:  # every key is a file
        yield ContentKey(resource, name, path)
    for item in items:
        if item.path == path:
            yield ContentKey(resource, name, item.key)
