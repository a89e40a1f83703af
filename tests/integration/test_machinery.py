"""Statuses on the real Gateway API, by a whole controller, beside other controllers.

The API server's audit log tells what was written; the kinds of the Gateway API tell what may be.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections import Counter
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import REGISTRY

from kube_sync.config import Kubernetes
from kube_sync.kube.client import kube_client
from kube_sync.kube.collection import KubeCollection
from kube_sync.kube.reflector import Reflector
from kube_sync.objects import GroupVersionResource
from kube_sync.runtime.backoff import Backoff
from kube_sync.topology import NAMESPACE, Kind, PolicyKind
from kube_sync.topology.controller.controller import Controller
from kube_sync.topology.controller.live_topology import LiveTopology
from kube_sync.topology.controller.world import World
from kube_sync.topology.gateway import GATEWAY, GATEWAY_CLASS, ROUTES, SERVICE
from kube_sync.topology.hints import COLOR_POLICY
from kube_sync.topology.links import REFERENCE_GRANT
from kube_sync.topology.status.owned_configmaps import KEY, NAME
from kube_sync.topology.status.pathmaps import CONFIGMAP_NAMES
from kube_sync.topology.status.reconciler import StatusReconciler
from kube_sync.topology.status.writer import MANAGER, Address
from tests.eventually import eventually
from tests.fakes.topologies import (
    API,
    GROUP,
    NS,
    WIDE,
    Object,
    color,
    gateway,
    gateway_class,
    overrides,
    route,
    rules,
    service,
    target,
)
from tests.kstatus import CURRENT
from tools.servers.errors import ToolError
from tools.servers.kstatus import Question, verdicts
from tools.servers.stack import RunningStack

ROOT = Path(__file__).resolve().parents[2]
OURS = "kube-sync.io/topology"
AFFECTED = "kube-sync.io/ColorPolicyAffected"
BLUE: Any = {"rules": rules(a="blue")}
POLICIES = GroupVersionResource("examples.kube-sync.io", "v1alpha1", "colorpolicies")
HTTP_ROUTE = ROUTES[0]
WHERE = {
    COLOR_POLICY.id: POLICIES,
    GATEWAY_CLASS: GroupVersionResource(GROUP, "v1", "gatewayclasses"),
    GATEWAY: GroupVersionResource(GROUP, "v1", "gateways"),
    HTTP_ROUTE: GroupVersionResource(GROUP, "v1", "httproutes"),
    REFERENCE_GRANT.id: GroupVersionResource(GROUP, "v1beta1", "referencegrants"),
    SERVICE: GroupVersionResource("", "v1", "services"),
    NAMESPACE: GroupVersionResource("", "v1", "namespaces"),
}
KINDS = ("colorpolicies", f"gateways.{GROUP}", f"httproutes.{GROUP}", "services")
WORLD = [gateway(), route(), service("service", 80)]


class Followed:
    """The kinds that are there, all of them from the beginning."""

    policies: tuple[PolicyKind, ...] = (WIDE,)
    waiting: tuple[str, ...] = ()


@dataclass
class Held:
    """A Lease that is held."""

    held: bool = True


@dataclass
class Cluster:
    """A namespace of the stack: it stands for NS in what is written and in what is read."""

    stack: RunningStack
    namespace: str
    notes: list[str] = field(default_factory=list)

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        return self.stack.kubectl(*arguments, f"--namespace={self.namespace}", stdin=stdin)

    def create(self, *objects: Object) -> None:
        for manifest in json.loads(json.dumps(objects).replace(NS, self.namespace)):
            self.stack.api.create(manifest, strict=False)

    def delete(self, kind: str, name: str) -> None:
        self.stack.api.delete(kind, name, self.namespace)

    def get(self, kind: str, name: str) -> Any:
        found = json.dumps(self.stack.api.get(kind, name, self.namespace))
        return json.loads(found.replace(self.namespace, NS))

    def status(self, kind: str, name: str) -> Any:
        return self.get(kind, name).get("status", {})

    def conditions(self, kind: str, name: str) -> dict[str, str]:
        found = self.status(kind, name).get("conditions") or []
        return {one["type"]: one["message"] for one in found}

    def ancestors(self, name: str) -> dict[str, dict[str, str]]:
        """Return the reason of each condition of ours, by the name of the ancestor."""
        return {
            one["ancestorRef"]["name"]: {c["type"]: c["reason"] for c in one["conditions"]}
            for one in self.status("colorpolicies", name).get("ancestors", [])
            if one["controllerName"] == OURS
        }

    def say(self, kind: str, name: str, status: Object) -> None:
        """Write a status as another controller, in one piece."""
        self.stack.api.merge(kind, name, {"status": status}, self.namespace, "status")

    def apply(self, kind: str, name: str, api: str, status: Object) -> None:
        """Apply a status as another controller."""
        metadata = {"name": name, "namespace": self.namespace}
        whole = {"apiVersion": api, "kind": kind, "metadata": metadata, "status": status}
        text = json.dumps(whole).replace(NS, self.namespace)
        apply = ("apply", "--server-side", "--subresource=status", "--validate=ignore")
        self.kubectl(
            *apply, "--field-manager=other", "-f", "-", stdin=text.replace(NS, self.namespace)
        )

    def writes(self) -> Counter[str]:
        """How often each object of the namespace was written by the machinery."""
        lines = self.stack.audited(MANAGER)
        written = [line["objectRef"] for line in lines if line["verb"] != "get"]
        return Counter(
            one["name"]
            for one in written
            if "name" in one and one.get("namespace", one["name"]) == self.namespace
        )

    @asynccontextmanager
    async def running(self, held: Held | None = None) -> AsyncGenerator[Controller]:
        """Run a controller with all that it needs, as a process would."""
        kubeconfig = str(self.stack.kubeconfigs["admin"])
        async with kube_client(Kubernetes(kubeconfig=kubeconfig)) as client:
            news = asyncio.Event()
            world = World(news.set)
            live = LiveTopology(world, Followed(), API.kinds, API.links)
            addresses = {kind: Address(gvr, kind == COLOR_POLICY.id) for kind, gvr in WHERE.items()}
            machinery = StatusReconciler(
                client,
                world.get,
                addresses.get,
                lambda: math.inf,
                self.namespace,
                self.notes.append,
            )
            kinds = {kind.id: kind for kind in API.kinds} | {
                COLOR_POLICY.id: COLOR_POLICY.node_kind,
                NAMESPACE: Kind(NAMESPACE, namespaced=False),
            }
            controller = Controller(
                live,
                news,
                machinery.workflow,
                held or Held(),
                lambda _: None,
                heeds=machinery.needs_reconcile,
                backoff=Backoff(0.05, 0.2),
            )
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(
                        Reflector(
                            str(gvr), KubeCollection(client, gvr), world.store(kinds[kind]), _quiet
                        ).run()
                    )
                    for kind, gvr in WHERE.items()
                ]
                tasks.append(group.create_task(controller.run()))
                try:
                    yield controller
                finally:
                    for task in tasks:
                        task.cancel()

    async def settled(self, controller: Controller) -> None:
        """Wait until a policy that comes last has its status, and a whole look is over."""
        self.create(color("last", target("HTTPRoute", "none"), **BLUE))
        await eventually(lambda: "none" in self.ancestors("last"), expected=True)
        await looked(controller)
        self.delete("colorpolicies", "last")


async def looked(controller: Controller) -> None:
    """Wait until everything was looked at after now; what is under way may have begun before."""
    for _ in range(2):
        before = _looks()
        controller.wake()
        await eventually(lambda: _looks() > before, expected=True)  # noqa: B023 - at once


def _looks() -> float:
    name = "kube_sync_topology_reconciles_total"
    return REGISTRY.get_sample_value(name, {"outcome": "ok"}) or 0


def _quiet(_reason: str | None) -> None:
    """A Reflector's troubles are none of these tests'."""


@pytest.fixture(scope="module")
def installed(gateway_api: RunningStack) -> RunningStack:
    gateway_api.install_kinds(ROOT / "manifests/examples/colorpolicy")
    made_class = gateway_class() | {"spec": {"controllerName": "example.com/gateway"}}
    gateway_api.api.apply(made_class)
    return gateway_api


@pytest.fixture
def cluster(installed: RunningStack, namespace: str) -> Iterator[Cluster]:
    """A gateway, a route and a service in a namespace."""
    found = Cluster(installed, namespace)
    installed.api.delete_all("colorpolicies")  # where there are any, paths without one are told
    found.create(*WORLD)
    yield found
    for kind in KINDS:
        found.stack.api.delete_all(kind, namespace)


def listeners(*names: str, **fields: Any) -> Object:
    """Return the status of listeners as a gateway's controller writes it."""
    return {
        "listeners": [
            {"name": name, "attachedRoutes": 1, "supportedKinds": [], "conditions": [], **fields}
            for name in names
        ]
    }


