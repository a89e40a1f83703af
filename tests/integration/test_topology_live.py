"""The controller of a topology as a process on a real API server, with its own rights, no more."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
import ssl
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from kube_sync.certificates import issue, make_authority
from tests.eventually import eventually
from tests.fakes.definitions import POLICY, definition
from tests.fakes.released import released_kind
from tests.fakes.topologies import (
    GROUP,
    NS,
    Object,
    allowing,
    color,
    gateway,
    listener,
    listener_set,
    made,
    overrides,
    route,
    rules,
    service,
    target,
)
from tests.faults.proxy import FaultProxy, reply
from tests.integration.test_machinery import BLUE, condition, listeners
from tests.integration.topology_world import (
    ACCOUNT,
    AFFECTED,
    OURS,
    ROOT,
    Ask,
    Live,
    Said,
    metric,
    readiness,
)
from tools.servers.apiserver import write_kubeconfig
from tools.servers.files import LOOPBACK, write_file, write_pair
from tools.servers.processes import ProcessServer
from tools.servers.running import Launcher
from tools.servers.stack import furnished_stack

GREEN: Any = {"rules": rules(a="green", b="green")}
SOUND = {"Accepted": "Accepted", "Programmed": "Programmed"}
OWN = "live.example.com"
_LEASE = 15.0  # seconds that it lasts
ADMIN = "admin"


@pytest.fixture(scope="module")
def live(launcher: Launcher, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    folder = tmp_path_factory.mktemp("live")
    with furnished_stack(launcher, folder / "stack", audit=True) as stack:
        yield Live(stack, folder)


@pytest.fixture
def space(live: Live) -> Iterator[str]:
    """A namespace with a gateway and a route, emptied afterwards: the world is one."""
    name = f"test-{secrets.token_hex(4)}"
    live.stack.api.create_namespace(name)
    live.create(name, gateway(), route(), service("service", 80))
    live.say(name, "gateways", "my-gateway", listeners("http"))
    yield name
    protocols = ("http", "grpc", "tcp", "tls", "udp")
    routes = [f"{protocol}routes.{GROUP}" for protocol in protocols]
    for kind in (
        "colorpolicies",
        f"gateways.{GROUP}",
        f"listenersets.{GROUP}",
        *routes,
        "services",
    ):
        live.stack.api.delete_all(kind, name)


async def settled(live: Live, process: ProcessServer, space: str) -> None:
    """Wait until a policy that comes last has its status, and has gone without a trace."""
    live.create(space, color("last", target("HTTPRoute", "none"), **BLUE))
    await eventually(lambda: live.reasons(space, "last"), {"Accepted": "TargetNotFound"})
    before = metric(process, 'kube_sync_topology_reconciles_total{outcome="ok"}')
    live.delete(space, "colorpolicies", "last")
    await eventually(
        lambda: metric(process, 'kube_sync_topology_reconciles_total{outcome="ok"}') > before,
        expected=True,
    )
    await eventually(lambda: "/last" in live.picture(), expected=False)


def affects(said: set[Said]) -> set[Said]:
    """Return what the controller says; of routes their gateway's controller says the rest."""
    return {one for one in said if one[0].startswith("colorpolicy.") or "Affected" in one[1]}


def at_rules(said: set[Said]) -> set[Said]:
    """Return what there is no place for in any status: rules of routes and ports have none."""
    told = ("gateway.", "listenerset.")
    return {one for one in said if "#" in one[0] and not one[0].startswith(told)}


async def same_as_offline(live: Live) -> None:
    """Compare what the cluster says with what the command makes of the cluster's objects."""
    said, picture = live.offline()
    wanted = affects(said) - at_rules(said)

    def differences() -> tuple[set[Said], set[Said]]:
        found = affects(live.said())  # maps of paths are compared in tests/unit/machinery
        return wanted - found, found - wanted

    await eventually(differences, (set(), set()))
    await eventually(live.picture, picture)


