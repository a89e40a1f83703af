"""Services with `--wait` beside files that are not there yet, or wrong: told, and mended by itself.

As in a pod whose Secret lacks a key or was made by hand: nothing restarts the process.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from kube_sync.certificates import KeyPair, issue, make_authority
from tests.eventually import eventually
from tests.integration.test_bad_input import KUBE_SYNC
from tools.servers.files import LOOPBACK
from tools.servers.http import get
from tools.servers.processes import ProcessLauncher
from tools.servers.running import Launcher, RunningServer, ServerSpec, free_port
from tools.servers.secured_opa import RunningOpa, start_opa
from tools.servers.stack import RunningStack

Sections = dict[str, dict[str, Any]]


class Service:
    """One of our commands, and the files of its Secrets."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.server: RunningServer | None = None
        self.url = ""

    def start(self, command: str, sections: Sections) -> None:
        self.folder.mkdir()
        sections["observe"] = {"listen": f"127.0.0.1:{free_port()}"}
        self.url = f"http://{sections['observe']['listen']}"
        file = self.folder / "config.yaml"
        file.write_text(yaml.safe_dump(sections), encoding="utf-8")
        self.server = ProcessLauncher().launch(
            ServerSpec(
                name=command,
                program=str(KUBE_SYNC),
                arguments=(command, "--wait", "--config", str(file)),
                folder=self.folder,
                url=self.url,
                ready_paths=("/livez",),
            )
        )

    def page(self) -> str:
        return get(self.url + "/readyz").body.decode()

    def says(self, *words: str) -> Callable[[], bool]:
        """Return what tells whether it is not ready for this reason."""

        def look() -> bool:
            page = self.page()
            lines = [line for line in page.splitlines() if all(word in line for word in words)]
            return page.endswith("\nnot ready\n") and len(lines) == 1

        return look

    def logged(self, *words: str) -> bool:
        assert self.server is not None
        lines = self.server.logs().splitlines()
        return any(all(word in line for word in words) for line in lines)

    def is_ready(self) -> bool:
        return self.page().endswith("\nready\n")


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    running = Service(tmp_path / "service")
    yield running
    if running.server is not None:
        running.server.stop()


@pytest.fixture
def own_opa(launcher: Launcher, tmp_path: Path) -> Iterator[RunningOpa]:
    running = start_opa(launcher, tmp_path / "own-opa")
    yield running
    running.server.stop()


def replicate(stack: RunningStack, opa: RunningOpa) -> Sections:
    return {
        "kubernetes": {"kubeconfig": str(stack.kubeconfigs["replicator"])},
        "opa": dict(opa.settings()),
        "decisions": dict(opa.replicator.server()),
    }


def remediate(stack: RunningStack, opa: RunningOpa) -> Sections:
    return {
        "kubernetes": {"kubeconfig": str(stack.kubeconfigs["remediator"])},
        "decisions": dict(opa.replicator.client()),
        "remediate": {"listen": f"127.0.0.1:{free_port()}"},
    }


def admit(stack: RunningStack, opa: RunningOpa, pair: KeyPair, folder: Path) -> Sections:
    (folder / "tls.crt").write_bytes(pair.cert_pem)
    (folder / "tls.key").write_bytes(pair.key_pem)
    token = {"token_file": str(opa.token_files["admission"])}
    return {
        "kubernetes": {"kubeconfig": str(stack.kubeconfigs["admission"])},
        "opa": dict(opa.settings()) | token,
        "admission": {
            "listen": f"127.0.0.1:{free_port()}",
            "cert_file": str(folder / "tls.crt"),
            "key_file": str(folder / "tls.key"),
        },
    }


@pytest.fixture
def pair() -> KeyPair:
    return issue(make_authority("webhook"), "admission", LOOPBACK)


