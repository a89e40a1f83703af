"""The kinds of a topology, followed on a real API server that learns and forgets some of them."""

from __future__ import annotations

import asyncio
import base64
import json
import re
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kube_sync.config import Kubernetes
from kube_sync.kube.client import kube_client
from kube_sync.kube.discovery import preference
from kube_sync.observability.readiness import Readiness
from kube_sync.topology import GroupKind, PolicyKind
from kube_sync.topology.controller.followed_kinds import FollowedKinds
from kube_sync.topology.controller.kind_selection import Chooser
from kube_sync.topology.controller.world import World
from kube_sync.topology.gateway import GATEWAY, GATEWAY_CLASS, gateway_api
from kube_sync.topology.nodes import Locator
from tests.eventually import eventually
from tests.fakes.definitions import POLICY, definition
from tests.fakes.topologies import GROUP, Object
from tools.servers.apiserver import write_kubeconfig
from tools.servers.errors import ToolError
from tools.servers.stack import RunningStack

OWN = "followed.example.com"
SHADE, TINT = GroupKind(OWN, "Shade"), GroupKind(OWN, "Tint")
TLS = GroupKind(GROUP, "TLSRoute")
_GATEWAY_KINDS = (GATEWAY_CLASS.kind, GATEWAY.kind, TLS.kind)


class Cluster:
    """The stack of all, with what a test puts there."""

    def __init__(self, stack: RunningStack, namespace: str, folder: Path) -> None:
        self.stack = stack
        self.namespace = namespace
        self.folder = folder
        self.world = World()
        self.notes = Readiness()

    async def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        return await asyncio.to_thread(self.stack.kubectl, *arguments, stdin=stdin)

    def _applied(self, manifest: Object) -> bool:
        try:
            self.stack.api.apply(manifest, force=True, strict=False)
        except ToolError as error:
            if re.search(r"knows no resource|: (404|429) ", str(error)):
                return False
            raise
        return True

    async def put(self, *objects: Object) -> None:
        """Apply objects; one of a kind that is a moment old is tried until it is served."""
        for manifest in objects:
            await eventually(partial(self._applied, manifest), expected=True)

    async def install(self, *bodies: Object) -> None:
        await self.put(*bodies)
        for body in bodies:
            await asyncio.to_thread(self.stack.api.await_kind, body)

    async def uninstall(self, body: Object) -> None:
        await self.kubectl("delete", "crd", body["metadata"]["name"], "--timeout=30s")

    @asynccontextmanager
    async def followed(
        self, *named: PolicyKind, kubeconfig: Path | None = None, gone_after: float = 30.0
    ) -> AsyncGenerator[FollowedKinds]:
        settings = Kubernetes(kubeconfig=str(kubeconfig or self.stack.kubeconfigs["admin"]))
        async with kube_client(settings) as client:
            chooser = Chooser(gateway_api().kinds, named)
            kinds = FollowedKinds(
                client,
                self.world,
                self.notes,
                lambda: None,
                chooser,
                patience=2.0,
                gone_after=gone_after,
            )
            task = asyncio.create_task(kinds.run())
            try:
                await eventually(lambda: task.done() or not (kinds.waiting or self.world.waiting))
                yield kinds
            finally:
                task.cancel()
                await asyncio.wait([task])

    def account(self, *rules: Object) -> Path:
        """Return the kubeconfig of a new account that may read what these rules say."""
        name = self.namespace
        place = f"--namespace={name}"
        account = {"apiVersion": "v1", "kind": "ServiceAccount"}
        self.stack.api.create(account | {"metadata": {"name": "reader", "namespace": name}})
        role = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": name},
            "rules": [{**rule, "verbs": ["list", "watch"]} for rule in rules],
        }
        self.stack.api.create(role)
        subject = f"--serviceaccount={name}:reader"
        self.stack.kubectl("create", "clusterrolebinding", name, f"--clusterrole={name}", subject)
        token = self.stack.kubectl("create", "token", "reader", place).strip()
        admin = json.loads(self.stack.kubeconfigs["admin"].read_text())["clusters"][0]["cluster"]
        authority = self.folder / "ca.crt"
        authority.write_bytes(base64.b64decode(admin["certificate-authority-data"]))
        return write_kubeconfig(self.folder, "reader", admin["server"], authority, token)

    def note(self, kind: GroupKind) -> str:
        return self.notes.conditions.get(f"topology of {kind}", "")

    def policy(self, kind: GroupKind = SHADE, version: str = "v1", name: str = "p") -> Object:
        return {
            "apiVersion": f"{kind.group}/{version}",
            "kind": kind.kind,
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": {"targetRef": {"group": GROUP, "kind": "Gateway", "name": "gw"}},
        }

    def holds(self, locator: str) -> bool:
        return self.world.get(Locator(locator)) is not None


