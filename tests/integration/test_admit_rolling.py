"""`kube-sync admit` as processes: a rolling update, and a certificate that is replaced."""

from __future__ import annotations

import asyncio
import json
import signal
import ssl
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import pytest

from kube_sync.certificates import issue, make_authority
from kube_sync.runtime.tls import client_context
from tests.eventually import eventually
from tests.fakes.reviewing import RESOURCE
from tests.fakes.reviews import body as review_body
from tools.demo.components import start_service
from tools.servers.files import LOOPBACK, write_file, write_pair
from tools.servers.http import get
from tools.servers.running import RunningServer, free_port
from tools.servers.secured_opa import RunningOpa
from tools.servers.stack import RunningStack

pytestmark = pytest.mark.slow

_SENDERS = 4
_AUTHORITY = make_authority("webhooks")


@dataclass
class Deployment:
    """Webhooks, and a client that sends to those that are ready as a Service would."""

    stack: RunningStack
    opa: RunningOpa
    folder: Path
    pods: dict[str, RunningServer] = field(default_factory=dict)  # by URL
    ready: list[str] = field(default_factory=list)
    answered: int = 0
    failures: list[object] = field(default_factory=list)

    def start(self) -> RunningServer:
        """Start one more, and wait until it is ready."""
        port = free_port()
        folder = self.folder / str(port)
        write_pair(folder, "tls", issue(_AUTHORITY, "webhook", LOOPBACK))
        configuration: dict[str, object] = {
            "kubernetes": {"kubeconfig": str(self.stack.kubeconfigs["admission"])},
            "opa": self.opa.settings(),
            "policies": {"static": True},
            "admission": {
                "listen": f"127.0.0.1:{port}",
                "cert_file": str(folder / "tls.crt"),
                "key_file": str(folder / "tls.key"),
                "drain_seconds": 5.0,  # some of it until the list of this test knows
            },
        }
        pod = start_service("admit", folder, configuration)
        self.pods[f"https://127.0.0.1:{port}/admit/placement"] = pod
        return pod

    async def end(self, pod: RunningServer) -> int:
        """Have one end as Kubernetes does; return its exit status."""
        process = pod._process  # type: ignore[attr-defined] # noqa: SLF001 - its exit status
        process.send_signal(signal.SIGTERM)
        status: int = await asyncio.to_thread(process.wait, 30)
        return status

    async def look(self) -> None:
        """Keep the list of those that are ready, a little late as in a cluster."""
        while True:
            found = await asyncio.to_thread(
                lambda: [url for url in [*self.pods] if self._ready(url)]
            )
            self.ready[:] = found
            await asyncio.sleep(0.1)

    def _ready(self, url: str) -> bool:
        try:
            return get(f"{self.pods[url].spec.url}/readyz").status == 200
        except OSError:
            return False

    async def send(self, session: aiohttp.ClientSession) -> None:
        """Send reviews for ever, over connections that are kept."""
        headers = {"Content-Type": "application/json"}
        while True:
            url = self.ready[self.answered % len(self.ready)]
            try:
                async with session.post(
                    url, data=review_body(RESOURCE), headers=headers
                ) as response:
                    json.loads(await response.read())["response"]["uid"]
            except (aiohttp.ClientError, ValueError) as error:
                self.failures.append(error)
            self.answered += 1

    def trust(self) -> ssl.SSLContext:
        """Trust their certificates."""
        return client_context(str(write_file(self.folder / "ca.crt", _AUTHORITY.cert_pem)))


@pytest.fixture
def deployment(stack: RunningStack, opa: RunningOpa, tmp_path: Path) -> Iterator[Deployment]:
    deployment = Deployment(stack, opa, tmp_path)
    yield deployment
    for pod in deployment.pods.values():
        pod.kill()


async def test_a_rolling_update_loses_no_review(deployment: Deployment) -> None:
    old = [await asyncio.to_thread(deployment.start) for _ in range(2)]
    connector = aiohttp.TCPConnector(ssl=deployment.trust())
    async with aiohttp.ClientSession(connector=connector) as session, asyncio.TaskGroup() as group:
        looking = group.create_task(deployment.look())
        await eventually(lambda: len(deployment.ready) == 2)
        tasks = [group.create_task(deployment.send(session)) for _ in range(_SENDERS)]
        for pod in old:
            await asyncio.to_thread(deployment.start)
            await eventually(lambda: len(deployment.ready) == 3)
            assert await deployment.end(pod) == 0
            assert '"event": "drained"' in pod.logs()
            await eventually(lambda: len(deployment.ready) == 2)
        for task in (looking, *tasks):
            task.cancel()
    assert deployment.failures == []
    assert deployment.answered > 100


async def test_a_certificate_is_replaced_without_a_restart(deployment: Deployment) -> None:
    pod = await asyncio.to_thread(deployment.start)
    (url,) = deployment.pods
    port, tls = int(url.split(":")[2].split("/")[0]), deployment.trust()

    def served() -> str:
        pem = ssl.get_server_certificate(("127.0.0.1", port))
        return ssl.PEM_cert_to_DER_cert(pem).hex()

    renewed = issue(_AUTHORITY, "webhook", LOOPBACK)
    folder = deployment.folder / str(port)
    for name, content in (("tls.key", renewed.key_pem), ("tls.crt", renewed.cert_pem)):
        (folder / name).write_bytes(content)
    await eventually(served, ssl.PEM_cert_to_DER_cert(renewed.cert_pem.decode()).hex())
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
    writer.close()
    assert '"event": "certificate_loaded"' in pod.logs()
