"""Policies and data from labelled ConfigMaps, on the real servers, with exactly their roles."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kube_sync.config import (
    Kubernetes,
    Labelled,
    Opa,
    Placement,
    Policies,
    Replicate,
    Resource,
    Settings,
)
from kube_sync.decisions.hub import DecisionHub
from kube_sync.decisions.stream import stream_app
from kube_sync.kube.client import kube_client
from kube_sync.observability.readiness import Readiness
from kube_sync.opa.client import opa_client
from kube_sync.opa.scratch import ScratchOpa
from kube_sync.policies.bundle_server import BundleServer
from kube_sync.replicator.replicator import Replicator
from kube_sync.runtime.httpserver import serving
from kube_sync.runtime.tls import server_context
from kube_sync.runtime.tokenfile import TokenFile
from tests.eventually import eventually
from tests.integration.test_pair import ROOT, STATUS
from tools.servers.binaries import ensure_binary
from tools.servers.http import request
from tools.servers.manifests import manifests_of
from tools.servers.secured_opa import RunningOpa
from tools.servers.stack import RunningStack

MANIFESTS = ROOT / "manifests/labelled"
POLICY = {"openpolicyagent.org/policy": "rego"}
DATA = {"openpolicyagent.org/data": "opa"}


@pytest.fixture(autouse=True)
def rights(stack: RunningStack) -> Iterator[None]:
    """The roles that all namespaces need, as long as the test lasts."""
    stack.apply(MANIFESTS)
    yield
    for manifest in manifests_of(MANIFESTS):
        stack.api.remove(manifest)


class World:
    def __init__(self, stack: RunningStack, opa: RunningOpa, namespace: str) -> None:
        self.stack = stack
        self.opa = opa
        self.namespace = namespace

    def put(self, name: str, labels: dict[str, str], namespace: str = "", **data: str) -> None:
        where = namespace or self.namespace
        metadata = {"name": name, "namespace": where, "labels": labels}
        found = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
        self.stack.api.apply(found, force=True)

    def delete(self, name: str) -> None:
        self.stack.api.delete("configmaps", name, self.namespace)

    def status(self, name: str) -> Any:
        metadata = self.stack.api.get("configmaps", name, self.namespace)["metadata"]
        return json.loads((metadata.get("annotations") or {}).get(STATUS, "null"))

    def ask(self, method: str, path: str, body: str | None = None) -> Any:
        token = self.opa.token_files["replicator"].read_text(encoding="utf-8")
        url = self.opa.url + path
        answer = request(method, url, ca_file=self.opa.ca_file, token=token, body=body)
        return json.loads(answer.body or b"{}").get("result")

    def data(self, path: str = "") -> Any:
        return self.ask("GET", f"/v1/data/{self.namespace}{path}")

    def modules(self) -> set[str]:
        found = self.ask("GET", "/v1/policies")
        ids = {_own_id(policy["id"]) for policy in found}
        return {i for i in ids if i.startswith(f"{self.namespace}/")}

    @asynccontextmanager
    async def replicating(self, *namespaces: str) -> AsyncGenerator[Readiness]:
        settings = Settings(
            kubernetes=Kubernetes(kubeconfig=str(self.stack.kubeconfigs["replicator"])),
            opa=Opa(self.opa.url, str(self.opa.token_files["replicator"]), str(self.opa.ca_file)),
            replicate=Replicate(resources=(Resource("apps", "v1", "replicasets"),)),
            policies=Policies(labelled=Labelled(namespaces=namespaces)),
            placement=Placement(resources=()),
        )
        readiness = Readiness()
        readiness.waiting("policies", "not begun")
        hub, shelf, where = DecisionHub("test"), BundleServer(), self.opa.replicator
        app = stream_app(hub, TokenFile(str(where.token_file)), shelf.routes())
        tls = server_context(str(where.cert_file), str(where.key_file))
        async with (
            kube_client(settings.kubernetes) as kube,
            opa_client(settings.opa) as client,
            serving(app, ("127.0.0.1", where.port), tls, 0.1),
        ):
            compiler = ScratchOpa(str(ensure_binary("opa")))
            replicator = Replicator(settings, kube, client, hub, readiness, compiler, shelf=shelf)
            task = asyncio.create_task(replicator.run())
            try:
                await eventually(lambda: readiness.reasons, {})
                yield readiness
            finally:
                if task.done():
                    task.result()
                task.cancel()
                await asyncio.wait([task])


def _own_id(loaded: str) -> str:
    """Return a module's id without what its way into a bundle adds."""
    return loaded.removeprefix("kube-sync/").removesuffix(".rego")