def shade(*versions: str, namespaced: bool = True, kind: str = "Shade", **more: Any) -> Object:
    return definition(
        kind, OWN, *(versions or ("v1",)), labels=POLICY, namespaced=namespaced, **more
    )


READ_DEFINITIONS = {
    "apiGroups": ["apiextensions.k8s.io"],
    "resources": ["customresourcedefinitions"],
}
READ_THE_REST = {"apiGroups": [GROUP, ""], "resources": ["*"]}


@pytest.fixture
def cluster(stack: RunningStack, namespace: str, tmp_path: Path) -> Iterator[Cluster]:
    yield Cluster(stack, namespace, tmp_path)
    for kind in ("Shade", "Tint"):
        name = shade(kind=kind)["metadata"]["name"]
        stack.kubectl("delete", "crd", name, "--ignore-not-found", "--timeout=60s")
    for kind in ("clusterroles", "clusterrolebindings"):
        stack.api.delete(kind, namespace)


async def test_a_kind_that_is_installed_is_followed_at_once_and_goes_again(
    cluster: Cluster,
) -> None:
    async with cluster.followed(gone_after=1.0) as kinds:
        assert SHADE not in kinds.choices
        await cluster.install(shade())
        await cluster.put(cluster.policy())
        # By the watch: nobody looks again for five minutes.
        await eventually(lambda: cluster.holds(f"shade.{OWN}:{cluster.namespace}/p"))
        assert SHADE in [kind.id for kind in kinds.policies]
        assert cluster.note(SHADE) == "ok"
        await cluster.uninstall(shade())
        await eventually(lambda: SHADE not in kinds.choices)
        assert not cluster.holds(f"shade.{OWN}:{cluster.namespace}/p")
        assert SHADE not in [kind.id for kind in kinds.policies]
        assert cluster.note(SHADE) == ""


@pytest.mark.slow
async def test_a_definition_that_comes_back_as_another_is_followed_as_that(
    cluster: Cluster,
) -> None:
    await cluster.install(shade())
    await cluster.put(cluster.policy())
    async with cluster.followed(gone_after=20.0) as kinds:
        await eventually(lambda: cluster.holds(f"shade.{OWN}:{cluster.namespace}/p"))
        await cluster.uninstall(shade())
        await cluster.install(shade("v2", namespaced=False))
        new = cluster.policy(version="v2", name="q")
        del new["metadata"]["namespace"]
        await cluster.put(new)
        await eventually(lambda: cluster.holds(f"shade.{OWN}:q"))
        assert not cluster.holds(f"shade.{OWN}:{cluster.namespace}/p")
        choice = kinds.choices[SHADE]
        assert (choice.gvr.version, choice.kind.namespaced) == ("v2", False)
        assert cluster.note(SHADE) == "ok"


async def test_a_version_that_is_served_no_more_gives_way_without_a_loss(
    cluster: Cluster,
) -> None:
    await cluster.install(shade("v1beta1", "v1"))
    await cluster.put(cluster.policy())
    where = Locator(f"shade.{OWN}:{cluster.namespace}/p")
    async with cluster.followed() as kinds:
        await eventually(lambda: cluster.holds(where))
        assert kinds.choices[SHADE].gvr.version == "v1"
        cluster.world.take()
        await cluster.put(shade("v1beta1", "v1", unserved=["v1"]))
        await eventually(lambda: (cluster.world.get(where) or {})["apiVersion"] == f"{OWN}/v1beta1")
        assert [str(event.type) for event in cluster.world.take()] == ["update"]


