"""The generator as a controller asks it, on a real API server: TLS, token, rights, what it says.

Argo CD's own controller asks in `test_argocd.py`. The account of the remediator has exactly its
roles, so what a role lacks is seen too.
"""

from __future__ import annotations

import asyncio
import base64
import json
import secrets
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from kube_sync.certificates import issue, make_authority
from kube_sync.config import Kubernetes, Settings
from kube_sync.decisions.records import StatusRecord
from kube_sync.errors import Refused
from kube_sync.kube.client import kube_client
from kube_sync.processes.provisioning import run_provision
from tests.eventually import eventually
from tests.fakes.decisionstream import FakeDecisionStream, fake_decision_stream
from tests.fakes.manifests import build, of_kind
from tests.integration.decisions_world import World, profile
from tools.demo.components import GUARD_OFF, start_service
from tools.demo.fleet import PREFERENCES
from tools.servers.argocd_controller import cluster_secret
from tools.servers.files import LOOPBACK, write_file, write_pair, write_private
from tools.servers.http import request
from tools.servers.running import Launcher, RunningServer, free_port
from tools.servers.stack import RunningStack, furnished_stack

pytestmark = pytest.mark.asyncio(loop_scope="module")

ARGO = "argocd"


@pytest.fixture(scope="module")
def cluster(launcher: Launcher, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStack]:
    """A stack of its own: the remediator watches all ReplicaSets there are."""
    with furnished_stack(launcher, tmp_path_factory.mktemp("generator")) as stack:
        stack.api.create_namespace(ARGO)
        rights = ("Role", "RoleBinding")
        ours = (*build("argocd"), *build("argocd-applicationsets"))
        for one in (*ours, *of_kind(build("provision"), *rights)):
            stack.api.apply(one)
        stack.api.create_namespace("fleet")
        for name in ("eu", "us"):
            stack.api.create(profile(name))
            stack.api.create(cluster_secret(name, {"region": name}))
        yield stack


@dataclass
class Remediator:
    """A remediator that serves the generator, and may be started again.

    It accepts `token`, of which Argo CD has a copy in its own namespace: `sent`.
    """

    stack: RunningStack
    stream: FakeDecisionStream
    folder: Path
    token: str
    sent: str
    port: int = field(default_factory=free_port)
    services: list[RunningServer] = field(default_factory=list)

    async def start(self, **sections: object) -> None:
        """Start it, with more sections of its configuration."""
        authority = make_authority("generator")
        write_file(self.folder / "ca.crt", authority.cert_pem)
        write_pair(self.folder, "tls", issue(authority, "kube-sync", LOOPBACK))
        configuration: dict[str, object] = {
            "kubernetes": {"kubeconfig": str(self.stack.kubeconfigs["remediator"])},
            "decisions": {"url": f"{self.stream.http.url}/v1/decisions"},
            "remediate": {
                "guard": GUARD_OFF,
                "argocd": {
                    "listen": f"127.0.0.1:{self.port}",
                    "token_file": str(write_private(self.folder / "token", self.token)),
                    "cert_file": str(self.folder / "tls.crt"),
                    "key_file": str(self.folder / "tls.key"),
                },
            },
        }
        start = partial(
            start_service, "remediate", self.folder / "remediate", configuration | sections
        )
        # With a kind that is not served it is not ready, and answers all the same.
        self.services.append(
            await asyncio.to_thread(start, ready="/livez" if sections else "/readyz")
        )

    async def stop(self) -> None:
        await asyncio.to_thread(self.services.pop().stop)