async def test_replicator_waits_for_its_token(
    stack: RunningStack, own_opa: RunningOpa, service: Service, tmp_path: Path
) -> None:
    sections, token = replicate(stack, own_opa), tmp_path / "token"
    right = own_opa.token_files["replicator"].read_text(encoding="utf-8")
    sections["opa"]["token_file"] = str(token)
    service.start("replicate", sections)
    await eventually(service.says("start: token file", str(token), "No such file"), expected=True)
    assert service.logged("not_ready", str(token))
    token.write_text("", encoding="utf-8")
    await eventually(service.says("start: token file", str(token), "empty"), expected=True)
    token.write_text(right, encoding="utf-8")
    await eventually(service.is_ready, expected=True)


@pytest.mark.slow
async def test_replicator_waits_for_opas_authority(
    stack: RunningStack, own_opa: RunningOpa, service: Service, tmp_path: Path
) -> None:
    sections, file = replicate(stack, own_opa), tmp_path / "ca.crt"
    sections["opa"]["ca_file"] = str(file)
    file.write_text("", encoding="utf-8")
    service.start("replicate", sections)
    await eventually(
        service.says("start:", str(file), "holds no certificate authority"), expected=True
    )
    file.write_bytes(own_opa.ca_file.read_bytes())
    await eventually(service.is_ready, expected=True)


@pytest.mark.slow
async def test_remediator_waits_for_the_token_of_the_stream(
    stack: RunningStack, own_opa: RunningOpa, service: Service, tmp_path: Path
) -> None:
    sections, token = remediate(stack, own_opa), tmp_path / "token"
    sections["decisions"]["token_file"] = str(token)
    service.start("remediate", sections)
    await eventually(service.says(": token file", str(token), "No such file"), expected=True)
    token.write_text("some", encoding="utf-8")
    # What it waits for now is the replicator, of which there is none.
    await eventually(service.says("decisions: ", own_opa.replicator.url), expected=True)


@pytest.mark.slow
async def test_webhook_waits_for_its_certificate(
    stack: RunningStack, own_opa: RunningOpa, service: Service, pair: KeyPair, tmp_path: Path
) -> None:
    sections = admit(stack, own_opa, pair, tmp_path)
    other = issue(make_authority("another"), "admission", LOOPBACK)
    (tmp_path / "tls.key").write_bytes(other.key_pem)
    service.start("admit", sections)
    await eventually(
        service.says("start:", "tls.crt", "are not a certificate and its key"), expected=True
    )
    (tmp_path / "tls.key").unlink()
    await eventually(service.says("start:", "tls.key", "No such file"), expected=True)
    (tmp_path / "tls.key").write_bytes(pair.key_pem)
    await eventually(service.is_ready, expected=True)


@pytest.mark.slow
async def test_webhook_with_an_expired_certificate_is_not_ready_until_it_has_another(
    stack: RunningStack, own_opa: RunningOpa, service: Service, pair: KeyPair, tmp_path: Path
) -> None:
    expired = issue(make_authority("old"), "admission", LOOPBACK, timedelta(seconds=-1))
    service.start("admit", admit(stack, own_opa, expired, tmp_path))
    await eventually(service.says("admission certificate:", "tls.crt", "expired on"), expected=True)
    assert service.logged("not_ready", "expired on")
    (tmp_path / "tls.key").write_bytes(pair.key_pem)
    (tmp_path / "tls.crt").write_bytes(pair.cert_pem)
    await eventually(service.is_ready, expected=True)


@pytest.mark.slow
@pytest.mark.parametrize("command", ["replicate", "admit"])
async def test_an_opa_that_asks_nobody_who_he_is_keeps_everybody_unready(
    stack: RunningStack,
    launcher: Launcher,
    service: Service,
    pair: KeyPair,
    tmp_path: Path,
    command: str,
) -> None:
    """Started without --authentication, --authorization and system.authz, and then as it should."""
    arguments = ("--authentication=off", "--authorization=off")
    opened = start_opa(launcher, tmp_path / "open-opa", arguments)
    try:
        sections = (
            replicate(stack, opened)
            if command == "replicate"
            else admit(stack, opened, pair, tmp_path)
        )
        service.start(command, sections)
        await eventually(
            service.says("opa authorization:", opened.url, "whoever has no token"), expected=True
        )
        opened.server.stop()
        secured = launcher.launch(without(opened.server.spec, arguments))
        try:
            await eventually(service.is_ready, expected=True)
        finally:
            secured.stop()
    finally:
        opened.server.stop()