@pytest.mark.slow
async def test_an_api_server_that_is_started_anew_takes_nothing_away(cluster: Cluster) -> None:
    await cluster.install(shade())
    await cluster.put(cluster.policy())
    async with cluster.followed():
        await eventually(lambda: cluster.holds(f"shade.{OWN}:{cluster.namespace}/p"))
        cluster.world.take()
        await asyncio.to_thread(cluster.stack.apiserver.kill)
        await asyncio.to_thread(cluster.stack.apiserver.start)
        await cluster.put(cluster.policy(name="q"))
        await eventually(lambda: cluster.holds(f"shade.{OWN}:{cluster.namespace}/q"))
        events = [event for event in cluster.world.take() if event.kind == SHADE]
        assert [(str(event.type), event.name) for event in events] == [("create", "q")]
        assert cluster.holds(f"shade.{OWN}:{cluster.namespace}/p")


async def test_one_kind_that_may_not_be_listed_hinders_no_other(cluster: Cluster) -> None:
    await cluster.install(shade(), shade(kind="Tint"))
    await cluster.put(cluster.policy(SHADE), cluster.policy(TINT))
    tints = {"apiGroups": [OWN], "resources": ["tints"]}
    reader = cluster.account(READ_DEFINITIONS, READ_THE_REST, tints)
    async with cluster.followed(kubeconfig=reader) as kinds:
        await eventually(lambda: cluster.holds(f"tint.{OWN}:{cluster.namespace}/p"))
        assert cluster.note(TINT) == "ok"
        assert "shades.followed.example.com is forbidden" in cluster.note(SHADE)
        assert cluster.note(SHADE).endswith("counts as a kind without objects")
        # Other tests may have brought kinds that this account may not list either.
        assert [kind for kind in kinds.unseen if kind.group == OWN] == [SHADE]
        assert not cluster.holds(f"shade.{OWN}:{cluster.namespace}/p")


@pytest.mark.slow
async def test_without_a_right_to_definitions_discovery_shows_what_is_named(
    cluster: Cluster,
) -> None:
    await cluster.install(shade(), shade(kind="Tint"))
    await cluster.put(cluster.policy(SHADE), cluster.policy(TINT))
    await asyncio.to_thread(cluster.stack.install_gateway_api)
    reader = cluster.account(READ_THE_REST, {"apiGroups": [OWN], "resources": ["*"]})
    async with cluster.followed(PolicyKind(SHADE), kubeconfig=reader) as kinds:
        await eventually(lambda: cluster.holds(f"shade.{OWN}:{cluster.namespace}/p"))
        assert [kind.id for kind in kinds.policies] == [SHADE]
        assert cluster.note(GATEWAY) == "ok"
        assert TINT not in kinds.choices
        note = cluster.notes.conditions["topology by definitions"]
        assert "customresourcedefinitions.apiextensions.k8s.io is forbidden" in note
        assert note.endswith(f"those that are named: {SHADE}")


@pytest.mark.slow
async def test_the_gateway_api_is_followed_in_the_versions_to_prefer(cluster: Cluster) -> None:
    await asyncio.to_thread(cluster.stack.install_gateway_api)
    listed = json.loads(await cluster.kubectl("get", "crd", "--output=json"))["items"]
    versions = {
        crd["spec"]["names"]["kind"]: [v["name"] for v in crd["spec"]["versions"] if v["served"]]
        for crd in listed
        if crd["spec"]["group"] == GROUP
    }
    assert set(versions["Gateway"]) >= {"v1", "v1beta1"}
    async with cluster.followed() as kinds:
        chosen = {id_.kind: c.gvr.version for id_, c in kinds.choices.items() if id_.group == GROUP}
        assert chosen["Gateway"] == "v1"
        for kind in _GATEWAY_KINDS:
            assert chosen[kind] == min(versions[kind], key=preference)
        # What the Gateway API labels as policies is: by label, and by no list of ours.
        assert "BackendTLSPolicy" in {kind.id.kind for kind in kinds.policies}
        direct = next(kind for kind in kinds.policies if kind.id.kind == "BackendTLSPolicy")
        assert not direct.merges
