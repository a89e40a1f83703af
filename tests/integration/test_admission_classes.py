"""The webhook answers from classes, on real servers: what it may know, and what ends it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kube_sync.certificates import issue, make_authority
from tests.eventually import eventually
from tests.fakes import reviews
from tools.demo.components import start_service
from tools.demo.fleet import REGION, cluster
from tools.servers.files import LOOPBACK, write_file, write_pair
from tools.servers.http import Answer, get, request
from tools.servers.running import Launcher, RunningServer, free_port
from tools.servers.secured_opa import RunningOpa, start_opa
from tools.servers.stack import RunningStack

PLACE = "example.com/place"
POLICY = f"""package io.k8s.federation.admission

annotations["{PLACE}"] := concat(",", sort([name |
	some name, cluster in data.kubernetes.clusters["NAMESPACE"]
	cluster.metadata.labels["{REGION}"] == input.metadata.labels.region
]))

errors contains "no region" if not input.metadata.labels.region
"""


class World:
    """A replicator and a webhook beside an OPA, and the reviews that are sent to the webhook."""

    def __init__(
        self,
        stack: RunningStack,
        opa: RunningOpa,
        namespace: str,
        folder: Path,
        mode: str,
        workers: int = 1,
        *,
        basis: RunningOpa | None = None,
    ) -> None:
        """`basis` is the OPA whose replicator the webhook follows, if it is another one."""
        self.stack, self.opa, self.namespace = stack, opa, namespace
        authority = make_authority("webhook")
        write_pair(folder, "tls", issue(authority, "kube-sync", LOOPBACK))
        self.folder, self.authority = folder, authority
        self.ca_file = write_file(folder / "ca.crt", authority.cert_pem)
        port = free_port()
        self.port = port
        self.url = f"https://127.0.0.1:{port}/admit/placement?timeout=3s"
        common: dict[str, object] = {
            "kubernetes": {"kubeconfig": str(stack.kubeconfigs["admin"])},
            "policies": {"namespaces": [namespace]},
            "coordination": {"namespace": namespace},
            "replicate": {"namespaces": [namespace]},
            "opa": opa.settings(),
        }
        admission = {
            "listen": f"127.0.0.1:{port}",
            "cert_file": str(folder / "tls.crt"),
            "key_file": str(folder / "tls.key"),
            "classes": mode,
            "workers": workers,
        }
        self.basis = free_port()  # of the replicator that the webhook follows
        self.replicators = [
            start_service(
                "replicate",
                folder / f"replicate-{number}",
                {
                    **common,
                    "opa": one.settings(),
                    "decisions": one.replicator.server()
                    | ({"basis": self._port_of(one)} if one is (basis or opa) else {}),
                },
            )
            for number, one in enumerate(filter(None, (opa, basis)))
        ]
        self.follows = (basis or opa).replicator
        client = self.follows.client() | {"url": f"https://127.0.0.1:{self.basis}/v1/basis"}
        self.webhook = start_service(
            "admit",
            folder / "admit",
            {
                **common,
                "opa": {**opa.settings(), "token_file": str(opa.token_files["admission"])},
                "decisions": client,
                "admission": admission,
            },
        )

    def _port_of(self, opa: RunningOpa) -> dict[str, str]:
        pair = {"cert_file": opa.replicator.cert_file, "key_file": opa.replicator.key_file}
        files = {name: str(file) for name, file in pair.items()}
        return {"listen": f"127.0.0.1:{self.basis}", **files}

    def stop(self) -> None:
        for service in (self.webhook, *self.replicators):
            service.stop()

    def noted(self) -> str:
        """Return what the webhook's readiness page says."""
        return get(f"{self.webhook.url}/readyz").body.decode()

    def apply(self, manifest: dict[str, Any]) -> None:
        manifest["metadata"]["namespace"] = self.namespace
        self.stack.api.apply(manifest, force=True)

    def fill(self) -> None:
        """Let there be clusters and the policy."""
        for name, region in (("berlin", "eu"), ("paris", "eu"), ("ohio", "us")):
            self.apply(cluster(name, region, "2"))
        policy = POLICY.replace("NAMESPACE", self.namespace)
        self.apply(
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": "placement"},
                "data": {"placement.rego": policy},
            }
        )

    def review(self, name: str = "web", **labels: str) -> Any:
        """Return the response about an object with these labels."""
        metadata = {"name": name, "namespace": self.namespace, "labels": labels}
        found = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}
        where = {"name": name, "namespace": self.namespace, "uid": name}
        body = reviews.body(found, **where).decode()
        return json.loads(request("POST", self.url, ca_file=self.ca_file, body=body).body)[
            "response"
        ]

    def place(self, **labels: str) -> str | None:
        """Return where an object is placed, None if it is refused."""
        said = self.review(**labels)
        if not said["allowed"]:
            return None
        (operation,) = reviews.operations(said)
        found: str = operation["value"][PLACE]
        return found

    def reused(self) -> int:
        return self.counted("reused")

    def counted(self, outcome: str) -> int:
        name = f'kube_sync_admission_class_answers_total{{outcome="{outcome}"}}'
        lines = get(f"{self.webhook.url}/metrics").body.decode().splitlines()
        return sum(int(float(one.split()[-1])) for one in lines if one.startswith(name))

    async def until_reused(self, **labels: str) -> None:
        """Review objects of a class until one is answered without OPA."""

        def reused() -> bool:
            before = self.reused()
            self.place(**labels)
            return self.reused() > before

        await eventually(reused)


