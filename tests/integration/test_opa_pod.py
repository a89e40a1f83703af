"""OPA with the arguments of its pod, on volumes as the kubelet makes and replaces them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

import pytest

from kube_sync.provisioning.plan import planned
from kube_sync.provisioning.secrets import Content
from kube_sync.provisioning.wanted import ACCESS, AUTHORITY, wanted
from kube_sync.settings import Settings
from tests.fakes.manifests import build, containers, of_kind
from tests.integration.test_pair import eventually
from tools.servers.binaries import ensure_binary
from tools.servers.http import request
from tools.servers.processes import ProcessLauncher
from tools.servers.running import Launcher, ServerSpec, free_port

WANTED = wanted(Settings())
REPLICATOR = "kube-sync-opa-replicator"


class Volume:
    """A folder whose files are links into a version that is swapped at once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._versions = count(1)
        folder.mkdir()

    def fill(self, files: Mapping[str, bytes]) -> None:
        version = self.folder / f"..2026_{next(self._versions)}"
        version.mkdir()
        for name, content in files.items():
            (version / name).write_bytes(content)
            if not (self.folder / name).is_symlink():
                (self.folder / name).symlink_to(f"..data/{name}")
        old = (self.folder / "..data").readlink() if (self.folder / "..data").exists() else None
        (self.folder / "..data_tmp").symlink_to(version.name)
        (self.folder / "..data_tmp").rename(self.folder / "..data")
        if old is not None:
            shutil.rmtree(self.folder / old)


@dataclass
class Pod:
    """The volumes of OPA's container, and its Secrets as the Job makes them."""

    folder: Path
    secrets: dict[str, Content]
    now: float
    url: str = ""

    def run(self, seconds: float = 0.0) -> None:
        """Let the Job run after this time, and the kubelet bring what it made."""
        self.now += seconds
        self.secrets |= planned(self.secrets, WANTED, self.now)
        self.mount()

    def mount(self) -> None:
        [authz] = [
            found["data"]
            for found in of_kind(build("overlays/minimal"), "ConfigMap")
            if "authz.rego" in found["data"]
        ]
        text = {name: content.encode() for name, content in authz.items()}
        VOLUMES[self.folder]["authz"].fill(text | dict(self.secrets[ACCESS].data))
        VOLUMES[self.folder]["tls"].fill(self.secrets["kube-sync-opa-tls"].data)

    def asks(self, token: bytes) -> int:
        """Return what OPA answers to the replicator, by whoever trusts the authorities now."""
        ca_file = self.folder / "ca.crt"
        ca_file.write_bytes(self.secrets["kube-sync-opa-tls"].data["ca.crt"])
        return request(
            "GET", self.url + "/v1/data/kubernetes", ca_file=ca_file, token=token.decode()
        ).status


VOLUMES: dict[Path, dict[str, Volume]] = {}


@pytest.fixture
def pod(launcher: Launcher, tmp_path: Path) -> Iterator[Pod]:
    """OPA as a process: what is tried are files, of which the engine makes no difference."""
    assert launcher
    running = Pod(tmp_path, {}, datetime.now(UTC).timestamp())
    VOLUMES[tmp_path] = {name: Volume(tmp_path / name) for name in ("authz", "tls", "config")}
    running.run()
    [container] = [c for _, c in containers(build("overlays/minimal")) if c["name"] == "opa"]
    [config] = [
        found["data"]["opa.yaml"]
        for found in of_kind(build("overlays/minimal"), "ConfigMap")
        if "opa.yaml" in found["data"]
    ]
    config = config.replace("/run/", f"{tmp_path}/").replace(
        "_delay_seconds: 10", "_delay_seconds: 1"
    )
    config = config.replace("_delay_seconds: 20", "_delay_seconds: 2")
    VOLUMES[tmp_path]["config"].fill({"opa.yaml": config.encode()})
    port = free_port()
    arguments = [one.replace("/run/", f"{tmp_path}/") for one in container["args"]]
    arguments = [one.replace("0.0.0.0:8181", f"127.0.0.1:{port}") for one in arguments]
    arguments = [one.replace("-period=30s", "-period=1s") for one in arguments]
    running.url = f"https://127.0.0.1:{port}"
    ca_file = tmp_path / "ca.crt"
    ca_file.write_bytes(running.secrets["kube-sync-opa-tls"].data["ca.crt"])
    server = ProcessLauncher().launch(
        ServerSpec(
            name="opa",
            program=str(ensure_binary("opa")),
            arguments=tuple(arguments),
            folder=tmp_path,
            url=running.url,
            ready_paths=("/health",),
            ca_file=ca_file,
        )
    )
    yield running
    server.kill()
    del VOLUMES[tmp_path]


def token(pod: Pod, key: str = "token") -> bytes:
    return pod.secrets[REPLICATOR].data[key]


async def test_opa_serves_with_what_the_job_makes_and_knows_nobody_else(pod: Pod) -> None:
    assert pod.asks(token(pod)) == 200
    assert pod.asks(b"guessed") == 401


async def test_a_token_that_is_announced_is_known_while_it_runs(pod: Pod) -> None:
    """Of the first replacement of a volume OPA takes notice; docs/install.md tells of the others."""
    old = token(pod)
    pod.secrets[REPLICATOR] = Content(pod.secrets[REPLICATOR].data, since=0.0)
    pod.run()
    new = token(pod, "next")
    await eventually(lambda: (pod.asks(old), pod.asks(new)), (200, 200))


async def test_certificate_and_authority_are_replaced_while_it_runs(pod: Pod) -> None:
    """Of an authority that nobody trusts any more there is no answer at all."""
    pod.secrets.pop(AUTHORITY)
    pod.secrets.pop("kube-sync-opa-tls")
    pod.run()

    def answer() -> int | None:
        try:
            return pod.asks(token(pod))
        except OSError:
            return None

    assert answer() is None
    await eventually(answer, 200)
