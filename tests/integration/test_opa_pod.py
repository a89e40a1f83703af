"""OPA with the arguments of its pod, on volumes as the kubelet makes and replaces them."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from kube_sync.config import Settings
from kube_sync.provisioning.plan import planned
from kube_sync.provisioning.secrets import Content
from kube_sync.provisioning.wanted import ACCESS, AUTHORITY, wanted
from tests.eventually import eventually
from tests.fakes.manifests import Manifest, build, containers, of_kind
from tools.observing.__main__ import RULES
from tools.observing.mixin import evaluated
from tools.servers.binaries import ensure_binary
from tools.servers.http import Answer, request
from tools.servers.processes import ProcessLauncher
from tools.servers.running import ServerSpec, free_port

pytestmark = pytest.mark.slow

WANTED = wanted(Settings())
REPLICATOR, METRICS = "kube-sync-opa-replicator", "kube-sync-opa-metrics"
# Of the metrics that are asked for, those of OPA and of the language that it is written in.
OPAS_OWN = re.compile(r"(?<![:\w])(?:opa|bundle|go|last_success)_[a-z_]+")


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
        old = (self.folder / "..data").readlink() if (self.folder / "..data").exists() else None
        (self.folder / "..data_tmp").symlink_to(version.name)
        (self.folder / "..data_tmp").rename(self.folder / "..data")
        for name in files:
            if not (self.folder / name).is_symlink():
                (self.folder / name).symlink_to(f"..data/{name}")
        if old is not None:
            shutil.rmtree(self.folder / old)


@dataclass
class Pod:
    """The volumes of OPA's container, and its Secrets as the Job makes them."""

    folder: Path
    sources: dict[str, Manifest]  # the Secrets of its volumes, by the volume
    url: str
    now: float
    volumes: dict[str, Volume] = field(default_factory=dict)
    secrets: dict[str, Content] = field(default_factory=dict)
    logs: Callable[[], str] = str

    def run(self, seconds: float = 0.0) -> list[str]:
        """Let the Job run after this time, and the kubelet bring what it made."""
        self.now += seconds
        plan = planned(self.secrets, WANTED, self.now)
        self.secrets |= plan
        for volume, source in self.sources.items():
            if source["secretName"] in plan:
                keys = [item["key"] for item in source.get("items", ())]
                data = self.secrets[source["secretName"]].data
                self.bring(volume, {key: data[key] for key in keys or data})
        return list(plan)

    def bring(self, volume: str, files: Mapping[str, bytes]) -> None:
        if volume not in self.volumes:
            self.volumes[volume] = Volume(self.folder / volume)
        self.volumes[volume].fill(files)

    def turn(self, name: str) -> None:
        """Let the Job find that a token is due."""
        self.secrets[name] = replace(self.secrets[name], since=0.0)
        assert self.run() == [ACCESS, name]

    def token(self, key: str = "token", of: str = REPLICATOR) -> bytes:
        return self.secrets[of].data[key]

    def ask(self, path: str, token: bytes, method: str = "GET", body: str | None = None) -> Answer:
        """Send a request as whoever trusts the authorities of now."""
        url, ca_file = self.url + path, self.ca_file()
        return request(method, url, ca_file=ca_file, token=token.decode(), body=body)

    def ca_file(self) -> Path:
        file = self.folder / "ca.crt"
        file.write_bytes(self.secrets["kube-sync-opa-tls"].data["ca.crt"])
        return file

    def knows(self, *tokens: bytes) -> list[bool]:
        """Tell which of these OPA takes for the replicator's."""
        statuses = [self.ask("/v1/data/kubernetes", token).status for token in tokens]
        assert set(statuses) <= {200, 401}
        return [status == 200 for status in statuses]