async def test_what_comes_changes_and_goes_is_said_as_the_command_says_it(
    live: Live, space: str
) -> None:
    with live.running() as process:
        live.create(
            space,
            color("p", **overrides("merge", a="blue")),
            color("q", target("HTTPRoute", "route"), **GREEN),
        )
        await eventually(lambda: live.reasons(space, "q").get("Programmed"), "PartiallyProgrammed")
        await settled(live, process, space)
        await same_as_offline(live)
        assert live.affected(space, "httproutes", "route") == [
            f"Object affected by ColorPolicy [{space}/p {space}/q]"
        ]
        live.replace(space, color("q", target("HTTPRoute", "route"), rules=rules(b="gold")))
        await eventually(lambda: live.reasons(space, "q"), SOUND)
        live.replace(space, allowing(gateway()))
        parents = [{"name": "my-gateway"}, {"kind": "ListenerSet", "name": "my-set"}]
        live.create(space, listener_set(), route("other", parentRefs=parents))
        live.say(space, "listenersets", "my-set", listeners("more"))
        await eventually(lambda: len(live.affected(space, "httproutes", "other")), 2)
        more = partial(live.status, space, "listenersets", "my-set")
        await eventually(lambda: AFFECTED in str(more()["listeners"]), expected=True)
        await settled(live, process, space)
        await same_as_offline(live)
        live.delete(space, f"httproutes.{GROUP}", "route")
        await eventually(lambda: live.reasons(space, "q"), {"Accepted": "TargetNotFound"})
        live.delete(space, "colorpolicies", "p")
        await eventually(lambda: live.affected(space, "httproutes", "other"), [])
        await settled(live, process, space)
        await same_as_offline(live)
        assert "Affected" not in str(live.status(space, "gateways", "my-gateway"))
        assert "Affected" not in str(more())


@pytest.mark.slow
async def test_an_unchanged_world_is_not_written_while_it_runs_nor_by_the_next_process(
    live: Live, space: str
) -> None:
    live.create(space, color("p", **BLUE), *(route(f"r{n}") for n in range(20)))
    with live.running() as process:
        await eventually(lambda: live.reasons(space, "p"), SOUND)
        await settled(live, process, space)
        before = live.writes()
        await asyncio.sleep(3.0)  # nothing is to happen: there is nothing to await
        assert live.writes() == before
        # What is nothing to us: a label of a ConfigMap, a heartbeat of somebody else's status.
        # Who does so again and again is let be: not that here.
        for number in range(2):
            said = [condition("Accepted", f"still {number}")]
            live.say(space, "gateways", "my-gateway", {"conditions": said} | listeners("none"))
            affected = partial(live.status, space, "gateways", "my-gateway")
            await eventually(lambda: AFFECTED in str(affected()), expected=True)  # noqa: B023 - at once
            await asyncio.sleep(1.0)
    left = live.writes()
    # The others' status was replaced whole, our conditions with it: they are put back, once each.
    assert {ask.name for ask in left[len(before) :]} == {"my-gateway"}
    assert len(left) - len(before) <= 2 * 2  # by an apply, or by one on what had changed again
    with live.running() as process:
        await eventually(lambda: readiness(process)["statuses"], "ok")
        await asyncio.sleep(2.0)
    assert live.writes() == left


@pytest.fixture
def wide(live: Live) -> Iterator[None]:
    """Let policies in a namespace target what lies in none."""
    annotate = ("annotate", "--overwrite", "crd", "colorpolicies.examples.kube-sync.io")
    live.stack.kubectl(*annotate, "kube-sync.io/targets-cluster-scoped=true")
    yield
    live.stack.kubectl(*annotate, "kube-sync.io/targets-cluster-scoped-")


