"""Reaches a server within a pod of the installation: its port forwarded, its files copied.

Ports are those that the server listens on, so that one on the pod's loopback is reached too, which
no Service and no proxy of the API server could: the latter also drops the header with the token.
Files are copied into a folder of the caller's own, which goes with the block.
"""

from __future__ import annotations

import tempfile
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import Final, Literal
from urllib.parse import urlsplit, urlunsplit

import msgspec

from kube_sync.config import Kubernetes, Settings, parse_listen
from kube_sync.errors import Misconfigured, Refused, Retriable, SyncError
from kube_sync.inspect.installation.background import in_background
from kube_sync.inspect.installation.finding import Running, find_pods, find_running
from kube_sync.inspect.installation.settings import read_key, read_settings
from kube_sync.kube.client import KubeClient, kube_client
from kube_sync.kube.credentials import Credentials
from kube_sync.kube.portforward import Forwarder, PodPort

Server = Literal["decisions", "opa", "remediate"]
COMMANDS: Final[Mapping[Server, str]] = {  # whose container has what reaches the server
    "decisions": "replicate",
    "opa": "replicate",
    "remediate": "remediate",
}
_FILES: Final = ("token_file", "ca_file")


@dataclass(frozen=True, slots=True)
class Place:
    """Where to look for the installation."""

    kubernetes: Kubernetes
    namespace: str | None
    environment: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Reached:
    """A server that is forwarded: the settings to reach it by, and what forwards."""

    settings: Settings
    forwarder: Forwarder
    running: Running


async def installed_settings(place: Place, command: str) -> Settings:
    """Return the configuration of the container that runs a command. Raises SyncError."""
    async with kube_client(place.kubernetes) as client:
        pods = await find_pods(client, place.namespace, place.environment)
        running = await find_running(client, pods, command)
        return await read_settings(client, running, place.environment)


async def context_namespace(kubernetes: Kubernetes) -> str | None:
    """Return the namespace that the context of the kubeconfig names. Raises Misconfigured."""
    credentials = Credentials(kubernetes)
    await credentials.load()
    return credentials.namespace


@contextmanager
def reached(
    place: Place, settings: Settings, server: Server, given: frozenset[str] = frozenset()
) -> Iterator[Reached]:
    """Forward a server of the installation for the time of the block.

    `given` are the files that the caller has already, by field. Raises SyncError: also for what
    failed in the block because there was no connection.
    """
    with tempfile.TemporaryDirectory(prefix="kube-sync-") as folder:
        opened = partial(_opened, place, settings, server, Path(folder), given)
        with in_background(opened) as found:
            try:
                yield found
            except Retriable:
                if (why := found.forwarder.failure) is not None:
                    raise _explained(why, found.running) from None
                raise


def _explained(failure: SyncError, running: Running) -> SyncError:
    """Return why there was no connection."""
    pod = running.pod
    if pod.ready or isinstance(failure, Refused | Misconfigured):
        return failure
    where = f"-n {pod.key.namespace} {pod.key.name}"
    return Retriable(f"{failure} ({running} is not ready: `kubectl describe pod {where}`)")


@asynccontextmanager
async def _opened(
    place: Place, settings: Settings, server: Server, folder: Path, given: frozenset[str]
) -> AsyncGenerator[Reached]:
    async with kube_client(place.kubernetes) as client:

        async def running() -> Running:
            pods = await find_pods(client, place.namespace, place.environment)
            return await find_running(client, pods, COMMANDS[server])

        first = await running()
        port = port_of(settings, server)

        async def target() -> PodPort:  # at each connection: pods are replaced
            return PodPort((await running()).pod.key, port)

        forwarder = Forwarder(client, target)
        async with forwarder.listening() as local:
            section = msgspec.structs.asdict(getattr(settings, server))
            fields = await _copied(client, first, section, folder, given)
            found = replaced(settings, server, local, fields)
            yield Reached(found, forwarder, first)


async def _copied(
    client: KubeClient,
    running: Running,
    section: Mapping[str, object],
    folder: Path,
    given: frozenset[str],
) -> dict[str, str]:
    """Copy the files that a section names, and return their paths. Raises SyncError."""
    copies = {}
    plain = str(section.get("url", "http:")).startswith("http:")
    for field in _FILES:
        path = section.get(field)
        if not isinstance(path, str) or field in given or (plain and field == "ca_file"):
            continue
        if (key := running.pod.content_of(running.container, path)) is None:
            msg = f"{running}: its file {path} is of no ConfigMap and no Secret"
            raise Misconfigured(msg)
        copy = folder / field
        copy.touch(mode=0o600)
        copy.write_text(await read_key(client, running, key), encoding="utf-8")
        copies[field] = str(copy)
    return copies


def port_of(settings: Settings, server: Server) -> int:
    """Return the port that a server of the installation listens on."""
    if server == "opa":
        parts = urlsplit(settings.opa.url)
        return parts.port or (443 if parts.scheme == "https" else 80)
    return parse_listen(f"{server}.listen", getattr(settings, server).listen)[1]


def replaced(settings: Settings, server: Server, port: int, fields: Mapping[str, str]) -> Settings:
    """Return the settings by which a local port is asked."""
    section = getattr(settings, server)
    if server == "remediate":
        where = {"listen": f"127.0.0.1:{port}"}
    else:
        where = {"url": local_url(section.url, port)}
    return msgspec.structs.replace(
        settings, **{server: msgspec.structs.replace(section, **where, **fields)}
    )


def local_url(url: str, port: int) -> str:
    """Return a URL with a local port; of a host that its certificate may name."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=f"{_loopback(parts.hostname or '')}:{port}"))


def _loopback(host: str) -> str:
    """Return the name by which the forwarded port is asked: `host` if it is of the loopback."""
    try:
        return "127.0.0.1" if ip_address(host).is_loopback else "localhost"
    except ValueError:
        return "localhost"