@pytest.fixture
def pod(tmp_path: Path) -> Iterator[Pod]:
    """OPA as a process: what is tried are files, of which the engine makes no difference."""
    manifests, port = build("overlays/minimal"), free_port()
    [(spec, container)] = [(s, c) for s, c in containers(manifests) if c["name"] == "opa"]
    mounted = {mount["name"]: Path(mount["mountPath"]).name for mount in container["volumeMounts"]}
    sources = {
        mounted[volume["name"]]: volume["secret"]
        for volume in spec["volumes"]
        if volume["name"] in mounted and "secret" in volume
    }
    running = Pod(tmp_path, sources, f"https://127.0.0.1:{port}", datetime.now(UTC).timestamp())
    running.run()
    [config] = [c["data"] for c in of_kind(manifests, "ConfigMap") if "opa.yaml" in c["data"]]
    here = config["opa.yaml"].replace("/run/", f"{tmp_path}/")
    running.bring("config", {"opa.yaml": here.encode()})
    text = "\n".join(container["args"]).replace("/run/", f"{tmp_path}/")
    text = text.replace("0.0.0.0:8181", f"127.0.0.1:{port}").replace("-period=30s", "-period=1s")
    server = ProcessLauncher().launch(
        ServerSpec(
            name="opa",
            program=str(ensure_binary("opa")),
            arguments=tuple(text.split("\n")),
            folder=tmp_path,
            url=running.url,
            ready_paths=("/health",),
            ca_file=running.ca_file(),
        )
    )
    running.logs = server.logs
    yield running
    server.kill()


async def test_opa_serves_with_what_the_job_makes_and_knows_nobody_else(pod: Pod) -> None:
    assert pod.knows(pod.token(), b"guessed", b"") == [True, False, False]
    assert pod.ask("/v1/data/system/access", pod.token(), "PUT", "{}").status == 401
    patch = json.dumps([{"op": "add", "path": "system/access/tokens", "value": {}}])
    assert pod.ask("/v1/data", pod.token(), "PATCH", patch).status == 400


async def test_tokens_are_rotated_again_and_again_and_what_opa_holds_stays(pod: Pod) -> None:
    """A volume's first new version is not its last; nothing is started again meanwhile."""
    held, first = json.dumps({"fleet": {"west": {}}}), pod.token()
    assert pod.ask("/v1/data/kubernetes/clusters", first, "PUT", held).status == 204
    for _ in range(3):
        pod.turn(REPLICATOR)
        old, new = pod.token(), pod.token("next")
        await eventually(partial(pod.knows, old, new), [True, True])
        assert pod.run(1800) == [REPLICATOR]
        assert pod.token() == new
        assert pod.run(1800) == [ACCESS, REPLICATOR]
        await eventually(partial(pod.knows, old, new), [False, True])
    assert json.loads(pod.ask("/v1/data/kubernetes/clusters", pod.token()).body)["result"] == (
        json.loads(held)
    )


async def test_an_archive_that_is_broken_leaves_the_last_one_in_use(pod: Pod) -> None:
    pod.bring("authz", {"authz.tar.gz": b"no archive"})
    await eventually(lambda: "gzip: invalid header" in pod.logs(), expected=True)
    assert pod.knows(pod.token(), b"guessed") == [True, False]
    pod.turn(REPLICATOR)
    await eventually(lambda: pod.knows(pod.token(), pod.token("next")), [True, True])


async def test_certificate_and_authority_are_replaced_while_it_runs(pod: Pod) -> None:
    """Of an authority that nobody trusts any more there is no answer at all."""
    pod.secrets.pop(AUTHORITY)
    pod.secrets.pop("kube-sync-opa-tls")
    pod.run()

    def answer() -> list[bool] | None:
        try:
            return pod.knows(pod.token())
        except OSError:
            return None

    assert answer() is None
    await eventually(answer, [True])


def test_opa_has_every_metric_that_dashboards_and_rules_ask_it_for(pod: Pod) -> None:
    panels = [panel for model in evaluated()["dashboards"].values() for panel in model["panels"]]
    asked = [target["expr"] for panel in panels for target in panel.get("targets", ())]
    named = set(OPAS_OWN.findall("\n".join([*asked, RULES.read_text(encoding="utf-8")])))
    assert "opa_info" in named
    shown = pod.ask("/metrics", pod.token(of=METRICS)).body.decode()
    assert {name for name in named if f"\n{name}" not in shown} == set()