def condition(kind: str, message: str = "") -> Object:
    return {
        "type": kind,
        "status": "True",
        "reason": "Other",
        "message": message,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }


def affected(cluster: Cluster) -> bool:
    """Tell whether the gateway says anywhere that it is."""
    return AFFECTED in str(cluster.status("gateways", "my-gateway"))


async def test_a_policy_and_all_that_it_affects_say_so(cluster: Cluster) -> None:
    cluster.say("gateways", "my-gateway", listeners("http"))
    cluster.create(color("p", **BLUE))
    async with cluster.running() as controller:
        await eventually(
            lambda: AFFECTED in cluster.conditions("gateways", "my-gateway"), expected=True
        )
        await cluster.settled(controller)
    assert cluster.ancestors("p") == {
        "my-gateway": {"Accepted": "Accepted", "Programmed": "Programmed"}
    }
    (ancestor,) = cluster.status("colorpolicies", "p")["ancestors"]
    assert ancestor["ancestorRef"] == target() | {"namespace": NS}
    assert {c["observedGeneration"] for c in ancestor["conditions"]} == {1}
    status = cluster.status("gateways", "my-gateway")
    (told,) = status["listeners"]
    assert told["attachedRoutes"] == 1
    assert [c["type"] for c in told["conditions"]] == [AFFECTED]
    assert set(cluster.conditions("gateways", "my-gateway")) == {
        "Accepted",
        "Programmed",
        AFFECTED,
    }
    (parent,) = cluster.status("httproutes", "route")["parents"]
    assert parent["controllerName"] == OURS
    affected, paths = parent["conditions"]
    assert affected["message"] == f"Object affected by ColorPolicy [{NS}/p]"
    assert (paths["type"], paths["status"]) == ("kube-sync.io/ColorPolicyPaths", "True")
    (path,) = json.loads(paths["message"])
    assert path.endswith(f"{NS}/my-gateway#http > {NS}/route > {NS}/route#rule-1")


