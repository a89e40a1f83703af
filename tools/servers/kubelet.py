"""A stand-in for a kubelet: it forwards ports of pods, as the API server asks, and does no more.

API servers of tests and demos have no nodes. A Node that points here makes the subresource
`portforward` of its pods work there, with the API server's own authorization and protocol. What a
pod would listen on is a process on this machine: a table says which.

`python -m tools.servers.kubelet FOLDER PORT`: FOLDER has tls.crt, tls.key and ports.json, an object
of pods (`NAMESPACE/NAME`) with objects of ports; it is read at each connection.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import sys
from contextlib import suppress
from pathlib import Path

from aiohttp import WSMsgType, web

from kube_sync.certificates import issue, make_authority
from tools.servers.files import LOOPBACK, write_file, write_pair
from tools.servers.processes import ProcessLauncher
from tools.servers.running import RunningServer, ServerSpec, free_port, launch_on_free_port
from tools.servers.stack import RunningStack

NODE = "laptop"
_ROOT = Path(__file__).resolve().parents[2]
_PROTOCOL = "v4.channel.k8s.io"
_PORTS = "ports.json"
_DATA, _ERROR = b"\x00", b"\x01"  # channels
_FOLDER = web.AppKey("folder", Path)

Ports = dict[str, dict[str, int]]  # of processes, by pod and port


class Kubelet:
    """The stand-in that runs, and the node that points to it."""

    def __init__(self, stack: RunningStack, folder: Path) -> None:
        """Start it, and register its node."""
        authority = make_authority("kube-sync test kubelet")
        write_pair(folder, "tls", issue(authority, "kubelet", LOOPBACK))
        ca_file = write_file(folder / "ca.crt", authority.cert_pem)
        self._ports = folder / _PORTS
        self._stack = stack
        self.forward({})
        self.server: RunningServer = launch_on_free_port(
            ProcessLauncher(), lambda: _spec(folder, free_port(), ca_file)
        )
        port = int(self.server.url.rpartition(":")[2])
        status = {
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
        }
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}}
        stack.api.apply(node)
        stack.api.merge("nodes", NODE, {"status": status}, subresource="status")

    def forward(self, ports: Ports) -> None:
        """Forward these ports from now on."""
        self.ports = ports
        new = self._ports.with_suffix(".new")
        write_file(new, json.dumps(ports).encode()).replace(self._ports)

    def stop(self) -> None:
        """End it, and remove its node."""
        self.server.stop()
        self._stack.api.delete("nodes", NODE)


def _spec(folder: Path, port: int, ca_file: Path) -> ServerSpec:
    return ServerSpec(
        name="kubelet",
        program=sys.executable,
        arguments=("-m", "tools.servers.kubelet", str(folder), str(port)),
        folder=folder,
        environment={"PYTHONPATH": str(_ROOT)},
        url=f"https://127.0.0.1:{port}",
        ready_paths=("/healthz",),
        ca_file=ca_file,
    )


async def _healthy(_request: web.Request) -> web.Response:
    return web.Response(text="ok")


async def _forward(request: web.Request) -> web.WebSocketResponse:
    pod, asked = "{namespace}/{pod}".format(**request.match_info), request.query["port"]
    socket = web.WebSocketResponse(protocols=[_PROTOCOL])
    await socket.prepare(request)
    for channel in (_DATA, _ERROR):
        await socket.send_bytes(channel + int(asked).to_bytes(2, "little"))
    ports = json.loads((request.app[_FOLDER] / _PORTS).read_text(encoding="utf-8"))
    try:
        port = ports[pod][asked]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except (KeyError, OSError):
        await socket.send_bytes(_ERROR + f"nothing listens on port {asked} in {pod}".encode())
        await socket.close()
        return socket
    async with asyncio.TaskGroup() as group:
        group.create_task(_answer(reader, socket))
        async for message in socket:
            if message.type is WSMsgType.BINARY and message.data[:1] == _DATA:
                writer.write(message.data[1:])
                await writer.drain()
        writer.close()
    return socket


async def _answer(reader: asyncio.StreamReader, socket: web.WebSocketResponse) -> None:
    with suppress(ConnectionError):
        while chunk := await reader.read(1 << 16):
            await socket.send_bytes(_DATA + chunk)
    await socket.close()


def main() -> None:
    """Serve until a signal."""
    folder, port = Path(sys.argv[1]), int(sys.argv[2])
    app = web.Application()
    app[_FOLDER] = folder
    app.router.add_get("/healthz", _healthy)
    app.router.add_get("/portForward/{namespace}/{pod}", _forward)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    web.run_app(app, host="127.0.0.1", port=port, ssl_context=context, print=None)


if __name__ == "__main__":
    main()
