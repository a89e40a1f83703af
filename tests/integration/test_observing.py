"""Dashboards and rules against a real Prometheus that scrapes the real stack with its tokens.

Every expression of every panel and rule is run while the stack does what it is for; one that errs
or finds nothing would be an empty picture, or an alert that cannot fire.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
import secrets
import sys
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.eventually import eventually
from tests.integration.scheduling_world import World as SystemWorld
from tests.integration.scheduling_world import pod, system_world
from tests.integration.syncing_world import spec_of
from tests.integration.test_metadata_live import default
from tests.integration.test_metadata_live import policy as metadata_policy
from tools.demo.components import UNBRAKED, start_service
from tools.demo.fleet import FLEET, cluster, namespace, policy_map, replica_set, staged_map
from tools.demo.webhook import register_webhook
from tools.observing.__main__ import RULES
from tools.observing.mixin import evaluated
from tools.servers.errors import ToolError
from tools.servers.files import write_file
from tools.servers.http import get
from tools.servers.processes import ProcessLauncher
from tools.servers.running import Launcher, RunningServer, ServerSpec, free_port
from tools.servers.scraping import Target, api, instant, start_prometheus
from tools.servers.stack import RunningStack

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
PLACED = """
package io.k8s.federation.admission

annotations["federation.kubernetes.io/replica-set-preferences"] := {
	"clusters": {name: {"weight": 1} |
		some name, found in data.kubernetes.clusters.fleet
		found.metadata.labels.maintenance != "true"
	},
} if input.kind == "ReplicaSet"

errors contains "not today" if input.metadata.labels.app == "denied"
"""
# One object waits for a person from the start on, so that it is seen how that looks.
WAITING = {"KubeSyncRemediationHeld", "KubeSyncPlacementDecisionsHeld"}
# What cannot be seen while all is well; `promtool test rules` has it.
ONLY_IN_A_FAULT = {"absent(kube_sync_build_info)": "it is about processes that are not there"}


@dataclass
class World:
    """The real stack, with a Prometheus that scrapes all of it."""

    system: SystemWorld
    services: Mapping[str, RunningServer]
    prometheus: RunningServer

    @property
    def stack(self) -> RunningStack:
        return self.system.stack

    def traffic(self, n: int, maintenance: str) -> None:
        """Place one, deny one, move all, make a pod, let another be denied: a moment's work."""
        apply = self.system.apply
        apply(replica_set(f"app-{n}"))
        with pytest.raises(ToolError, match="not today"):
            apply(replica_set("denied"))
        self.stack.kubectl(
            "label",
            "clusterprofile",
            "east",
            f"--namespace={FLEET}",
            "--overwrite",
            f"maintenance={maintenance}",
        )
        self.stack.kubectl(
            "label", "httproutes", "--all", "--namespace=shop", "--overwrite", f"turn=n{n}"
        )
        self.stack.kubectl(
            "label", "colorpolicies", "--all", "--namespace=shop", "--overwrite", f"turn=n{n}"
        )
        self.system.create(pod(f"web-{n}", "shop"))


@asynccontextmanager
async def busy(world: World) -> AsyncGenerator[None]:
    """Keep the stack at work as long as the block lasts."""

    async def work() -> None:
        for maintenance in cycle(("true", "false")):
            await asyncio.to_thread(world.traffic, secrets.randbits(40), maintenance)
            await asyncio.sleep(0.5)

    async with asyncio.TaskGroup() as group:
        working = group.create_task(work())
        yield
        working.cancel()


def start_topology(stack: RunningStack, folder: Path) -> RunningServer:
    return start_as_admin(stack, folder, "topology", "--live")


def start_policy_sync(stack: RunningStack, folder: Path) -> RunningServer:
    return start_as_admin(stack, folder, "policy-sync")


def start_as_admin(stack: RunningStack, folder: Path, *command: str) -> RunningServer:
    port = free_port()
    configuration = {
        "kubernetes": {"kubeconfig": str(stack.kubeconfigs["admin"])},
        "observe": {"listen": f"127.0.0.1:{port}"},
    }
    file = write_file(folder / "config.yaml", yaml.safe_dump(configuration).encode())
    return ProcessLauncher().launch(
        ServerSpec(
            name=f"kube-sync-{command[0]}",
            program=str(Path(sys.executable).with_name("kube-sync")),
            arguments=(*command, "--config", str(file)),
            folder=folder,
            url=f"http://127.0.0.1:{port}",
            ready_paths=("/readyz",),
        )
    )


