"""What a person reads when something around the services is wrong, and that it mends by itself."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
import yaml

from kube_sync.certificates import issue, make_authority
from tests.eventually import eventually
from tests.parts import quickly
from tools.servers.files import LOOPBACK
from tools.servers.http import get
from tools.servers.processes import ProcessLauncher
from tools.servers.running import Launcher, RunningServer, ServerSpec, free_port
from tools.servers.secured_opa import RunningOpa, start_opa
from tools.servers.stack import RunningStack

KUBE_SYNC = Path(sys.executable).with_name("kube-sync")


def settings(stack: RunningStack, opa: RunningOpa) -> dict[str, dict[str, object]]:
    """Return a configuration with which the replicator becomes ready."""
    return {
        "kubernetes": {"kubeconfig": str(stack.kubeconfigs["replicator"])},
        "opa": opa.settings(),
        "decisions": opa.replicator.server(),
        "observe": {"listen": f"127.0.0.1:{free_port()}"},
    }


@pytest.fixture
def own_opa(launcher: Launcher, tmp_path: Path) -> Iterator[RunningOpa]:
    running = start_opa(launcher, tmp_path / "own-opa")
    yield running
    running.server.stop()


class Replicator:
    """`kube-sync replicate` with a configuration that may be wrong."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.server: RunningServer | None = None
        self.url = ""

    def start(self, configuration: dict[str, dict[str, object]]) -> None:
        self.folder.mkdir()
        file = self.folder / "config.yaml"
        file.write_text(yaml.safe_dump(configuration), encoding="utf-8")
        self.url = f"http://{configuration['observe']['listen']}"
        self.server = ProcessLauncher().launch(
            ServerSpec(
                name="replicate",
                program=str(KUBE_SYNC),
                arguments=("replicate", "--config", str(file)),
                folder=self.folder,
                url=self.url,
                ready_paths=("/livez",),  # alive whatever is wrong outside
            )
        )

    def readiness(self) -> tuple[int, str]:
        answer = get(self.url + "/readyz")
        return answer.status, answer.body.decode()

    def says(self, *words: str) -> bool:
        status, text = self.readiness()
        return status == 503 and all(word in text for word in words)


@pytest.fixture
def replicator(tmp_path: Path) -> Iterator[Replicator]:
    running = Replicator(tmp_path / "replicate")
    yield running
    if running.server is not None:
        running.server.stop()


async def test_wrong_opa_token_is_named_and_mends_when_the_file_does(
    stack: RunningStack, own_opa: RunningOpa, replicator: Replicator, tmp_path: Path
) -> None:
    configuration = settings(stack, own_opa)
    token = tmp_path / "token"
    token.write_text("guessed", encoding="utf-8")
    configuration["opa"]["token_file"] = str(token)
    replicator.start(configuration)
    await eventually(lambda: replicator.says("opa: ", "401", "opa.token_file"), expected=True)
    right = own_opa.token_files["replicator"].read_text(encoding="utf-8")
    token.write_text(right, encoding="utf-8")
    await eventually(lambda: replicator.readiness()[0], 200)


@pytest.mark.slow
async def test_absent_opa_is_named_and_used_when_it_comes(
    stack: RunningStack, own_opa: RunningOpa, replicator: Replicator
) -> None:
    own_opa.server.kill()
    replicator.start(settings(stack, own_opa))
    await eventually(lambda: replicator.says("opa: ", own_opa.url, "Cannot connect"), expected=True)
    await asyncio.to_thread(own_opa.server.start)
    await eventually(lambda: replicator.readiness()[0], 200)


async def test_unreachable_api_server_is_named(
    stack: RunningStack, own_opa: RunningOpa, replicator: Replicator, tmp_path: Path
) -> None:
    kubeconfig = json.loads(stack.kubeconfigs["replicator"].read_text(encoding="utf-8"))
    nobody = f"https://127.0.0.1:{free_port()}"
    kubeconfig["clusters"][0]["cluster"]["server"] = nobody
    file = tmp_path / "kubeconfig"
    file.write_text(json.dumps(kubeconfig), encoding="utf-8")
    configuration = settings(stack, own_opa)
    configuration["kubernetes"]["kubeconfig"] = str(file)
    replicator.start(configuration)
    await eventually(
        lambda: replicator.says("replicasets.v1.apps: ", nobody, "Cannot connect"), expected=True
    )