async def test_labelled_configmaps_become_policies_and_data(
    stack: RunningStack, opa: RunningOpa, namespace: str
) -> None:
    world = World(stack, opa, namespace)
    world.put("kube-root-ca.crt", {}, **{"ca.crt": "-----BEGIN CERTIFICATE-----"})
    source = f'package labelled\nx := data["{namespace}"].limits.cpu.max'
    world.put("rules", POLICY, main=source)
    world.put("limits", DATA, cpu='{"max": 4}', **{"odd.name-1_x": '["~1/%2F"]'})
    async with world.replicating("*"):
        await eventually(lambda: world.status("rules"), {"status": "ok"})
        await eventually(lambda: world.status("limits"), {"status": "ok"})
        assert world.modules() == {f"{namespace}/rules/main"}
        assert world.data() == {"limits": {"cpu": {"max": 4}, "odd.name-1_x": ["~1/%2F"]}}
        assert world.ask("GET", "/v1/data/labelled/x") == 4
        assert world.status("kube-root-ca.crt") is None
        world.put("limits", DATA, cpu='{"max": 5')
        await eventually(lambda: (world.status("limits") or {}).get("status"), "error")
        await eventually(lambda: world.data("/limits"), {"cpu": {"max": 4}})
        world.delete("limits")
        await eventually(world.data, {})
        world.delete("rules")
        await eventually(world.modules, set())


@pytest.mark.slow
async def test_data_of_others_stays_and_what_was_deleted_meanwhile_goes(
    stack: RunningStack, opa: RunningOpa, namespace: str
) -> None:
    world = World(stack, opa, namespace)
    theirs = [
        {"op": "add", "path": f"/{namespace}", "value": {"theirs": 1}},
        {"op": "add", "path": "/unrelated", "value": 2},
    ]
    world.ask("PATCH", "/v1/data", json.dumps(theirs))
    world.put("limits", DATA, a="1", b="2")
    world.put("kept", DATA, a="1")
    async with world.replicating(namespace):
        await eventually(lambda: world.data("/limits"), {"a": 1, "b": 2})
    world.delete("limits")
    async with world.replicating(namespace):
        assert world.data() == {"theirs": 1, "kept": {"a": 1}}
        assert world.ask("GET", "/v1/data/unrelated") == 2
        opa.server.kill()
        opa.server.start()
        await eventually(world.data, {"kept": {"a": 1}})


async def test_data_where_a_rule_lives_is_refused_and_delays_no_other(
    stack: RunningStack, opa: RunningOpa
) -> None:
    namespace = f"ruled{secrets.token_hex(4)}"  # a package cannot begin with a dash in it
    stack.api.create_namespace(namespace)
    world = World(stack, opa, namespace)
    world.put("rules", POLICY, main=f"package {namespace}.taken\nx := 1")
    async with world.replicating(namespace) as readiness:
        await eventually(lambda: world.status("rules"), {"status": "ok"})
        world.put("taken", DATA, x="2")
        world.put("limits", DATA, a="1")
        await eventually(lambda: world.data("/limits"), {"a": 1})
        owned = "owned by bundle"
        await eventually(lambda: owned in json.dumps(world.status("taken")), expected=True)
        assert world.data("/taken/x") == 1
        assert readiness.reasons == {}
        world.delete("rules")
        await eventually(lambda: world.data("/taken/x"), None)
        world.put("taken", DATA, y="2")
        await eventually(lambda: world.status("taken"), {"status": "ok"})
        await eventually(lambda: world.data("/taken"), {"y": 2})


@pytest.mark.slow
async def test_policy_keeps_its_place_when_opa_is_loaded_anew_although_data_wants_it(
    stack: RunningStack, opa: RunningOpa
) -> None:
    """Data is loaded first: whoever may write it would put the policy out of force."""
    namespace = f"ruled{secrets.token_hex(4)}"
    stack.api.create_namespace(namespace)
    world = World(stack, opa, namespace)
    world.put("rules", POLICY, main=f"package {namespace}.taken\nx := 1")
    owned = "owned by bundle"
    async with world.replicating(namespace):
        await eventually(lambda: world.status("rules"), {"status": "ok"})
        world.put("taken", DATA, x="2")
        world.put("limits", DATA, a="1")
        await eventually(lambda: owned in json.dumps(world.status("taken")), expected=True)
    opa.server.kill()
    opa.server.start()
    async with world.replicating(namespace):
        await eventually(lambda: world.data("/taken/x"), 1)
        # Tried once policies are in force, and refused by OPA again.
        world.put("taken", DATA, x="3")
        await eventually(lambda: owned in json.dumps(world.status("taken")), expected=True)
        assert (world.data("/taken/x"), world.data("/limits")) == (1, {"a": 1})
        assert world.status("rules") == {"status": "ok"}
    stack.api.delete_all("configmaps", namespace)


@pytest.mark.slow
async def test_policy_where_data_lies_is_refused_and_delays_no_other(
    stack: RunningStack, opa: RunningOpa
) -> None:
    """Its package would be a root of the bundle, which OPA would refuse whole."""
    namespace = f"ruled{secrets.token_hex(4)}"
    stack.api.create_namespace(namespace)
    world = World(stack, opa, namespace)
    world.put("limits", DATA, a="1")
    async with world.replicating(namespace):
        world.put("rules", POLICY, main=f"package {namespace}.limits.more\nx := 1")
        world.put("others", POLICY, main=f"package {namespace}.others\nx := 1")
        reason = "where replicated data lies"
        await eventually(lambda: reason in json.dumps(world.status("rules")), expected=True)
        await eventually(lambda: world.data("/others/x"), 1)
        world.delete("limits")
        await eventually(lambda: world.data("/limits/more/x"), 1)
    stack.api.delete_all("configmaps", namespace)