async def test_maps_of_many_paths_are_in_configmaps_until_they_are_short_again(
    cluster: Cluster,
) -> None:
    many = [{"name": f"l{n}", "port": n + 1} for n in range(16)]
    cluster.create(
        gateway("wide", *many),
        route("wide", parentRefs=[{"name": "wide"}]),
        color("p", target("HTTPRoute", "wide"), **BLUE),
    )
    async with cluster.running():
        await eventually(lambda: kept(cluster), {f"httproute.{GROUP}_{NS}_wide": 16})

        def said() -> list[str]:
            parents = cluster.status("httproutes", "wide").get("parents", [])
            found = [c for parent in parents for c in parent["conditions"]]
            return [c["message"] for c in found if c["type"].endswith("Paths")]

        (message,) = await eventually(said)
        assert message.startswith(
            f"16 paths, 0 of them without: ConfigMap {NS}/{CONFIGMAP_NAMES[0][:-1]}"
        )
        cluster.delete("gateways", "wide")
        await eventually(lambda: kept(cluster), {})


def kept(cluster: Cluster) -> dict[str, int]:
    """Return how many paths are in the ConfigMaps, by the key."""
    found = cluster.stack.api.get("configmaps", namespace=cluster.namespace)
    return {
        key.replace(cluster.namespace, NS): len(json.loads(text)[str(COLOR_POLICY.id)])
        for one in found["items"]
        if one["metadata"]["name"] in CONFIGMAP_NAMES
        for key, text in one.get("data", {}).items()
    }


