"""Reads the configuration of an installation, as its pods have it, for a command elsewhere.

The file and the variables are those of the container. What is about the machine that it runs on
is the caller's: the kubeconfig and the OPA binary. A variable of the caller wins.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Final

import msgspec

from kube_sync.config import CONFIG_ENV, ENV_PREFIX, Kubernetes, Settings, Source
from kube_sync.errors import NO_JSON, Misconfigured, NotFound, Refused, Retriable
from kube_sync.inspect.installation.finding import Running
from kube_sync.kube.client import KubeClient
from kube_sync.kube.pods import CONFIGMAPS, SECRETS, ContentKey
from kube_sync.objects import GroupVersionResource

_KINDS: Final = {CONFIGMAPS: "ConfigMap", SECRETS: "Secret"}
_OPA_BINARY: Final = f"{ENV_PREFIX}OPA_BINARY"
_KUBECONFIG: Final = f"{ENV_PREFIX}KUBERNETES_KUBECONFIG"
_CONTEXT: Final = f"{ENV_PREFIX}KUBERNETES_CONTEXT"


class _Data(msgspec.Struct):
    data: dict[str, str] = {}


async def read_settings(
    client: KubeClient, running: Running, environment: Mapping[str, str]
) -> Settings:
    """Return the configuration of a container. Raises SyncError."""
    variables = await _variables(client, running)
    file = running.container.option("--config") or variables.get(CONFIG_ENV)
    content, name = b"", None
    if file is not None:
        key = running.pod.content_of(running.container, file)
        if key is None:
            msg = f"{running}: its configuration {file} is in no ConfigMap; name a copy by --config"
            raise NotFound(msg)
        content = (await read_key(client, running, key)).encode()
        name = f"{file} of {describe(running, key)}"
    return _of_caller(Source(name, {**variables, **environment}).load(content), environment)


def _of_caller(settings: Settings, environment: Mapping[str, str]) -> Settings:
    """Return the settings with what the machine of the caller has."""
    kubernetes = Kubernetes(environment.get(_KUBECONFIG), environment.get(_CONTEXT))
    opa = msgspec.structs.replace(settings.opa, binary=environment.get(_OPA_BINARY, "opa"))
    return msgspec.structs.replace(settings, kubernetes=kubernetes, opa=opa)


async def read_key(client: KubeClient, running: Running, key: ContentKey) -> str:
    """Return the text that a ConfigMap or Secret has at a key, as the caller. Raises SyncError."""
    what = describe(running, key)
    data = await _read(client, running.pod.key.namespace, key.resource, key.name)
    if (text := data.get(key.key)) is None:
        msg = f"{what} is not there"
        raise NotFound(msg)
    if key.resource != SECRETS:
        return text
    try:
        return base64.b64decode(text).decode()
    except ValueError as error:
        msg = f"{what} is not text"
        raise Misconfigured(msg) from error


def describe(running: Running, key: ContentKey) -> str:
    """Return the name of a key for people."""
    return f"{_KINDS[key.resource]} {running.pod.key.namespace}/{key.name}, key {key.key}"


async def _variables(client: KubeClient, running: Running) -> dict[str, str]:
    """Return our variables of a container. Raises SyncError."""
    found: dict[str, str] = {}
    for source in running.container.env_from:
        if (maps := source.config_map_ref) is not None:
            data = await _read(client, running.pod.key.namespace, CONFIGMAPS, maps.name)
            found |= {source.prefix + name: text for name, text in data.items()}
    found |= {one.name: one.value for one in running.container.env if one.value is not None}
    return {name: text for name, text in found.items() if name.startswith(ENV_PREFIX)}


async def _read(client: KubeClient, namespace: str, resource: str, name: str) -> dict[str, str]:
    gvr = GroupVersionResource("", "v1", resource)
    try:
        body = await client.request("GET", gvr.path(namespace, name))
        return msgspec.json.decode(body, type=_Data).data
    except Refused as error:
        msg = f"{_KINDS[resource]} {namespace}/{name}: {error}"
        raise Refused(msg) from error
    except NO_JSON as error:
        msg = f"{_KINDS[resource]} {namespace}/{name}: what answers is none: {error}"
        raise Retriable(msg) from error
