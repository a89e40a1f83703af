"""Tokens and certificates are replaced on real servers while `kube-sync replicate` runs.

Each rotation goes the way that the documentation tells: what is new is made valid beside what is
old, then used, then what is old ends; nothing is restarted, and nothing is lost on the way.
"""

from __future__ import annotations

import io
import json
import ssl
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from kube_sync.certificates import issue, make_authority
from kube_sync.config import Decisions
from kube_sync.decisions.streamclient import stream_client
from tests.eventually import eventually
from tools.demo.components import start_service
from tools.demo.fleet import cluster
from tools.servers.files import LOOPBACK, write_file, write_pair
from tools.servers.http import Answer, get
from tools.servers.processes import ProcessLauncher
from tools.servers.running import Launcher, RunningServer, free_port
from tools.servers.secured_opa import RunningOpa, access_data, start_opa, write_opa_files
from tools.servers.specs import AUTHZ_BUNDLE, opa_spec
from tools.servers.stack import RunningStack

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


@dataclass
class World:
    """One OPA that looks at its files, and a replicator beside it."""

    stack: RunningStack
    opa: RunningOpa
    folder: Path
    namespace: str
    pod: RunningServer
    seen: int = 0

    @property
    def served(self) -> Path:
        """OPA's own files."""
        return self.folder / "opa/opa"

    def hand_out(self, *replicators: str) -> None:
        """Tell OPA which tokens the replicator may show."""
        others = {
            role: file.read_text(encoding="utf-8")
            for role, file in self.opa.token_files.items()
            if role != "replicator"
        }
        holders = [*others.items(), *(("replicator", token) for token in replicators)]
        target = self.served / AUTHZ_BUNDLE / "data.json"
        target.write_text(json.dumps(access_data(holders)), encoding="utf-8")

    def ask(self, token: str, ca_file: Path | None = None) -> Answer:
        """Read the clusters of the namespace in OPA."""
        url = f"{self.opa.url}/v1/data/kubernetes/clusters/{self.namespace}"
        return get(url, ca_file=ca_file or self.opa.ca_file, token=token)

    def names(self, token: str, ca_file: Path | None = None) -> set[str]:
        """Return the clusters that OPA knows."""
        try:
            found: Mapping[str, object] = json.loads(self.ask(token, ca_file).body).get(
                "result", {}
            )
        except OSError:
            return set()
        return set(found)

    async def replicates(self, token: str, ca_file: Path | None = None) -> None:
        """Return when one more cluster has come to OPA."""
        self.seen += 1
        name = f"c-{self.seen}"
        manifest = cluster(name, "eu", "high")
        manifest["metadata"]["namespace"] = self.namespace
        self.stack.kubectl("apply", "-f", "-", stdin=json.dumps(manifest))
        await eventually(lambda: name in self.names(token, ca_file), expected=True, seconds=40)

    async def streams(self) -> None:
        """Return when the decision stream has told something to whoever has the token."""
        endpoint = self.opa.replicator
        settings = Decisions(
            url=f"{endpoint.url}/v1/decisions",
            token_file=str(endpoint.token_file),
            ca_file=str(endpoint.ca_file),
        )
        async with (
            stream_client(settings, lambda _: None) as client,
            aclosing(client.records()) as records,
        ):
            async for record in records:
                if record is not None:
                    return


@pytest.fixture
def world(
    launcher: Launcher, stack: RunningStack, namespace: str, tmp_path: Path
) -> Iterator[World]:
    opa = start_opa(launcher, tmp_path / "opa", ["--watch"])
    configuration: dict[str, object] = {
        "kubernetes": {"kubeconfig": str(stack.kubeconfigs["replicator"])},
        "opa": opa.settings(),
        "decisions": opa.replicator.server(),
    }
    pod = start_service("replicate", tmp_path / "pod", configuration)
    yield World(stack, opa, tmp_path, namespace, pod)
    pod.kill()
    opa.server.stop()


async def test_opas_tokens_overlap_and_the_old_one_ends(world: World) -> None:
    file = world.opa.token_files["replicator"]
    old, new = file.read_text(encoding="utf-8"), "the-next-token"
    await world.replicates(old)
    world.hand_out(old, new)
    await eventually(lambda: world.ask(new).status, 200)
    assert world.ask(old).status == 200, "both are good for a while"
    file.write_text(new, encoding="utf-8")
    await world.replicates(new)
    world.hand_out(new)
    await eventually(lambda: world.ask(old).status, 401)
    await world.replicates(new)
    assert world.pod.alive()


