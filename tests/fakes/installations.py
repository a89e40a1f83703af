"""An installation in a fake API server: pods as the manifests make them, and their ports."""

from __future__ import annotations

import asyncio
import base64
from contextlib import suppress
from typing import Any, Final

from aiohttp import WSMsgType, web

from kube_sync.kube.lease import LEASES
from kube_sync.kube.pods import PODS
from kube_sync.objects import ObjectKey
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.clients import CONFIGMAPS, SECRETS
from tests.fakes.http import Handler, Matches, Proceed

HOME: Final = "kube-sync"
LABELS: Final = {"app.kubernetes.io/name": "kube-sync"}
CONFIG: Final = """\
decisions: {token_file: /run/decisions/token, url: "https://replicator.kube-sync:9400/v1/decisions"}
opa: {binary: /usr/local/bin/opa, url: "https://localhost:8181"}
kubernetes: {kubeconfig: /etc/kubeconfig}
"""
READY: Final = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
_VOLUMES: Final = [
    {"name": "config", "configMap": {"name": "settings"}},
    {
        "name": "stream",
        "secret": {"secretName": "stream", "items": [{"key": "t", "path": "token"}]},
    },
]
_OPA: Final = {"name": "opa", "args": ["run", "--server", "--addr=0.0.0.0:8181"]}
_MOUNTS: Final = [
    {"name": "config", "mountPath": "/etc/kube-sync"},
    {"name": "stream", "mountPath": "/run/decisions"},
]


def container(command: str, **fields: Any) -> dict[str, Any]:
    """Return a container that runs one of our commands."""
    arguments = [command, "--config", "/etc/kube-sync/config.yaml"]
    return {"name": command, "args": arguments, "volumeMounts": _MOUNTS, **fields}


def put_pod(
    api: FakeApiServer,
    name: str,
    *commands: str,
    namespace: str = HOME,
    status: Any = READY,
    **fields: Any,
) -> None:
    """Put a pod that runs these commands, beside OPA."""
    ours = [container(one, **fields) for one in commands]
    spec = {"containers": [_OPA, *ours], "volumes": _VOLUMES}
    api.put(PODS, ObjectKey(namespace, name), metadata={"labels": LABELS}, spec=spec, status=status)


def define(api: FakeApiServer) -> None:
    """Serve the kinds that an installation is made of, with its configuration and token."""
    for gvr, kind in ((PODS, "Pod"), (CONFIGMAPS, "ConfigMap"), (SECRETS, "Secret")):
        api.define(gvr, kind)
    api.define(LEASES, "Lease")
    api.put(CONFIGMAPS, ObjectKey(HOME, "settings"), data={"config.yaml": CONFIG})
    token = base64.b64encode(b"s3cret\n").decode()
    api.put(SECRETS, ObjectKey(HOME, "stream"), data={"t": token})


def forwards(pod: str) -> Matches:
    """Match requests to forward a port of a pod."""
    return lambda one: one.path.endswith(f"/pods/{pod}/portforward")


def forwarding(port: int) -> Handler:
    """Forward to a port of this machine, as API server and kubelet do."""

    async def handle(request: web.Request, _proceed: Proceed) -> web.StreamResponse:
        socket = await _accepted(request)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)

        async def answer() -> None:
            with suppress(ConnectionError):
                while chunk := await reader.read(1 << 16):
                    await socket.send_bytes(b"\x00" + chunk)
            await socket.close()

        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(answer())
                async for message in socket:
                    if message.type is WSMsgType.BINARY:
                        writer.write(message.data[1:])
                writer.close()
        finally:
            writer.close()
        return socket

    return handle


def closed_port() -> Handler:
    """Say what a kubelet says where nothing listens."""

    async def handle(request: web.Request, _proceed: Proceed) -> web.StreamResponse:
        socket = await _accepted(request)
        await socket.send_bytes(b"\x01connection refused")
        await socket.close()
        return socket

    return handle


def talking() -> Handler:
    """Send text, which is not of this protocol."""

    async def handle(request: web.Request, _proceed: Proceed) -> web.StreamResponse:
        socket = await _accepted(request)
        await socket.send_str("hello")
        await socket.close()
        return socket

    return handle


async def _accepted(request: web.Request) -> web.WebSocketResponse:
    socket = web.WebSocketResponse(protocols=["v4.channel.k8s.io"])
    await socket.prepare(request)
    port = int(request.query["ports"]).to_bytes(2, "little")
    for channel in (b"\x00", b"\x01"):
        await socket.send_bytes(channel + port)
    return socket