@pytest.mark.slow
@pytest.mark.usefixtures("wide")
async def test_each_right_of_its_role_is_used_and_none_is_missing(live: Live, space: str) -> None:
    kinds = ("GRPCRoute", "TCPRoute", "TLSRoute", "UDPRoute")
    protocols = {"TCPRoute": "TCP", "UDPRoute": "UDP", "TLSRoute": "TLS"}
    tls = {"tls": {"mode": "Passthrough"}}
    ports = [
        listener(kind.lower(), port=90 + n, protocol=protocol, **(tls if protocol == "TLS" else {}))
        for n, (kind, protocol) in enumerate(protocols.items())
    ]
    backend = [{"backendRefs": [{"name": "service", "port": 80}]}]
    mark = live.asked(ACCOUNT, ADMIN)[-1].at
    live.create(
        space,
        allowing(gateway("all", listener(), *ports)),
        listener_set("more", listener("more", port=99), parent={"name": "all"}),
        route("through-set", parentRefs=[{"kind": "ListenerSet", "name": "more"}]),
        *(_route(kind, backend) for kind in kinds),
        color("above", target(name="all"), **BLUE),
        color("space", target("Namespace", NS), **BLUE),
        color("class", target("GatewayClass", "my-gateway-class"), **overrides("merge", c="red")),
    )
    with live.running():
        for name in ("all-grpcroute", "all-tcproute", "all-udproute", "all-tlsroute"):
            kind = f"{name[4:]}s.{GROUP}"
            await eventually(lambda: len(live.affected(space, kind, name)), 1)  # noqa: B023 - at once
        await eventually(lambda: len(live.affected(space, "namespaces", space)), 1)
        classes = partial(live.affected, space, "gatewayclasses", "my-gateway-class")
        await eventually(lambda: len(classes()), 1)
    asked = live.asked()
    # An API server that has just been started refuses everybody for a moment.
    assert [ask for ask in asked if ask.at > mark and ask.code in (401, 403)] == []
    used = {(ask.verb, ask.group, ask.resource) for ask in asked}
    # An apply that creates is a patch in the log, and needs both. Of BackendTLSPolicy there is no
    # object here; and what takes effect at rules affects no Service below.
    known = {
        ("create", "", "configmaps"),
        ("patch", "", "services/status"),
        ("patch", GROUP, "backendtlspolicies/status"),
    }
    assert _granted() - used == known
    assert {one for one in used if one[0] not in ("list", "watch", "get")} <= _granted()


def _route(kind: str, backend: list[Object]) -> Object:
    version = "v1" if kind == "GRPCRoute" else "v1alpha2"
    made = route(f"all-{kind.lower()}", kind, parentRefs=[{"name": "all"}], rules=backend)
    if kind == "TLSRoute":
        made["spec"]["hostnames"] = ["a.example.com"]
        version = "v1"
    return made | {"apiVersion": f"{GROUP}/{version}"}