async def test_an_unchanged_world_is_not_written_by_the_next_process(cluster: Cluster) -> None:
    cluster.create(color("p", **BLUE))
    async with cluster.running() as controller:
        await eventually(lambda: len(cluster.ancestors("p")), 1)
        await looked(controller)
        before = cluster.writes()
        assert before == {"p": 1, "my-gateway": 1, "route": 1, NAME: before[NAME]}
        await looked(controller)
    async with cluster.running() as controller:
        await looked(controller)
    assert cluster.writes() == before


async def test_what_holds_no_more_is_taken_away_and_what_others_said_stays(
    cluster: Cluster,
) -> None:
    space = target("Namespace", NS)
    entry = {"controllerName": "example.com/other", "conditions": [condition("Accepted")]}
    parents = [entry | {"parentRef": {"name": "my-gateway"}}]
    cluster.say("gateways", "my-gateway", listeners("http", conditions=[condition("Accepted")]))
    cluster.say("httproutes", "route", {"parents": parents})
    cluster.say("services", "service", {"conditions": [condition("Other")]})
    cluster.create(color("p", **BLUE), color("q", space, **overrides("merge", b="red")))
    ancestor = entry | {"ancestorRef": {"name": "theirs"}}
    cluster.say("colorpolicies", "q", {"ancestors": [ancestor]})
    async with cluster.running() as controller:
        await eventually(
            lambda: AFFECTED in cluster.conditions("namespaces", cluster.namespace), expected=True
        )
        await cluster.settled(controller)
        assert len(cluster.status("colorpolicies", "q")["ancestors"]) == 2
        assert len(cluster.status("httproutes", "route")["parents"]) == 2
        for name in ("p", "q"):
            cluster.delete("colorpolicies", name)
        await eventually(
            lambda: AFFECTED in str(cluster.get("gateways", "my-gateway")), expected=False
        )
        await cluster.settled(controller)
        # As long as there is a policy of the kind, the last one too, paths without one are told.
        await eventually(lambda: len(cluster.status("httproutes", "route")["parents"]), 1)
    status = cluster.status("gateways", "my-gateway")
    assert status["listeners"] == listeners("http", conditions=[condition("Accepted")])["listeners"]
    (kept,) = cluster.status("httproutes", "route")["parents"]
    assert kept["controllerName"] == "example.com/other"
    assert cluster.conditions("namespaces", cluster.namespace) == {}
    assert cluster.conditions("services", "service") == {"Other": ""}


async def test_what_is_below_no_gateway_is_its_own_ancestor(cluster: Cluster) -> None:
    refs = [target("Service", "service"), target("GatewayClass", "my-gateway-class")]
    cluster.create(*(color(f"p{number}", ref, **BLUE) for number, ref in enumerate(refs)))
    async with cluster.running():
        await eventually(lambda: set(cluster.ancestors("p0")), {"service"})
        await eventually(lambda: set(cluster.ancestors("p1")), {"my-gateway-class"})
        await eventually(
            lambda: AFFECTED in cluster.conditions("gatewayclasses", "my-gateway-class"),
            expected=True,
        )
        cluster.delete("colorpolicies", "p1")
        await eventually(
            lambda: set(cluster.conditions("gatewayclasses", "my-gateway-class")), {"Accepted"}
        )


async def test_seventeen_gateways_are_sixteen_entries_that_say_so(cluster: Cluster) -> None:
    names = [f"gw-{number:02}" for number in range(17)]
    parents = [{"name": name} for name in names]
    cluster.create(
        *(gateway(name) for name in names),
        route("wide", parentRefs=parents),
        color("p", target("HTTPRoute", "wide"), **BLUE),
    )
    async with cluster.running():
        await eventually(lambda: len(cluster.ancestors("p")), 16)
    assert sorted(cluster.ancestors("p")) == names[:16]
    (entry, *_) = cluster.status("colorpolicies", "p")["ancestors"]
    said = {c["type"]: c["message"] for c in entry["conditions"]}
    assert said["kube-sync.io/Truncated"].endswith(f"[{NS}/gw-16]")