def start_remediator(stack: RunningStack, folder: Path) -> RunningServer:
    sinks = {"placement_decisions": {"enabled": True}}
    configuration = {
        "kubernetes": {"kubeconfig": str(stack.kubeconfigs["remediator"])},
        "decisions": stack.endpoint.client(),
        "remediate": {
            "listen": f"127.0.0.1:{free_port()}",
            "sinks": sinks,
            "namespaces": {"by-hand": "manual"},  # where something is to be seen waiting
            **UNBRAKED,
        },
    }
    return start_service("remediate", folder, configuration)


@pytest.fixture(scope="module")
def world(launcher: Launcher, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("observing")
    with (
        system_world(launcher, folder, "metadata", {"qos": True}) as system,
        ExitStack() as ending,
    ):
        stack = system.stack
        stack.install_kinds(ROOT / "manifests/crds")
        stack.install_kinds(ROOT / "manifests/examples/colorpolicy/colorpolicies.yaml")
        stack.install_gateway_api()
        stack.install_open_cluster_management()
        for rights in ("metadata-rbac", "placement-decisions"):
            stack.apply(ROOT / "manifests" / rights)
        system.register()
        webhook = f"https://127.0.0.1:{system.port}/admit/placement"
        register_webhook(stack, webhook, system.authority)
        services = dict(system.services)
        for name, start in (
            ("remediate", start_remediator),
            ("topology", start_topology),
            ("policy-sync", start_policy_sync),
        ):
            services[name] = start(stack, folder / name)
            ending.callback(services[name].stop)
        prometheus = start_prometheus(folder / "prometheus", targets(stack, services), [RULES])
        ending.callback(prometheus.stop)
        furnish(system)
        furnish_hub(system)
        yield World(system, services, prometheus)


def targets(stack: RunningStack, services: Mapping[str, RunningServer]) -> list[Target]:
    token_file = stack.opa_token_files["metrics"]
    opa = Target("kube-sync-opa", stack.opa_url, stack.opa_ca_file, token_file)
    return [opa, *(Target(f"kube-sync-{name}", s.url) for name, s in services.items())]


def furnish(system: SystemWorld) -> None:
    for name in (FLEET, "shop", "by-hand"):
        system.apply(namespace(name))
    system.stack.kubectl("create", "serviceaccount", "default", "--namespace=shop")
    for name in ("west", "east"):
        system.apply(cluster(name, "europe-west1", "2"))
        system.stack.kubectl(
            "label", "clusterprofile", name, f"--namespace={FLEET}", "maintenance=false"
        )
    team = default("team", "web")
    system.apply(metadata_policy("team", "shop", team))
    system.apply(replica_set("waits") | {"metadata": {"name": "waits", "namespace": "by-hand"}})
    system.apply(policy_map(PLACED))
    furnish_stages(system)
    for manifest in ("gateway", "shop"):
        system.stack.kubectl(
            "apply",
            "--server-side",
            "-f",
            str(ROOT / f"manifests/examples/topology/{manifest}.yaml"),
        )


def furnish_stages(system: SystemWorld) -> None:
    """Let one policy decide in the shadow, and one as a canary."""
    system.apply(staged_map(PLACED, "shadow"))
    canary = staged_map(PLACED, "canary")
    canary["metadata"] |= {
        "name": "placement-canary",
        "annotations": {
            "kube-sync.io/stands-for": "placement",
            "kube-sync.io/canary-share": "0.5",
        },
    }
    system.apply(canary)


def furnish_hub(system: SystemWorld) -> None:
    """Let one policy be wanted on a spoke whose agent does nothing."""
    gateways = "gateway.networking.k8s.io"
    ref = {"group": "", "kind": "ConfigMap", "namespace": "shop", "name": "params"}
    synced = {
        "group": "examples.kube-sync.io",
        "version": "v1alpha1",
        "resource": "colorpolicies",
    }
    listener = {"name": "http", "port": 80, "protocol": "HTTP"}
    for manifest in (
        named("v1", "Namespace", "spoke", None),
        named("cluster.open-cluster-management.io/v1", "ManagedCluster", "spoke", None)
        | {"spec": {"hubAcceptsClient": True}},
        named("v1", "ConfigMap", "params", "shop")
        | {"data": {"params": json.dumps({"policiesToSync": [synced]})}},
        named(f"{gateways}/v1", "GatewayClass", "hub", None)
        | {"spec": {"controllerName": "kube-sync.io/policy-sync", "parametersRef": ref}},
        named(f"{gateways}/v1", "Gateway", "hub", "shop")
        | {"spec": {"gatewayClassName": "hub", "listeners": [listener]}},
        named("examples.kube-sync.io/v1alpha1", "ColorPolicy", "paint", "shop")
        | {"spec": spec_of("red", "hub")},
    ):
        system.apply(manifest)


def named(version: str, kind: str, name: str, space: str | None) -> dict[str, Any]:
    metadata = {"name": name} | ({"namespace": space} if space else {})
    return {"apiVersion": version, "kind": kind, "metadata": metadata}


def expressions() -> dict[str, str]:
    """Return every expression there is, by where it is written."""
    found = {
        f"{name}: {panel['title']} {target['refId']}": target["expr"]
        for name, model in evaluated()["dashboards"].items()
        for panel in model["panels"]
        for target in panel.get("targets", ())
    }
    groups = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    alerts = {rule["alert"]: _measured(rule["expr"]) for rule in rules if "alert" in rule}
    return found | alerts | {rule["record"]: rule["expr"] for rule in rules if "record" in rule}


def _measured(expression: str) -> str:
    """Ask what an alert compares, not only whether it is to fire: 0 or 1 for each series."""
    return re.sub(r" (==|>|<) ", r" \1 bool ", expression)


def as_shown(expression: str) -> str:
    """Fill in what Grafana does."""
    return expression.replace("$__rate_interval", "1m").replace("$instance", ".+")


def trouble(world: World, expression: str) -> str:
    """Return what is wrong with what an expression gives now, empty where nothing is."""
    try:
        found = instant(world.prometheus.url, as_shown(expression))
    except ToolError as error:
        return str(error)
    values = [float(series["value"][1]) for series in found]
    if not values:
        return "no series"
    return "" if any(map(math.isfinite, values)) else "no number"


@pytest.mark.timeout(600)
async def test_every_expression_finds_something_on_the_real_stack(world: World) -> None:
    asked = {w: e for w, e in expressions().items() if e not in ONLY_IN_A_FAULT}
    assert len(asked) > 80

    def troubles() -> dict[str, str]:
        found = {where: trouble(world, expression) for where, expression in asked.items()}
        return {where: said for where, said in found.items() if said}

    async with busy(world):
        await eventually(troubles, {}, seconds=120)


async def test_prometheus_reads_everything_with_its_tokens(world: World) -> None:
    def health() -> dict[str, str]:
        active = api(world.prometheus.url, "/api/v1/targets")["activeTargets"]
        return {t["labels"]["job"]: t["health"] for t in active}

    jobs = ("admit", "opa", "policy-sync", "remediate", "replicate", "topology")
    await eventually(health, {f"kube-sync-{job}": "up" for job in jobs})


async def test_opa_shows_its_metrics_to_nobody_else(world: World) -> None:
    """Neither without a token nor with that of another."""
    stack = world.stack
    for token_file in (None, stack.opa_token_files["admission"]):
        token = token_file.read_text(encoding="utf-8") if token_file else None
        answer = get(f"{stack.opa_url}/metrics", ca_file=stack.opa_ca_file, token=token)
        assert answer.status == 401


async def test_alerts_are_pending_in_their_fault_only(world: World) -> None:
    """Prometheus itself evaluates the rules as they are loaded."""

    def alerts() -> set[str]:
        found = api(world.prometheus.url, "/api/v1/alerts")["alerts"]
        return {alert["labels"]["alertname"] for alert in found}

    await eventually(alerts, WAITING, seconds=60)
    world.services["topology"].stop()
    await eventually(alerts, {*WAITING, "KubeSyncDown"}, seconds=30)
    world.services["topology"].start()
    await eventually(alerts, WAITING, seconds=30)
