"""Run servers as containers of the upstream images, on the loopback like the processes.

Keeps true: each runs as nobody in particular with a read-only root, sees only its own folder, has a
memory limit, and carries labels by which a later session removes what a killed one left behind.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus

import docker.errors
from docker.models.containers import Container

from tools.servers.engine import engine
from tools.servers.images import ensure_image
from tools.servers.pids import ProcessId, rss_bytes
from tools.servers.running import ServerSpec, tail, wait_until_ready
from tools.servers.versions import tools

# Read by testcontainers while it is imported: its reaper is an image that not everyone can pull
# (the labels below do its work), and it must not guess which address the loopback is.
os.environ.setdefault("TESTCONTAINERS_RYUK_DISABLED", "true")
os.environ.setdefault("TESTCONTAINERS_HOST_OVERRIDE", "127.0.0.1")

from testcontainers.core.container import DockerContainer

TEST, OWNER, SERVER = "io.kube-sync.test", "io.kube-sync.owner", "io.kube-sync.server"
_NOBODY = 65532  # as in the images made here and in distroless ones
_GRACE = 10


@dataclass(slots=True)
class ContainerLauncher:
    """Starts servers as containers and counts them."""

    form: str = "containers"
    started: list[str] = field(default_factory=list)

    def launch(self, spec: ServerSpec) -> ContainerServer:
        """Start a server and wait until it is ready; one that fails leaves no container behind."""
        server = ContainerServer(spec, self.started)
        server.start()
        return server


class ContainerServer:
    """One server that runs as a container; every start makes a new one around the same folder."""

    def __init__(self, spec: ServerSpec, started: list[str]) -> None:
        self.spec = spec
        self.url = spec.url
        self._started = started
        self._log = spec.folder / f"{spec.name}.log"
        self._container: DockerContainer | None = None

    def start(self) -> None:
        """Start it (again) with what its folder holds and wait until it is ready."""
        self.stop()
        self._container = _container(self.spec)
        try:
            self._container.start()
            self._started.append(self._container.get_container_id())
            wait_until_ready(self)
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """Ask it to end, wait until it has."""
        if self.alive():
            self._wrapped().stop(timeout=_GRACE)
        self._remove()

    def kill(self) -> None:
        """End it without warning (SIGKILL), as a crash would."""
        if self.alive():
            self._wrapped().kill("SIGKILL")
            self._wrapped().wait()
        self._remove()

    def alive(self) -> bool:
        """Tell whether it runs."""
        if self._container is None:
            return False
        with suppress(docker.errors.NotFound):
            self._wrapped().reload()
            return bool(self._wrapped().status == "running")
        return False

    def logs(self) -> str:
        """Return the last lines it wrote."""
        if self._container is not None:
            return str(self._wrapped().logs(tail=20).decode(errors="replace"))
        return tail(self._log)

    def rss_bytes(self) -> int:
        """Return the memory it holds now, 0 when it does not run."""
        return rss_bytes(self._wrapped().attrs["State"]["Pid"]) if self.alive() else 0

    def _wrapped(self) -> Container:
        if self._container is None:
            msg = f"{self.spec.name} was not started"
            raise RuntimeError(msg)
        return self._container.get_wrapped_container()

    def _remove(self) -> None:
        if self._container is None:
            return
        with suppress(docker.errors.NotFound), self._log.open("ab") as log:
            log.write(self._wrapped().logs())
        with suppress(docker.errors.NotFound):
            self._container.stop()
        self._container = None


def _container(spec: ServerSpec) -> DockerContainer:
    tool = tools()[spec.program]
    user = _hand_over(spec)
    owner = ProcessId.of(os.getpid())
    return (
        DockerContainer(ensure_image(spec.program))
        .with_command(list(spec.arguments))
        .with_envs(**spec.environment)
        .with_volume_mapping(str(spec.folder), str(spec.folder), "rw")
        .with_kwargs(
            entrypoint=[tool.image_path],
            network="host",
            user=user,
            read_only=True,
            cap_drop=["ALL"],
            security_opt=["no-new-privileges"],
            mem_limit=spec.memory,
            labels={
                TEST: "1",
                OWNER: f"{owner.pid}.{owner.started}" if owner else "",
                SERVER: spec.url,
            },
        )
    )


def _hand_over(spec: ServerSpec) -> str:
    """Return who the server runs as: the caller, but never root, who gives the folder away."""
    if os.getuid() != 0:
        return f"{os.getuid()}:{os.getgid()}"
    for path in (spec.folder, *spec.folder.rglob("*")):
        os.lchown(path, _NOBODY, _NOBODY)
    return f"{_NOBODY}:{_NOBODY}"


def _removed(container: Container) -> bool:
    """Remove a container; returns whether no other session was faster."""
    try:
        container.remove(force=True, v=True)
    except docker.errors.APIError as error:
        if error.status_code not in (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT):
            raise
        return False
    return True


def remove_leftovers() -> int:
    """Remove the containers of test sessions that ended without doing so; return how many."""
    removed = 0
    with engine() as client:
        for container in client.containers.list(
            all=True, filters={"label": f"{TEST}=1"}, ignore_removed=True
        ):
            pid, _, started = container.labels.get(OWNER, "").partition(".")
            if not (pid and ProcessId(int(pid), int(started)).alive()):
                removed += _removed(container)
    return removed