async def test_each_gateway_is_told_of_its_own_paths(cluster: Cluster) -> None:
    both = [{"name": "my-gateway"}, {"name": "other"}]
    cluster.create(
        gateway("other"),
        route("both", parentRefs=both),
        color("p", target("HTTPRoute", "both"), **BLUE),
        color("above", target(name="other"), **overrides(a="red")),
    )
    async with cluster.running():
        await eventually(
            lambda: {n: r.get("Programmed") for n, r in cluster.ancestors("p").items()},
            {"my-gateway": "Programmed", "other": "Overridden"},
        )
        cluster.delete("colorpolicies", "above")
        await eventually(
            lambda: {n: r.get("Programmed") for n, r in cluster.ancestors("p").items()},
            {"my-gateway": "Programmed", "other": "Programmed"},
        )


async def test_a_policy_without_a_target_hears_of_it_and_of_the_target_that_comes(
    cluster: Cluster,
) -> None:
    cluster.create(
        color("p", target("HTTPRoute", "late"), **BLUE),
        color("odd", target(sectionName="A B"), **BLUE),
    )
    async with cluster.running():
        await eventually(lambda: cluster.ancestors("p"), {"late": {"Accepted": "TargetNotFound"}})
        await eventually(lambda: set(cluster.ancestors("odd")), {"odd"})
        cluster.create(route("late"))
        await eventually(lambda: set(cluster.ancestors("p")), {"my-gateway"})


@pytest.mark.built("kstatus")
async def test_argo_cd_calls_a_policy_healthy_once_its_target_is_there(cluster: Cluster) -> None:
    script = (ROOT / "manifests/argocd-policy-health/ancestors.lua").read_text(encoding="utf-8")

    def health() -> str:
        (verdict,) = verdicts([Question(cluster.get("colorpolicies", "p"), script)])
        assert verdict["status"] == CURRENT, "kstatus does not read status.ancestors"
        return str(verdict["health"]["status"])

    cluster.create(color("p", target("HTTPRoute", "late"), **BLUE))
    assert health() == "Progressing"
    async with cluster.running():
        await eventually(health, "Degraded")
        cluster.create(route("late"))
        await eventually(health, "Healthy")
    edit = {"spec": {"rules": rules(a="green")}}
    cluster.stack.api.merge("colorpolicies", "p", edit, cluster.namespace)
    assert health() == "Progressing"


async def test_what_another_manager_says_too_is_taken_away_all_the_same(cluster: Cluster) -> None:
    """An apply only gives up what is its own; a controller that applies all it read owns it too."""
    cluster.create(color("p", **BLUE))
    async with cluster.running():
        await eventually(
            lambda: AFFECTED in cluster.conditions("gateways", "my-gateway"), expected=True
        )
        status = cluster.status("gateways", "my-gateway")
        ours = [c for c in status["conditions"] if c["type"] == AFFECTED]
        cluster.apply("Gateway", "my-gateway", f"{GROUP}/v1", {"conditions": ours})
        cluster.delete("colorpolicies", "p")
        await eventually(
            lambda: AFFECTED in cluster.conditions("gateways", "my-gateway"), expected=False
        )


async def test_a_condition_that_others_changed_or_took_is_put_right(cluster: Cluster) -> None:
    cluster.create(color("p", **BLUE))
    async with cluster.running():
        await eventually(lambda: len(cluster.ancestors("p")), 1)
        cluster.say("colorpolicies", "p", {"ancestors": []})
        await eventually(lambda: len(cluster.ancestors("p")), 1)
        cluster.say("gateways", "my-gateway", {"conditions": [condition(AFFECTED, "a lie")]})
        await eventually(
            lambda: cluster.conditions("gateways", "my-gateway").get(AFFECTED),
            f"Object affected by ColorPolicy [{NS}/p]",
        )