async def test_opas_certificate_and_its_authority_are_replaced(world: World) -> None:
    token = world.opa.token_files["replicator"].read_text(encoding="utf-8")
    await world.replicates(token)
    ca_file, successor = world.opa.ca_file, make_authority("successor")
    old = ca_file.read_bytes()
    ca_file.write_bytes(old + successor.cert_pem)
    write_pair(world.served, "tls", issue(successor, "opa", LOOPBACK))
    only_new = world.folder / "new.crt"
    only_new.write_bytes(successor.cert_pem)
    await eventually(lambda: world.names(token, only_new) != set(), expected=True)
    await world.replicates(token, only_new)
    ca_file.write_bytes(successor.cert_pem)
    await world.replicates(token, only_new)
    assert world.pod.alive()


async def test_token_and_certificate_of_the_stream_are_replaced(world: World) -> None:
    """OPA fetches its policies there too, and reads its token anew each time."""
    endpoint, token = world.opa.replicator, world.opa.token_files["replicator"]
    await world.streams()
    pair = issue(world.opa.authority, "replicator", LOOPBACK)
    endpoint.key_file.write_bytes(pair.key_pem)
    endpoint.cert_file.write_bytes(pair.cert_pem)
    served = pair.cert_pem.decode().strip()
    address = ("127.0.0.1", endpoint.port)
    await eventually(lambda: ssl.get_server_certificate(address).strip(), served)
    old, new = endpoint.token_file.read_text(encoding="utf-8"), "the-next-token"
    endpoint.token_file.write_text(f"{old}\n{new}\n", encoding="utf-8")
    (world.served / "replicator.token").write_text(new, encoding="utf-8")
    await world.streams()
    endpoint.token_file.write_text(new, encoding="utf-8")
    await world.streams()
    await world.replicates(token.read_text(encoding="utf-8"))
    assert world.pod.alive()


def _mounted(folder: Path, source: Path, *replicators: str) -> Path:
    """Lay out the authorization as the kubelet mounts a Secret, in place of what was there."""
    turn = folder / f"..{len(list(folder.glob('..*')))}"
    turn.mkdir(parents=True)
    data = json.dumps(access_data([("replicator", token) for token in replicators])).encode()
    with tarfile.open(turn / "authz.tar.gz", "w:gz") as archive:
        for file in (".manifest", "authz.rego", "log.rego"):
            archive.add(source / file, file)
        member = tarfile.TarInfo("data.json")
        member.size = len(data)
        archive.addfile(member, io.BytesIO(data))
    (folder / "..next").symlink_to(turn.name)
    (folder / "..next").rename(folder / "..data")
    mounted = folder / "authz.tar.gz"
    if not mounted.is_symlink():
        mounted.symlink_to("..data/authz.tar.gz")
    return mounted


async def test_access_list_in_a_mounted_secret_is_rotated_as_an_archive(tmp_path: Path) -> None:
    """A mounted folder cannot be the bundle: OPA would read the kubelet's own folders in it too."""
    source = tmp_path / "opa"
    authority = make_authority("mounted")
    write_opa_files(source, issue(authority, "opa", LOOPBACK), [])
    ca_file = write_file(tmp_path / "ca.crt", authority.cert_pem)
    files = source / AUTHZ_BUNDLE
    archive = _mounted(tmp_path / "mount", files, "old")
    spec = opa_spec(source, free_port(), ca_file=ca_file, token="old", extra_arguments=("--watch",))
    arguments = [str(archive) if part == str(files) else part for part in spec.arguments]
    assert str(archive) in arguments
    server = ProcessLauncher().launch(replace(spec, arguments=tuple(arguments)))

    def statuses() -> list[int]:
        url = f"{server.url}/v1/data/kubernetes"
        return [get(url, ca_file=ca_file, token=token).status for token in ("old", "new")]

    try:
        await eventually(statuses, [200, 401])
        _mounted(tmp_path / "mount", files, "old", "new")
        await eventually(statuses, [200, 200])
        _mounted(tmp_path / "mount", files, "new")
        await eventually(statuses, [401, 200])
    finally:
        server.kill()