def _granted() -> set[tuple[str, str, str]]:
    files = [
        ROOT / "manifests/topology-rbac/topology-clusterrole.yaml",
        ROOT / "manifests/topology-rbac/topology-coordination-role.yaml",
        ROOT / "manifests/examples/colorpolicy/topology-clusterrole.yaml",
        ROOT / "manifests/examples/colorpolicy/topology-status-clusterrole.yaml",
    ]
    return {
        (verb, group, resource)
        for file in files
        for rule in yaml.safe_load(file.read_text())["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


@pytest.mark.slow
@pytest.mark.timeout(240)
async def test_what_a_process_that_was_killed_left_undone_is_done_by_the_next_one(
    live: Live, space: str
) -> None:
    names = [f"p{number:03}" for number in range(150)]
    with live.running() as process:
        await eventually(lambda: readiness(process).get("lease"), "this process writes", 40)
        live.create(
            space,
            *(route(f"r-{name}") for name in names),
            *(color(name, target("HTTPRoute", f"r-{name}"), **BLUE) for name in names[:100]),
        )
        await eventually(lambda: len(live.written(space)) > 20, expected=True)
        process.kill()
    live.create(
        space, *(color(name, target("HTTPRoute", f"r-{name}"), **BLUE) for name in names[100:])
    )
    written = live.written(space)
    done = [name for name in names if written[name]]
    assert 0 < len(done) < len(names), "it was in the middle of it"
    with live.running("two") as process:  # once the Lease of the dead one is over
        await eventually(
            lambda: set(names) <= live.written(space).keys(), expected=True, seconds=120
        )
        await settled(live, process, space)
        await same_as_offline(live)
    # At most once: one may have been written whose answer came to nobody.
    written = live.written(space)
    assert max(written[name] for name in names) == 1
    # A route is told twice: that no policy applies on its path, and then that its own does.
    assert max(written[f"r-{name}"] for name in names) <= 2


@pytest.mark.slow
async def test_of_two_processes_one_writes_and_one_that_was_stopped_never_writes_again(
    live: Live, space: str
) -> None:
    """SIGSTOP for longer than the Lease lasts: when it goes on it believes that no time passed."""
    live.create(space, color("p", **BLUE))
    mark = live.asked(ACCOUNT, ADMIN)[-1].at
    with live.running("one") as first:
        await eventually(lambda: live.reasons(space, "p"), SOUND, 40)
        with live.running("two", live.stack.kubeconfigs["admin"]) as second:
            assert readiness(second)["lease"].endswith(" writes")
            assert readiness(second)["lease"] != "this process writes"
            process = first._process  # noqa: SLF001 - to stop it, SIGSTOP
            assert process is not None
            os.kill(process.pid, signal.SIGSTOP)
            try:
                live.create(space, color("q", **BLUE))
                await eventually(
                    lambda: bool(live.reasons(space, "q")), expected=True, seconds=_LEASE + 15
                )
            finally:
                os.kill(process.pid, signal.SIGCONT)
            live.create(space, color("r", **GREEN))
            await eventually(lambda: bool(live.reasons(space, "r")), expected=True)
            await eventually(lambda: readiness(first)["lease"].endswith("writes"), expected=True)
            await eventually(
                lambda: readiness(first)["lease"] != "this process writes", expected=True
            )
    writes = [ask for ask in _by_manager(live) if ask.at > mark]
    users = [ask.user for ask in writes]
    assert set(users) == {ACCOUNT, ADMIN}
    assert users == sorted(users, key=[ACCOUNT, ADMIN].index), "they took turns"


def _by_manager(live: Live) -> list[Ask]:
    """Return the writes of statuses and of the picture; the admin's own are by kubectl."""
    agents = {
        (entry["stageTimestamp"], entry["user"]["username"]): entry.get("userAgent", "")
        for entry in live.stack.audited()
    }
    return [
        ask
        for ask in live.writes(ACCOUNT, ADMIN)
        if not agents[ask.at, ask.user].startswith("kubectl")
    ]


async def test_what_another_controller_says_beside_stays_byte_for_byte(
    live: Live, space: str
) -> None:
    """Lists that are one value: each writes the whole of it, bound to what it has read."""
    live.create(space, color("p", **BLUE))

    def says(kind: str, name: str, field: str, reference: str, number: int) -> Object:
        """Read, change one's own entry, write; again where somebody was faster."""
        entry = {
            reference: {"group": GROUP, "kind": "Gateway", "name": "theirs", "namespace": space},
            "controllerName": "example.com/other",
            "conditions": [condition("Accepted", f"said {number}") | {"observedGeneration": 1}],
        }
        for _ in range(20):
            found = live.get(space, kind, name)
            status = found.setdefault("status", {})
            others = [e for e in status.get(field, []) if e["controllerName"] == OURS]
            status[field] = [entry, *others]
            try:
                path = live.stack.api.path(kind, f"{name}/status", space)
                live.stack.api.ask("PUT", path, found)
            except Exception as error:
                if "Conflict" not in str(error) and "modified" not in str(error):
                    raise
            else:
                return entry
        pytest.fail("there was no end of conflicts")

    with live.running() as process:
        for number in range(6):
            live.replace(space, color("p", rules=rules(**{f"c{number}": "blue"})))
            ancestor = await asyncio.to_thread(
                says, "colorpolicies", "p", "ancestors", "ancestorRef", number
            )
            parent = await asyncio.to_thread(
                says, f"httproutes.{GROUP}", "route", "parents", "parentRef", number
            )
        await eventually(lambda: live.reasons(space, "p"), SOUND)
        await settled(live, process, space)
        await eventually(lambda: len(live.affected(space, "httproutes", "route")), 1)
    policy = live.get(space, "colorpolicies", "p")
    theirs, ours = policy["status"]["ancestors"]
    assert theirs == ancestor
    assert {c["observedGeneration"] for c in ours["conditions"]} == {
        policy["metadata"]["generation"]
    }
    (kept, mine) = live.status(space, f"httproutes.{GROUP}", "route")["parents"]
    assert (kept, mine["controllerName"]) == (parent, OURS)


@asynccontextmanager
async def proxied(live: Live, folder: Path) -> AsyncGenerator[tuple[FaultProxy, Path]]:
    """A proxy before the API server, and the kubeconfig of the account by way of it."""
    authority = make_authority("fault proxy")
    ca_file = write_file(folder / "ca.crt", authority.cert_pem)
    write_pair(folder, "tls", issue(authority, "proxy", LOOPBACK))
    serve = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serve.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    reach = ssl.create_default_context(cafile=live.stack.apiserver_ca_file)
    upstream = int(live.stack.apiserver_url.rpartition(":")[2])
    async with FaultProxy(upstream, serve=serve, reach=reach) as proxy:
        url = f"https://127.0.0.1:{proxy.port}"
        yield proxy, write_kubeconfig(folder, "proxied", url, ca_file, live.token)


@pytest.mark.slow
async def test_a_list_that_fails_takes_nothing_back_and_is_told(
    live: Live, space: str, tmp_path: Path
) -> None:
    live.create(space, color("p", target("HTTPRoute", "route"), **BLUE))
    async with proxied(live, tmp_path) as (proxy, kubeconfig):
        # In a thread, since it waits for the proxy that this loop serves.
        context = live.running("proxied", kubeconfig)
        process = await asyncio.to_thread(context.__enter__)
        try:
            await eventually(lambda: live.reasons(space, "p"), SOUND, 40)
            proxy.reply(b"/httproutes?", reply(500), 10**6)
            proxy.cut(b"/httproutes?")
            note = f"topology of HTTPRoute.{GROUP}"
            await eventually(lambda: "500" in readiness(process)[note], expected=True, seconds=40)
            # Others go on, and what is known of routes stands.
            live.create(space, color("q", **GREEN))
            await eventually(lambda: bool(live.reasons(space, "q")), expected=True)
            assert live.reasons(space, "p") == SOUND
            assert len(live.affected(space, "httproutes", "route")) == 1
            live.create(space, route("late"))
            proxy.calm()
            await eventually(lambda: len(live.affected(space, "httproutes", "late")), 1, seconds=60)
            assert readiness(process)[note] == "ok"
        finally:
            await asyncio.to_thread(context.__exit__, None, None, None)


@pytest.mark.slow
async def test_a_kind_that_may_not_be_listed_at_the_start_takes_nothing_back(
    live: Live, space: str, tmp_path: Path
) -> None:
    """It is there, so what is said of it is so until somebody knows otherwise."""
    live.create(space, color("p", target("HTTPRoute", "route"), **BLUE))
    with live.running() as process:
        await eventually(lambda: live.reasons(space, "p"), SOUND, 40)
        await settled(live, process, space)
    async with proxied(live, tmp_path) as (proxy, kubeconfig):
        proxy.reply(b"/httproutes?", reply(403), 10**6)
        context = live.running("proxied", kubeconfig, ready=False)
        process = await asyncio.to_thread(context.__enter__)
        try:
            told = f"nothing is written before this is known: HTTPRoute.{GROUP} (403"
            await eventually(
                lambda: told in readiness(process).get("topology", ""), expected=True, seconds=60
            )
            live.create(space, color("q", target("HTTPRoute", "route"), **GREEN))
            assert live.reasons(space, "p") == SOUND
            assert f"{space}/route" in live.picture()
            proxy.calm()
            await eventually(lambda: bool(live.reasons(space, "q")), expected=True, seconds=60)
            assert live.reasons(space, "q")["Accepted"] == "Accepted"
            await eventually(
                lambda: told in readiness(process).get("topology", ""), expected=False, seconds=60
            )
        finally:
            await asyncio.to_thread(context.__exit__, None, None, None)


@pytest.mark.slow
async def test_an_api_server_that_is_started_anew_takes_nothing_back(
    live: Live, space: str
) -> None:
    live.create(space, color("p", target("HTTPRoute", "route"), **BLUE))
    with live.running() as process:
        await eventually(lambda: live.reasons(space, "p"), SOUND, 40)
        await settled(live, process, space)
        mark = len(live.writes())
        await asyncio.to_thread(live.stack.apiserver.kill)
        await asyncio.to_thread(live.stack.apiserver.start)
        await asyncio.to_thread(live.create, space, route("late"), color("q", **GREEN))
        await eventually(lambda: bool(live.reasons(space, "q")), expected=True, seconds=60)
        await eventually(lambda: len(live.affected(space, "httproutes", "late")), 1, seconds=60)
        await settled(live, process, space)
        await same_as_offline(live)
    names = [ask.name for ask in live.writes()[mark:] if ask.namespace == space]
    # The route is in `q` as well, so it is written once more; the policy loses one rule of its own.
    assert max(names.count(name) for name in ("p", "route")) <= 1


STATUS = {
    "type": "object",
    "properties": {
        "ancestors": {
            "type": "array",
            "x-kubernetes-list-type": "atomic",
            "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        }
    },
}
ANY = {"x-kubernetes-preserve-unknown-fields": True}
SHADE = definition(
    "Shade",
    OWN,
    "v1",
    labels=POLICY,
    schema={"type": "object", "properties": {"spec": ANY, "status": STATUS}},
)


def shade(name: str, spec: object) -> Object:
    metadata = {"name": name, "namespace": NS}
    return {"apiVersion": f"{OWN}/v1", "kind": "Shade", "metadata": metadata, "spec": spec}


def rights(*resources: str) -> list[Object]:
    return [
        {"apiGroups": [OWN], "resources": list(resources), "verbs": ["list", "watch"]},
        {"apiGroups": [OWN], "resources": [f"{r}/status" for r in resources], "verbs": ["patch"]},
    ]


@pytest.fixture
def shades(live: Live) -> Iterator[None]:
    """A kind of policies that takes whatever is in them."""
    live.permit(*live.rules(), *rights("shades"))
    yield
    live.permit(*live.rules())
    live.stack.kubectl(
        "delete", "crd", SHADE["metadata"]["name"], "--ignore-not-found", "--timeout=60s"
    )


def install(live: Live) -> None:
    live.stack.api.apply(SHADE)
    live.stack.api.await_kind(SHADE)


@pytest.fixture
def kuadrant(live: Live) -> Iterator[None]:
    """Kuadrant's limits and its own kind, as its operator releases them, without the operator."""
    kinds = [released_kind("kuadrant", kind) for kind in ("RateLimitPolicy", "Kuadrant")]
    names = [kind["metadata"]["name"] for kind in kinds]
    plurals = [kind["spec"]["names"]["plural"] for kind in kinds]
    reading = {"apiGroups": ["kuadrant.io"], "resources": plurals, "verbs": ["list", "watch"]}
    writing = {
        "apiGroups": ["kuadrant.io"],
        "resources": ["ratelimitpolicies/status"],
        "verbs": ["patch"],
    }
    live.permit(*live.rules(), reading, writing)
    for kind in kinds:
        live.stack.api.create(kind)
        live.stack.api.await_kind(kind)
    yield
    live.permit(*live.rules())
    live.stack.kubectl("delete", "crd", *names, "--timeout=60s")


@pytest.mark.usefixtures("kuadrant")
async def test_policies_of_kuadrant_hear_in_their_conditions_below_its_root(
    live: Live, space: str
) -> None:
    limits = {"all": {"rates": [{"limit": 5, "window": "1m"}]}}
    policy = made("kuadrant.io/v1/RateLimitPolicy", "p", {"targetRef": target(), "limits": limits})
    live.create(space, made("kuadrant.io/v1beta1/Kuadrant", "mine", {}), policy)
    own = {"statuses": ["RateLimitPolicy.kuadrant.io"], "roots": ["Kuadrant.kuadrant.io"]}

    def heard() -> dict[str, str]:
        conditions = live.status(space, "ratelimitpolicies", "p").get("conditions", [])
        return {one["type"]: one["reason"] for one in conditions}

    def paths() -> list[str]:
        parents = live.status(space, f"httproutes.{GROUP}", "route").get("parents", [])
        said = [c for parent in parents for c in parent["conditions"]]
        found = [c["message"] for c in said if c["type"] == "kube-sync.io/RateLimitPolicyPaths"]
        return [path for message in found for path in json.loads(message)]

    with live.running(topology=own) as process:
        await eventually(heard, {"Accepted": "Accepted", "Enforced": "Enforced"}, 40)
        begin = f"{space}/mine > my-gateway-class > {space}/my-gateway > "
        await eventually(lambda: [path.startswith(begin) for path in paths()], [True])
        await eventually(lambda: readiness(process)["statuses"], "ok")


@pytest.mark.slow
@pytest.mark.usefixtures("shades")
async def test_a_kind_of_policies_comes_and_goes(live: Live, space: str) -> None:
    with live.running() as process:
        await eventually(lambda: readiness(process).get("lease"), "this process writes", 40)
        install(live)
        live.create(space, shade("s", {"targetRef": target(), **BLUE}))
        await eventually(lambda: live.reasons(space, "s", "shades"), SOUND)
        status = "kube-sync.io/ShadeAffected"
        await eventually(
            lambda: status in str(live.status(space, "gateways", "my-gateway")), expected=True
        )
        live.stack.kubectl("delete", "crd", SHADE["metadata"]["name"], "--timeout=60s")
        await eventually(
            lambda: status in str(live.status(space, "gateways", "my-gateway")), expected=False
        )
        await eventually(
            lambda: f"topology of Shade.{OWN}" in readiness(process), expected=False, seconds=60
        )


@pytest.mark.usefixtures("shades")
async def test_malformed_policies_hear_of_it_and_hinder_no_other(live: Live, space: str) -> None:
    install(live)
    odd: list[object] = [
        None,
        {},
        "text",
        7,
        [],
        {"targetRef": "text"},
        {"targetRef": {"kind": 7, "name": None}},
        {"targetRefs": {"a": 1}},
        {"targetRefs": [None, "text"]},
        {"targetRef": target(), "defaults": {"rules": {}}, "overrides": {"rules": {}}},
        {"targetRef": target(), "defaults": [1]},
        {"targetRef": target(name="x" * 400), **BLUE},
    ]
    live.create(
        space,
        *(shade(f"odd-{number:02}", spec) for number, spec in enumerate(odd)),
        shade("sound", {"targetRef": target(), **BLUE}),
        color("p", **BLUE),
    )
    with live.running() as process:
        await eventually(lambda: live.reasons(space, "sound", "shades"), SOUND, 40)
        await eventually(lambda: live.reasons(space, "p"), SOUND)
        wanted = {f"odd-{number:02}": "Invalid" for number in range(len(odd))}
        wanted |= {max(wanted): "TargetNotFound"}
        await eventually(partial(_accepted, live, space), wanted)
        await eventually(lambda: readiness(process)["statuses"], "ok")


def _accepted(live: Live, space: str) -> dict[str, str]:
    """Return the reason of `Accepted` of each odd policy."""
    found = live.stack.api.get("shades", namespace=space)
    return {
        body["metadata"]["name"]: one["reason"]
        for body in found["items"]
        for entry in body.get("status", {}).get("ancestors", [])
        for one in entry["conditions"]
        if one["type"] == "Accepted" and body["metadata"]["name"].startswith("odd")
    }


@pytest.mark.slow
@pytest.mark.usefixtures("shades")
async def test_a_kind_that_may_not_be_read_hinders_no_other(live: Live, space: str) -> None:
    install(live)
    live.permit(*live.rules())
    live.create(space, shade("s", {"targetRef": target(), **BLUE}), color("p", **BLUE))
    note = f"topology of Shade.{OWN}"
    with live.running() as process:
        await eventually(lambda: live.reasons(space, "p"), SOUND, 40)
        await eventually(lambda: readiness(process)["statuses"], "ok")
        said = readiness(process)
        assert f"shades.{OWN} is forbidden" in said[note]
        assert said["statuses"] == "ok"
        assert live.reasons(space, "s", "shades") == {}
        # The right comes while it runs.
        live.permit(*rights("shades"), *live.rules())
        await eventually(lambda: live.reasons(space, "s", "shades"), SOUND, 60)
        assert readiness(process)[note] == "ok"


@pytest.mark.slow
@pytest.mark.usefixtures("shades")
async def test_a_status_that_may_not_be_written_is_told_and_hinders_no_other(
    live: Live, space: str
) -> None:
    install(live)
    live.permit(rights("shades")[0], *live.rules())
    live.create(space, shade("s", {"targetRef": target(), **BLUE}), color("p", **BLUE))
    with live.running() as process:
        await eventually(lambda: live.reasons(space, "p"), SOUND, 40)
        told = f"shade.{OWN}:{space}/s: 403"
        await eventually(lambda: told in readiness(process).get("statuses", ""), expected=True)
        live.create(space, color("q", target("HTTPRoute", "route"), **GREEN))
        await eventually(lambda: bool(live.reasons(space, "q")), expected=True, seconds=30)


@pytest.mark.slow
async def test_seventeen_gateways_are_sixteen_entries_that_say_so(live: Live, space: str) -> None:
    names = [f"gw-{number:02}" for number in range(17)]
    live.create(
        space,
        *(gateway(name) for name in names),
        route("wide", parentRefs=[{"name": name} for name in names]),
        color("p", target("HTTPRoute", "wide"), **BLUE),
    )
    with live.running():
        entries = partial(_ancestors, live, space)
        await eventually(lambda: len(entries()), 16, 40)
    assert [entry["ancestorRef"]["name"] for entry in entries()] == names[:16]
    for entry in entries():
        said = {one["type"]: one["message"] for one in entry["conditions"]}
        assert said["kube-sync.io/Truncated"].endswith(f"[{space}/gw-16]")


def _ancestors(live: Live, space: str) -> list[Any]:
    found: list[Any] = live.status(space, "colorpolicies", "p").get("ancestors", [])
    return found