@pytest.fixture
def mode() -> str:
    return "on"


@pytest.fixture
def world(
    stack: RunningStack, opa: RunningOpa, namespace: str, tmp_path: Path, mode: str
) -> Iterator[World]:
    made = World(stack, opa, namespace, tmp_path, mode)
    made.fill()
    yield made
    made.stop()


EU = "berlin,paris"


async def _until_decided(world: World) -> None:
    await eventually(lambda: world.place(region="eu"), EU)


@pytest.mark.timeout(180)
async def test_known_classes_are_answered_without_opa_and_no_longer_than_they_are_right(
    world: World,
) -> None:
    await _until_decided(world)
    await world.until_reused(region="eu")
    assert world.place(region="eu", app="another") == EU
    await world.until_reused(region="us")
    assert world.place(region="us") == "ohio"
    assert "classes: ok" in world.noted()
    # A denial of the class, too.
    await world.until_reused(team="shop")
    said = world.review(team="another")
    assert (said["allowed"], said["status"]["message"]) == (False, "no region")
    # A change of what was read.
    world.stack.api.delete("clusterprofiles", "paris", world.namespace)
    await eventually(lambda: world.place(region="eu"), "berlin")
    await world.until_reused(region="eu")
    assert world.place(region="eu") == "berlin"
    # Another policy.
    policy = POLICY.replace("NAMESPACE", world.namespace).replace("sort(", "sort(array.concat(")
    policy = policy.replace("\n]))", '\n], ["more"])))')
    world.apply(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "placement"},
            "data": {"placement.rego": policy},
        }
    )
    await eventually(lambda: world.place(region="eu"), "berlin,more")


@pytest.mark.slow
@pytest.mark.timeout(180)
async def test_port_for_webhooks_serves_the_basis_and_nothing_else(world: World) -> None:
    token = world.follows.token_file.read_text(encoding="utf-8").strip()

    def asked(path: str, token: str | None = token) -> Answer:
        url = f"https://127.0.0.1:{world.basis}{path}"
        return request("GET", url, ca_file=world.follows.ca_file, token=token)

    await eventually(lambda: "paths" in json.loads(asked("/v1/basis").body))
    for path in ("/v1/decisions", "/v1/bundles/policies", "/ui", "/v1/board/fleet"):
        assert asked(path).status == 404
    assert asked("/v1/basis", None).status == 401
    assert asked("/v1/basis", "another").status == 401


@pytest.mark.timeout(180)
async def test_known_classes_are_decided_on_while_opa_is_away_and_nothing_changed(
    world: World,
) -> None:
    await _until_decided(world)
    await world.until_reused(region="eu")
    opa: RunningServer = world.opa.server
    await asyncio.to_thread(opa.kill)
    assert world.place(region="eu") == EU
    assert world.place(region="us") is None  # nobody was asked about it before
    assert world.place(region="eu") == EU
    # Otherwise no review would come from the API server.
    await eventually(lambda: "known classes are decided on" in world.noted())
    assert get(f"{world.webhook.url}/readyz").status == 200
    # What the policy reads changes: nobody can say what OPA would answer.
    world.stack.api.delete("clusterprofiles", "paris", world.namespace)
    await eventually(lambda: world.place(region="eu"), None)
    await eventually(lambda: get(f"{world.webhook.url}/readyz").status, 503)
    await asyncio.to_thread(opa.start)
    await eventually(lambda: world.place(region="eu"), "berlin")
    await world.until_reused(region="eu")


@pytest.mark.slow
@pytest.mark.timeout(180)
async def test_answers_of_another_opa_than_the_replicators_are_not_reused_and_it_is_said(
    stack: RunningStack, opa: RunningOpa, launcher: Launcher, namespace: str, tmp_path: Path
) -> None:
    """Both are loaded alike, so that the answers themselves do not tell."""
    other = start_opa(launcher, tmp_path / "other-opa")
    world = World(stack, opa, namespace, tmp_path, "on", basis=other)
    try:
        world.fill()
        await _until_decided(world)

        def kept_elsewhere() -> bool:
            assert world.place(region="eu") == EU
            return world.counted("elsewhere") > 20

        await eventually(kept_elsewhere)
        assert world.reused() == 0
        assert "the OPA at opa.url is not the one" in world.noted()
    finally:
        world.stop()
        other.server.stop()


@pytest.mark.slow
@pytest.mark.timeout(180)
async def test_opa_is_asked_while_the_replicator_is_away(world: World) -> None:
    await _until_decided(world)
    await world.until_reused(region="eu")
    await asyncio.to_thread(world.replicators[0].kill)

    def asked() -> bool:
        before = world.counted("unconfirmed")
        assert world.place(region="eu") == EU
        return world.counted("unconfirmed") > before

    await eventually(asked)


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize("mode", ["verify"])
async def test_verification_asks_always_and_finds_no_difference(world: World) -> None:
    await _until_decided(world)

    def compared() -> int:
        world.place(region="eu")
        return world.counted("agreed")

    await eventually(compared, lambda count: count > 5)
    assert (world.counted("differed"), world.reused()) == (0, 0)