async def test_a_listener_that_gets_a_status_is_told_and_one_that_goes_is_let_go(
    cluster: Cluster,
) -> None:
    """A gateway's controller that applies could not drop a listener while we say something of it.

    We do so no longer than the listener is in the spec.
    """

    def told() -> list[tuple[str, int]]:
        found = cluster.status("gateways", "my-gateway").get("listeners", [])
        return [(one["name"], len(one.get("conditions", []))) for one in found]

    def dropped() -> bool:
        try:
            cluster.apply("Gateway", "my-gateway", f"{GROUP}/v1", {"listeners": entries[:1]})
        except ToolError as error:
            if "status.listeners[1]" not in str(error):
                raise
            return False  # the write that lets go of the listener is on its way
        return True

    bare = {"attachedRoutes": 0, "supportedKinds": [], "conditions": []}
    entries = [{"name": name, **bare} for name in ("http", "more")]
    two = gateway("my-gateway", {"name": "http"}, {"name": "more", "port": 81})
    cluster.create(color("p", **BLUE))
    change = partial(cluster.stack.api.merge, "gateways", "my-gateway", namespace=cluster.namespace)
    change({"spec": two["spec"]})
    async with cluster.running():
        await eventually(
            lambda: AFFECTED in cluster.conditions("gateways", "my-gateway"), expected=True
        )
        cluster.apply("Gateway", "my-gateway", f"{GROUP}/v1", {"listeners": entries})
        await eventually(told, [("http", 1), ("more", 1)])
        change({"spec": gateway()["spec"]})
        await eventually(told, [("http", 1), ("more", 0)])
        await eventually(dropped, expected=True)
        assert told() == [("http", 1)]


async def test_many_writers_lose_nothing(cluster: Cluster) -> None:
    """Both lists are one value to the API server: who writes on an old state starts over."""
    cluster.create(color("p", **BLUE))
    others = [
        {
            "ancestorRef": {"name": f"theirs-{number}"},
            "controllerName": "example.com/other",
            "conditions": [condition("Accepted")],
        }
        for number in range(5)
    ]
    written: list[Object] = []
    async with cluster.running() as controller:
        for number in range(5):
            found = cluster.get("colorpolicies", "p")
            status = {"ancestors": [*found.get("status", {}).get("ancestors", []), others[number]]}
            bound = {
                "metadata": {"resourceVersion": found["metadata"]["resourceVersion"]},
                "status": status,
            }
            arguments = ("--subresource=status", "--type=merge", "-p", json.dumps(bound))
            with suppress(ToolError):  # the machinery was first: the next one is on its state
                cluster.kubectl("patch", "colorpolicies", "p", *arguments)
                written.append(others[number])
        await eventually(lambda: len(cluster.ancestors("p")), 1)
        await looked(controller)
    found = cluster.status("colorpolicies", "p")["ancestors"]
    kept = [one["ancestorRef"]["name"] for one in found if one["controllerName"] != OURS]
    assert kept == [one["ancestorRef"]["name"] for one in written]


async def test_who_does_not_hold_the_lease_writes_nothing_until_it_does(cluster: Cluster) -> None:
    cluster.create(color("p", **BLUE))
    held = Held(held=False)
    async with cluster.running(held) as controller:
        async with cluster.running() as other:
            await cluster.settled(other)
        before = cluster.writes()
        cluster.delete("colorpolicies", "p")
        cluster.create(color("q", **BLUE))
        held.held = True
        controller.wake()
        await eventually(lambda: len(cluster.ancestors("q")), 1)
    assert before["p"] == 1


async def test_the_picture_shows_what_is_there(cluster: Cluster) -> None:
    async with cluster.running() as controller:
        await cluster.settled(controller)
        cluster.create(color("p", **BLUE))

        def drawn() -> bool:
            text: str = cluster.get("configmap", NAME)["data"][KEY]
            return f"ColorPolicy\\n{NS}/p" in text

        await eventually(drawn, expected=True)
    found = cluster.get("configmap", NAME)
    assert found["metadata"]["labels"] == {"kube-sync.io/topology": "dot"}
    assert [m["manager"] for m in found["metadata"]["managedFields"]] == [MANAGER]


async def test_every_condition_of_ours_is_owned_by_our_manager(cluster: Cluster) -> None:
    cluster.create(color("p", **BLUE))
    async with cluster.running() as controller:
        await cluster.settled(controller)
    for kind, name in (("colorpolicies", "p"), ("gateways", "my-gateway"), ("httproutes", "route")):
        managers = {
            entry["manager"]: entry["operation"]
            for entry in cluster.get(kind, name)["metadata"]["managedFields"]
            if entry.get("subresource") == "status"
        }
        assert managers.keys() == {MANAGER}, kind