@dataclass(frozen=True)
class Asked:
    """Who asks a remediator about the objects of a namespace."""

    remediator: Remediator
    world: World

    def ask(self, name: str, token: str = "", resource: str = "replicasets") -> tuple[int, Any]:
        parameters = {"resource": resource, "namespace": self.world.namespace, "name": name}
        body = {"applicationSetName": "set", "input": {"parameters": parameters}}
        answer = request(
            "POST",
            f"https://127.0.0.1:{self.remediator.port}/api/v1/getparams.execute",
            ca_file=self.remediator.folder / "ca.crt",
            token=token or self.remediator.sent,
            body=json.dumps(body),
        )
        said = json.loads(answer.body)
        return answer.status, said["output"] if answer.status == 200 else said["message"]

    def names(self, name: str) -> list[str] | str:
        """Return the clusters of an answer, or why there are none."""
        try:
            status, said = self.ask(name)
        except OSError as error:
            return f"no answer: {error}"
        return [one["name"] for one in said["parameters"]] if status == 200 else str(said)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def remediator(
    cluster: RunningStack, tmp_path_factory: pytest.TempPathFactory
) -> AsyncGenerator[Remediator]:
    """It has the token that the job makes."""
    await provisioned(cluster)
    own, sent = (token_in(cluster, namespace) for namespace in ("kube-sync", ARGO))
    async with fake_decision_stream() as stream:
        found = Remediator(cluster, stream, tmp_path_factory.mktemp("generator"), own, sent)
        await found.start()
        yield found
        while found.services:
            await found.stop()


@pytest.fixture
def asked(remediator: Remediator) -> Asked:
    """Of a namespace of the test's own."""
    name = f"test-{secrets.token_hex(4)}"
    remediator.stack.api.create_namespace(name)
    return Asked(remediator, World(remediator.stack, remediator.stream, name))


async def test_a_placement_is_answered_with_what_argo_cd_knows_of_its_clusters(
    asked: Asked,
) -> None:
    uid = await asked.world.create("web")
    asked.world.decide("web", uid, ["eu", "us"], {"eu": "jurisdiction"})
    await eventually(lambda: asked.names("web"), ["eu", "us"])
    _, said = await asyncio.to_thread(asked.ask, "web")
    assert said["parameters"][0] == {
        "name": "eu",
        "server": "https://eu.example.com",
        "labels": {"region": "eu"},
        "reason": "jurisdiction",
    }


async def test_what_is_held_is_answered_with_what_was_let_through_also_after_a_restart(
    asked: Asked,
) -> None:
    world = asked.world
    uid = await world.create("web")
    world.decide("web", uid, ["eu", "us"])
    await eventually(lambda: asked.names("web"), ["eu", "us"])
    world.stream.say(StatusRecord(("OPA is being loaded",), "fake"))
    world.decide("web", uid, ["eu"])
    assert asked.names("web") == ["eu", "us"]
    world.decide("web", uid, [])  # never without `evict`
    world.stream.say(StatusRecord((), "fake"))
    await asked.remediator.stop()
    await asked.remediator.start()
    await eventually(lambda: asked.names("web"), ["eu", "us"])


async def test_a_placement_that_somebody_wrote_is_not_answered(asked: Asked) -> None:
    """As `mode: off` leaves it: nobody puts it right, and no policy let it through."""
    text = '{"clusters":{"eu":{"weight":1}}}'
    await asked.world.create("web", {PREFERENCES: text})
    said = await eventually(lambda: asked.names("web"), lambda found: "written by" in found)
    assert said.endswith("written by somebody else, and no usable decision on it is known")


async def test_a_cluster_without_a_secret_is_said_on_the_object_too(asked: Asked) -> None:
    world = asked.world
    world.stack.api.create(profile("asia"))
    uid = await world.create("web")
    world.decide("web", uid, ["eu", "asia"])
    await eventually(lambda: asked.names("web"), lambda said: "no cluster asia" in said)
    await eventually(
        lambda: [
            one["note"]
            for one in world.stack.api.get("events.events.k8s.io", namespace=world.namespace)[
                "items"
            ]
            if one["reason"] == "RemediationUnanswered"
        ],
        ["set: Argo CD knows no cluster asia"],
    )
    world.stack.api.create(cluster_secret("asia"))
    await eventually(lambda: asked.names("web"), ["asia", "eu"])
    world.stack.api.delete("secrets", "cluster-asia", ARGO)
    await eventually(lambda: asked.names("web"), lambda said: "no cluster asia" in said)