async def test_certificate_of_another_authority_is_named(
    stack: RunningStack, own_opa: RunningOpa, replicator: Replicator, tmp_path: Path
) -> None:
    other = tmp_path / "other-ca.crt"
    other.write_bytes(make_authority("somebody else").cert_pem)
    configuration = settings(stack, own_opa)
    configuration["opa"]["ca_file"] = str(other)
    replicator.start(configuration)
    await eventually(lambda: replicator.says("opa: ", "certificate"), expected=True)


@pytest.mark.slow
async def test_expired_certificate_is_named(
    stack: RunningStack,
    launcher: Launcher,
    own_opa: RunningOpa,
    replicator: Replicator,
    tmp_path: Path,
) -> None:
    authority = make_authority("expired")
    pair = issue(authority, "opa", LOOPBACK, lifetime=timedelta(seconds=-1))
    folder = own_opa.server.spec.folder
    own_opa.server.stop()
    (folder / "tls.crt").write_bytes(pair.cert_pem)
    (folder / "tls.key").write_bytes(pair.key_pem)
    # Nobody can see that it is ready, which is the point.
    opa = launcher.launch(replace(own_opa.server.spec, ready_paths=()))
    try:
        ca_file = tmp_path / "expired-ca.crt"
        ca_file.write_bytes(authority.cert_pem)
        configuration = settings(stack, own_opa)
        configuration["opa"]["ca_file"] = str(ca_file)
        replicator.start(configuration)
        await eventually(lambda: replicator.says("opa: ", "expired"), expected=True)
    finally:
        opa.stop()


@pytest.mark.slow
async def test_unknown_resource_is_named(
    stack: RunningStack, own_opa: RunningOpa, replicator: Replicator
) -> None:
    configuration = settings(stack, own_opa)
    gadgets = {"group": "example.com", "version": "v1", "resource": "gadgets"}
    replicasets = {"group": "apps", "version": "v1", "resource": "replicasets"}
    configuration["replicate"] = {"resources": [gadgets, replicasets]}
    replicator.start(configuration)
    # 403: this account may not list them; 404, where it may, says that the kind is not there.
    await eventually(lambda: replicator.says("gadgets.v1.example.com: "), expected=True)


@pytest.mark.parametrize(
    ("change", "complaint"),
    quickly(
        2,
        [
            ({"opa": {"urll": "x"}}, "opa.urll: unknown key"),
            ({"opa": {"token_file": "/nowhere/token"}}, "token file /nowhere/token: No such file"),
            ({"opa": {"url": "https://h", "ca_file": "/nowhere/ca"}}, "/nowhere/ca: No such file"),
            ({"kubernetes": {"kubeconfig": "/nowhere/kubeconfig"}}, "/nowhere/kubeconfig"),
            ({"remediate": {"mode": "fast"}}, "remediate.mode"),
        ],
    ),
)
def test_wrong_configuration_is_one_line_and_status_2(
    stack: RunningStack, tmp_path: Path, change: dict[str, object], complaint: str
) -> None:
    configuration: dict[str, object] = {
        "kubernetes": {"kubeconfig": str(stack.kubeconfigs["replicator"])},
        "decisions": {"listen": "127.0.0.1:0"},
        "observe": {"listen": "127.0.0.1:0"},
    } | change
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump(configuration), encoding="utf-8")
    answer = subprocess.run(
        [KUBE_SYNC, "replicate", "--log-level", "error", "--config", str(file)],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        env=dict(os.environ),
    )
    assert answer.returncode == 64
    assert complaint in answer.stderr
    assert len(answer.stderr.strip().splitlines()) == 1
