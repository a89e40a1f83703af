"""Changes of the configuration file and of a CRD, on a real API server and a real OPA."""

from __future__ import annotations

import json
import secrets
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.eventually import eventually
from tests.integration.test_selection import data
from tools.servers.errors import ToolError
from tools.servers.http import get
from tools.servers.processes import ProcessLauncher
from tools.servers.running import RunningServer, ServerSpec, free_port
from tools.servers.secured_opa import RunningOpa
from tools.servers.stack import RunningStack

pytestmark = pytest.mark.slow

GROUP = "reconfiguration.example.org"
SCOPED = {"group": GROUP, "version": "v1", "resource": "things"}
MAPS = {"group": "", "version": "v1", "resource": "configmaps"}
SECRETS = {"group": "", "version": "v1", "resource": "secrets", "fields": ["metadata.labels"]}


class Configured:
    """A replicator with a configuration file."""

    def __init__(self, stack: RunningStack, opa: RunningOpa, folder: Path) -> None:
        self.stack = stack
        self.opa = opa
        self.port = free_port()
        self.file = folder / "config.yaml"

    def write(self, *resources: dict[str, Any], **more: Any) -> None:
        configuration = {
            "kubernetes": {"kubeconfig": str(self.stack.kubeconfigs["admin"])},
            "opa": self.opa.settings(),
            "replicate": {"resources": list(resources)},
            "policies": {"namespaces": []},
            "placement": {"resources": []},
            "decisions": self.opa.replicator.server(),
            "observe": {"listen": f"127.0.0.1:{self.port}"},
            **more,
        }
        self.file.write_text(yaml.safe_dump(configuration), encoding="utf-8")

    def page(self, name: str) -> str:
        return get(f"http://127.0.0.1:{self.port}/{name}").body.decode()

    def metric(self, name: str, **labels: str) -> float | None:
        said = ",".join(f'{key}="{value}"' for key, value in sorted(labels.items()))
        start = f"{name}{{{said}}} " if said else f"{name} "
        found = [line for line in self.page("metrics").splitlines() if line.startswith(start)]
        return float(found[0].removeprefix(start)) if found else None

    def lists(self, resource: str) -> float | None:
        return self.metric("kube_sync_reflector_lists_total", resource=resource, reason="start")


@pytest.fixture
def configured(stack: RunningStack, opa: RunningOpa, tmp_path: Path) -> Configured:
    found = Configured(stack, opa, tmp_path)
    found.write(MAPS)
    return found


@pytest.fixture
def running(configured: Configured, tmp_path: Path) -> Iterator[RunningServer]:
    """The real program, ready."""
    running = ProcessLauncher().launch(
        ServerSpec(
            name="replicate",
            program=str(Path(sys.executable).with_name("kube-sync")),
            arguments=("replicate", "--config", str(configured.file)),
            folder=tmp_path,
            url=f"http://127.0.0.1:{configured.port}",
            ready_paths=("/readyz",),
        )
    )
    yield running
    running.stop()


def crd(stack: RunningStack, *, namespaced: bool) -> None:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    manifest = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"things.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced" if namespaced else "Cluster",
            "names": {"plural": "things", "singular": "thing", "kind": "Thing"},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }
    stack.kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(manifest))
    stack.kubectl("wait", "--for=condition=Established", f"crd/things.{GROUP}", "--timeout=30s")


def delete_crd(stack: RunningStack) -> None:
    stack.kubectl("delete", "crd", f"things.{GROUP}", "--ignore-not-found", "--timeout=60s")


async def thing(stack: RunningStack, name: str, namespace: str = "") -> None:
    manifest = {
        "apiVersion": f"{GROUP}/v1",
        "kind": "Thing",
        "metadata": {"name": name, **({"namespace": namespace} if namespace else {})},
    }

    inside = f"/namespaces/{namespace}" if namespace else ""

    def made() -> bool:
        try:
            # Raw, since kubectl remembers for hours which scope a kind has.
            path = f"/apis/{GROUP}/v1{inside}/things"
            stack.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(manifest))
        except ToolError:  # the new CRD is not served at once
            return False
        return True

    await eventually(made, expected=True)