@pytest.mark.slow
async def test_an_object_that_is_not_there_and_a_wrong_token_are_refused(asked: Asked) -> None:
    where = f"{asked.world.namespace}/gone"
    assert await asyncio.to_thread(asked.ask, "gone") == (
        404,
        f"there is no replicasets.apps {where}",
    )
    status, _ = await asyncio.to_thread(asked.ask, "gone", "wrong")
    assert status == 401


@pytest.mark.slow
async def test_a_kind_that_is_not_served_is_said_and_other_objects_are_answered(
    asked: Asked,
) -> None:
    world = asked.world
    uid = await world.create("web")
    world.decide("web", uid, ["eu"])
    world.decide("web", uid, ["eu", "us"])
    await eventually(lambda: asked.names("web"), ["eu", "us"])
    await asked.remediator.stop()
    kinds = [("argoproj.io", "v1alpha1", "applicationsets"), ("apps", "v1", "replicasets")]
    resources = [{"group": g, "version": v, "resource": r} for g, v, r in kinds]
    await asked.remediator.start(
        replicate={"resources": resources},
        placement={"resources": ["applicationsets", "replicasets"]},
    )
    await eventually(lambda: asked.names("web"), ["eu", "us"])
    resource = "applicationsets.argoproj.io"
    status, why = await asyncio.to_thread(asked.ask, "web", resource=resource)
    assert (status, why) == (503, f"the API server does not serve {resource} now")
    await asked.remediator.stop()
    await asked.remediator.start()


SECRETS = f"/api/v1/namespaces/{ARGO}/secrets"
SETS = f"/apis/argoproj.io/v1alpha1/namespaces/{ARGO}/applicationsets"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("account", "method", "path"),
    [
        ("remediator", "GET", f"{SECRETS}/cluster-eu"),
        ("remediator", "GET", SECRETS.replace(ARGO, "default")),
        ("remediator", "PATCH", f"{SECRETS}/cluster-eu"),
        ("remediator", "DELETE", f"{SETS}/web"),
        ("remediator", "GET", SETS.replace("applicationsets", "applications")),
        ("replicator", "GET", SECRETS),
        ("replicator", "PATCH", f"{SETS}/web"),
        ("provision", "GET", SECRETS),
        ("provision", "GET", f"{SECRETS}/cluster-eu"),
        ("provision", "PUT", f"{SECRETS}/cluster-eu"),
        ("provision", "DELETE", f"{SECRETS}/kube-sync-generator"),
    ],
)
async def test_what_is_not_granted_in_argo_cds_namespace_is_refused_to_the_accounts_token(
    cluster: RunningStack, account: str, method: str, path: str
) -> None:
    """What is granted is used by the other tests, and by test_rbac_usage."""
    kubeconfig = Kubernetes(kubeconfig=str(cluster.kubeconfigs[account]))
    content = "application/merge-patch+json" if method == "PATCH" else "application/json"
    body = None if method == "GET" else b"{}"
    async with kube_client(kubeconfig) as kube:
        with pytest.raises(Refused):
            await kube.request(method, path, body=body, content_type=content)


async def test_the_job_makes_the_token_that_argo_cd_sends_and_the_remediator_accepts(
    cluster: RunningStack, asked: Asked
) -> None:
    assert await provisioned(cluster) == []
    for token, status in ((asked.remediator.sent, 404), ("wrong", 401)):
        assert (await asyncio.to_thread(asked.ask, "gone", token))[0] == status


async def provisioned(cluster: RunningStack) -> list[str]:
    """Run the job; return what it made."""
    document = {
        "kubernetes": {"kubeconfig": str(cluster.kubeconfigs["provision"])},
        "remediate": {"argocd": {"listen": "127.0.0.1:9409"}},
    }
    return await run_provision(msgspec.convert(document, Settings), tokens_only=True)


def token_in(cluster: RunningStack, namespace: str) -> str:
    found = cluster.api.get("secrets", "kube-sync-generator", namespace)
    return base64.b64decode(found["data"]["token"]).decode()
