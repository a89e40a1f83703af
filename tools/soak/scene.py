"""The servers of a soak: all of them processes, with proxies on the ways between them.

Keeps true: our three services have exactly the rights of `manifests/`, and reach the API server,
OPA and the decision stream through proxies only, so that every way can be cut or made slow.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import ssl
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from benchmarks.bare import Bare, bare_client
from kube_sync.certificates import issue, make_authority
from tests.fakes.decided import let_decide
from tests.faults.proxy import FaultProxy
from tools.demo.components import UNBRAKED, start_service
from tools.demo.webhook import register_webhook
from tools.servers.apiserver import write_kubeconfig
from tools.servers.files import LOOPBACK, write_file, write_pair, write_private
from tools.servers.processes import recorded
from tools.servers.running import RunningServer, free_port
from tools.servers.stack import RunningStack
from tools.soak.wishes import EDITION

REPLICATE, REMEDIATE, ADMIT = "replicate", "remediate", "admit"
_ROLES = {REPLICATE: "replicator", REMEDIATE: "remediator", ADMIT: "admission"}
_PATIENCE = 300.0  # seconds until a service answers at all


@dataclass(frozen=True, slots=True)
class Ways:
    """The proxies on the ways of our services; only the replicator's to the API server sees in.

    To see in costs as much as to answer: TLS ends there and begins again.
    """

    watches: FaultProxy
    kube: FaultProxy
    opa: FaultProxy
    stream: FaultProxy

    def cut(self) -> None:
        """End every connection."""
        for proxy in (self.watches, self.kube, self.opa, self.stream):
            proxy.cut()


@dataclass
class Scene:
    """Everything that runs; `starts` counts how often each server was started again."""

    stack: RunningStack
    bare: Bare
    ways: Ways
    services: dict[str, RunningServer] = field(default_factory=dict)
    starts: Counter[str] = field(default_factory=Counter)

    @property
    def servers(self) -> Mapping[str, RunningServer]:
        """All servers, by name."""
        stack = self.stack
        base = {"etcd": stack.etcd, "kube-apiserver": stack.apiserver, "opa": stack.opa}
        return base | self.services

    async def kill(self, name: str) -> None:
        """End a server without warning."""
        await _to_its_end(self.servers[name].kill)

    async def stop(self, name: str) -> None:
        """Ask a server to end, and wait until it has."""
        await _to_its_end(self.servers[name].stop)

    async def start(self, name: str) -> None:
        """Start it again, and wait until it answers."""
        self.starts[name] += 1
        await _to_its_end(self.servers[name].start)

    def freeze(self, name: str) -> None:
        """Let a process stand still, with its connections open."""
        self._signal(name, signal.SIGSTOP)

    def thaw(self, name: str) -> None:
        """Let it go on."""
        self._signal(name, signal.SIGCONT)

    def _signal(self, name: str, order: signal.Signals) -> None:
        for process, _ in recorded(self.servers[name].spec.folder):
            if process.alive():
                os.kill(process.pid, order)


@asynccontextmanager
async def soak_scene(stack: RunningStack, folder: Path) -> AsyncGenerator[Scene]:
    """Put proxies before a stack that has our kinds and roles; no service runs yet.

    Whatever is started until the block ends, is ended with it.
    """
    authority = make_authority("soak proxies")
    write_file(folder / "ca.crt", authority.cert_pem)
    write_pair(folder, "tls", issue(authority, "soak", LOOPBACK))
    async with AsyncExitStack() as opened:
        serve = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        serve.load_cert_chain(folder / "tls.crt", folder / "tls.key")

        async def way(port: int, ca_file: Path | None = None) -> FaultProxy:
            if ca_file is None:
                return await opened.enter_async_context(FaultProxy(port))
            reach = ssl.create_default_context(cafile=ca_file)
            proxy = FaultProxy(port, serve=serve, reach=reach)
            return await opened.enter_async_context(proxy)

        ways = Ways(
            await way(_port(stack.apiserver_url), stack.apiserver_ca_file),
            await way(_port(stack.apiserver_url)),
            await way(_port(stack.opa_url)),
            await way(stack.endpoint.port),
        )
        bare = await opened.enter_async_context(bare_client(stack))
        await asyncio.to_thread(let_decide, stack, "federation.kubernetes.io/", EDITION)
        scene = Scene(stack, bare, ways)
        try:
            yield scene
        finally:
            await asyncio.to_thread(_stop, scene)


async def start_services(scene: Scene, folder: Path) -> None:
    """Start replicator, remediator (without brakes) and webhook, and register the webhook."""
    webhook = free_port()
    key_file = write_private(folder / "notes.key", secrets.token_urlsafe(32))
    for command, configuration in _configurations(scene, folder, webhook).items():
        configuration["placement"] = {"key_file": str(key_file)}
        await start_service_of(scene, command, command, folder, configuration)
    url, authority = f"https://127.0.0.1:{webhook}/admit/placement", folder / "ca.crt"
    await asyncio.to_thread(register_webhook, scene.stack, url, authority.read_bytes())


async def start_service_of(
    scene: Scene,
    name: str,
    command: str,
    folder: Path,
    configuration: dict[str, object],
    *options: str,
    code: Path | None = None,
) -> None:
    """Start one of our commands with its account's rights, and call it by this name.

    `code` is a folder with another `kube_sync` than the one that is installed.
    """
    start = partial(_start_one, scene, name, command, folder, configuration, options, code)
    await _to_its_end(start)


def _start_one(
    scene: Scene,
    name: str,
    command: str,
    folder: Path,
    configuration: dict[str, object],
    options: Sequence[str],
    code: Path | None,
) -> None:
    role, own = _ROLES[command], folder / name
    way, ca_file = scene.ways.kube, scene.stack.apiserver_ca_file
    if command == REPLICATE:
        way, ca_file = scene.ways.watches, folder / "ca.crt"
    token = scene.stack.kube_tokens[role]
    url = f"https://127.0.0.1:{way.port}"
    kubeconfig = write_kubeconfig(own, role, url, ca_file, token)
    configuration["kubernetes"] = {"kubeconfig": str(kubeconfig)}
    # Ready comes later: how much later is what a soak measures.
    scene.services[name] = start_service(
        command, own, configuration, *options, ready="/livez", patience=_PATIENCE, code=code
    )


def _configurations(scene: Scene, folder: Path, webhook: int) -> dict[str, dict[str, object]]:
    stack, ways = scene.stack, scene.ways
    opa = stack.opa_settings() | {"url": f"https://127.0.0.1:{ways.opa.port}"}
    stream = {"url": f"https://127.0.0.1:{ways.stream.port}/v1/decisions"}
    tls = {"cert_file": str(folder / "tls.crt"), "key_file": str(folder / "tls.key")}
    listen = {"listen": f"127.0.0.1:{webhook}"}
    return {
        REPLICATE: {"opa": opa, "decisions": stack.endpoint.server()},
        REMEDIATE: {
            "decisions": stack.endpoint.client() | stream,
            "remediate": {"listen": f"127.0.0.1:{free_port()}", **UNBRAKED},
        },
        ADMIT: {
            "opa": opa | {"token_file": str(stack.opa_token_files["admission"])},
            "admission": tls | listen | {"registration": {"name": "kube-sync-placement"}},
        },
    }


async def _to_its_end(function: Callable[[], None]) -> None:
    """Call what blocks; who is cancelled meanwhile waits too, or a server would be left running."""
    task = asyncio.create_task(asyncio.to_thread(function))
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise


def _stop(scene: Scene) -> None:
    for name, server in scene.services.items():
        scene.thaw(name)
        server.stop()


def _port(url: str) -> int:
    return int(url.rpartition(":")[2])