@pytest.mark.timeout(240)
async def test_resources_come_and_go_while_the_others_are_left_alone(
    stack: RunningStack,
    configured: Configured,
    running: RunningServer,
    namespace: str,
) -> None:
    assert running.url
    opa = configured.opa
    where = f"--namespace={namespace}"
    some = {**MAPS, "as": "some", "namespaces": [namespace]}
    stack.kubectl("create", "configmap", "a", where)

    def maps(name: str) -> Any:
        return sorted((data(opa, name) or {}).get(namespace, {}))

    await eventually(lambda: maps("configmaps"), ["a"])
    configured.write(MAPS, some, SECRETS)
    await eventually(lambda: maps("some"), ["a"])
    await eventually(lambda: configured.page("readyz").splitlines()[-1], "ready")
    assert data(opa, "secrets") is not None
    assert configured.lists("configmaps.v1 as some in " + namespace) == 1

    configured.write(MAPS, some, replicate={"resources": [MAPS, {**some, "namespace": "x"}]})
    await eventually(lambda: configured.metric("kube_sync_config_valid"), 0.0)
    assert "unknown key" in configured.page("readyz")
    assert configured.page("readyz").splitlines()[-1] == "ready"

    configured.write(MAPS, some)
    await eventually(lambda: data(opa, "secrets"), None)
    await eventually(lambda: configured.metric("kube_sync_config_valid"), 1.0)
    await eventually(
        lambda: configured.metric("kube_sync_replicated_objects", resource="secrets"), None
    )
    stack.kubectl("create", "configmap", "b", where)
    await eventually(lambda: maps("configmaps"), ["a", "b"])
    await eventually(lambda: maps("some"), ["a", "b"])
    assert configured.lists("configmaps.v1") == 1
    assert configured.lists("configmaps.v1 as some in " + namespace) == 1
    assert configured.metric("kube_sync_opa_loads_total", reason="start") == 1
    assert configured.metric("kube_sync_opa_loads_total", reason="lost") is None


@pytest.mark.timeout(240)
async def test_crd_that_comes_back_with_the_other_scope_is_replicated_as_it_is_now(
    stack: RunningStack,
    configured: Configured,
    running: RunningServer,
    namespace: str,
) -> None:
    assert running.url
    opa, other = configured.opa, f"other-{secrets.token_hex(4)}"
    stack.kubectl("create", "namespace", other)
    known = {"resource": "things"}
    try:
        configured.write(MAPS, {**SCOPED, "namespaces": [namespace]})
        await eventually(lambda: configured.metric("kube_sync_resource_known", **known), 0.0)
        assert "is its CRD there?" in configured.page("readyz")
        crd(stack, namespaced=False)
        await thing(stack, "east")
        await eventually(lambda: sorted(data(opa, "things") or {}), ["east"])
        await eventually(lambda: configured.metric("kube_sync_resource_known", **known), 1.0)

        delete_crd(stack)
        crd(stack, namespaced=True)
        await thing(stack, "east", namespace)
        await thing(stack, "west", other)
        await eventually(
            lambda: {s: sorted(found) for s, found in (data(opa, "things") or {}).items()},
            {namespace: ["east"]},
        )

        delete_crd(stack)
        crd(stack, namespaced=False)
        await thing(stack, namespace)  # an object where a namespace was
        await eventually(lambda: sorted(data(opa, "things") or {}), [namespace])
        await eventually(lambda: data(opa, "things")[namespace].get("kind"), "Thing")
        await eventually(lambda: configured.page("readyz").splitlines()[-1], "ready")
        assert configured.lists("configmaps.v1") == 1
        assert configured.metric("kube_sync_opa_loads_total", reason="lost") is None
    finally:
        delete_crd(stack)
        stack.kubectl("delete", "namespace", other, "--wait=false")
