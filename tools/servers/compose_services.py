"""The containers of the compose stack, each found by its labels, as servers that can be crashed.

Keeps true: a container is looked up anew for each call, since compose may have replaced it, and a
service that is killed here stays down until `start` (the engine takes a kill through it as wish).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from docker.models.containers import Container

from tools.servers.compose_cli import PROJECT
from tools.servers.engine import engine
from tools.servers.errors import StartFailed, ToolError
from tools.servers.pids import rss_bytes
from tools.servers.running import ServerSpec, wait_until_ready

_LABELS = "com.docker.compose."
_GRACE = 10


class ComposeServer:
    """One service of the stack, in the shape of a server that this program started."""

    def __init__(self, spec: ServerSpec) -> None:
        self.spec = spec
        self.url = spec.url

    def start(self) -> None:
        """Start it (again) with what its volume holds and wait until it is ready."""
        with _container(self.spec.name) as container:
            container.start()
        wait_until_ready(self)

    def stop(self) -> None:
        """Ask it to end, wait until it has."""
        with _container(self.spec.name) as container:
            container.stop(timeout=_GRACE)

    def kill(self) -> None:
        """End it without warning (SIGKILL), as a crash would."""
        with _container(self.spec.name) as container:
            container.kill("SIGKILL")
            container.wait()

    def alive(self) -> bool:
        """Tell whether it runs."""
        with _container(self.spec.name) as container:
            return bool(container.status == "running")

    def logs(self) -> str:
        """Return the last lines it wrote."""
        with _container(self.spec.name) as container:
            return str(container.logs(tail=20).decode(errors="replace"))

    def rss_bytes(self) -> int:
        """Return the memory it holds now, 0 when it does not run."""
        with _container(self.spec.name) as container:
            return rss_bytes(container.attrs["State"]["Pid"]) if self.alive() else 0


def anything_left() -> bool:
    """Tell whether the engine holds a container, volume or network of the stack."""
    ours: dict[str, str | list[str] | bool] = {"label": f"{_LABELS}project={PROJECT}"}
    with engine() as client:
        listed = (client.containers.list(all=True, filters=ours), client.volumes.list(filters=ours))
        return any((*listed, client.networks.list(filters=ours)))


def published_port(service: str, port: int) -> int:
    """Return the port of this machine under which a service's own port is published."""
    with _container(service) as container:
        bindings = container.attrs["NetworkSettings"]["Ports"].get(f"{port}/tcp")
    if not bindings:
        msg = f"{service} does not publish its port {port}: is it running?"
        raise ToolError(msg)
    return int(bindings[0]["HostPort"])


def wait_healthy(service: str, patience: float) -> None:
    """Return when a service's health check says so; raise StartFailed with its last words."""
    deadline = time.monotonic() + patience
    while (state := _health(service)) != "healthy":
        if time.monotonic() > deadline:
            with _container(service) as container:
                said = container.logs(tail=20).decode(errors="replace")
            msg = f"{service} is {state} after {patience:.0f} s; it said last:\n{said}"
            raise StartFailed(msg)
        time.sleep(0.5)


def wait_finished(service: str, patience: float) -> None:
    """Return when a service has ended well; raise StartFailed with its last words if it did not."""
    with _container(service) as container:
        status = container.wait(timeout=patience)["StatusCode"]
        if status != 0:
            said = container.logs(tail=20).decode(errors="replace")
            msg = f"{service} ended with status {status}; it said last:\n{said}"
            raise StartFailed(msg)


def _health(service: str) -> str:
    with _container(service) as container:
        return str(container.attrs["State"].get("Health", {}).get("Status", container.status))


@contextmanager
def _container(service: str) -> Iterator[Container]:
    labels = [f"{_LABELS}project={PROJECT}", f"{_LABELS}service={service}"]
    with engine() as client:
        found = client.containers.list(all=True, filters={"label": labels})
        if not found:
            msg = f"the compose stack has no container of {service}: is it up?"
            raise ToolError(msg)
        yield found[0]