def without(spec: ServerSpec, arguments: tuple[str, ...]) -> ServerSpec:
    kept = tuple(one for one in spec.arguments if one not in arguments)
    return replace(spec, arguments=kept)


@pytest.mark.slow
async def test_an_opa_whose_authorization_knows_another_token_is_named(
    stack: RunningStack, own_opa: RunningOpa, service: Service, tmp_path: Path
) -> None:
    """The Secret with the digests is of another day than the token."""
    sections, token = replicate(stack, own_opa), tmp_path / "token"
    token.write_text("of-another-day", encoding="utf-8")
    sections["opa"]["token_file"] = str(token)
    service.start("replicate", sections)
    await eventually(
        service.says("opa: ", "401", "is opa.token_file the right one?"), expected=True
    )
    token.write_text(own_opa.token_files["replicator"].read_text(encoding="utf-8"))
    await eventually(service.is_ready, expected=True)


async def test_an_account_without_its_role_is_named_until_it_has_it(
    stack: RunningStack, own_opa: RunningOpa, service: Service
) -> None:
    """An overlay without manifests/base, or with the roles of another version."""
    sections = replicate(stack, own_opa)
    name = "kube-sync-replicator"
    kept = json.loads(stack.kubectl("get", "clusterrolebinding", name, "--output=json"))
    for field in ("resourceVersion", "uid", "managedFields", "creationTimestamp"):
        kept["metadata"].pop(field, None)
    stack.kubectl("delete", "clusterrolebinding", name)
    try:
        service.start("replicate", sections)
        await eventually(service.says("replicasets.v1.apps: ", "403", name), expected=True)
    finally:
        stack.kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(kept))
    await eventually(service.is_ready, expected=True, seconds=60)


@pytest.mark.slow
async def test_a_process_that_waits_for_a_file_ends_when_it_is_told_to(
    stack: RunningStack, own_opa: RunningOpa, tmp_path: Path
) -> None:
    """As process 1 of a container nothing has a default: it would be killed after half a minute."""
    sections = replicate(stack, own_opa)
    sections["opa"]["token_file"] = "/nowhere/token"
    sections["observe"] = {"listen": "127.0.0.1:0"}
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump(sections), encoding="utf-8")
    command = (str(KUBE_SYNC), "replicate", "--wait", "--config", str(file))
    process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
    assert process.stderr is not None
    async with asyncio.timeout(30):
        while b"/nowhere/token" not in await process.stderr.readline():
            pass
        process.terminate()
        _, said = await process.communicate()
    assert (process.returncode, b"Traceback" in said) == (0, False)


@pytest.mark.slow
async def test_another_configuration_ends_the_wait(
    stack: RunningStack, own_opa: RunningOpa, tmp_path: Path
) -> None:
    """Then the kubelet starts the process again, with what it says now."""
    sections = replicate(stack, own_opa)
    sections["opa"]["token_file"] = "/nowhere/token"
    sections["observe"] = {"listen": "127.0.0.1:0"}
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump(sections), encoding="utf-8")
    command = (str(KUBE_SYNC), "replicate", "--wait", "--config", str(file))
    process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
    assert process.stderr is not None
    async with asyncio.timeout(30):
        while b"/nowhere/token" not in await process.stderr.readline():
            pass
        file.write_text(yaml.safe_dump(sections | {"builtin": ["scheduling"]}), encoding="utf-8")
        _, said = await process.communicate()
    assert process.returncode == 64
    assert said.decode().splitlines()[-1].startswith("kube-sync: token file /nowhere/token")
