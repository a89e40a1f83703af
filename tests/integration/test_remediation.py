"""The remediator as a process on a real API server, whose audit log is the witness.

What decides is a stand-in: the remediator knows nothing of an engine but its stream.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from kube_sync.config import Kubernetes
from kube_sync.decisions.decision import REQUESTED, Decision
from kube_sync.decisions.records import Budget
from kube_sync.errors import Conflict, NotFound, Terminal
from kube_sync.guard import HISTORY
from kube_sync.kube.client import kube_client
from kube_sync.kube.meta import Amend, Apply
from kube_sync.kube.patch import amend_metadata, apply_metadata
from kube_sync.objects import ObjectKey
from kube_sync.remediation.statuspage import APPLY, STATUS
from tests.commandline import kube_sync
from tests.eventually import eventually
from tests.fakes.clients import REPLICASETS
from tests.fakes.standin import StandIn, stand_in
from tests.integration.webhook_world import deeply_managed
from tools.demo.components import GUARD_OFF, UNBRAKED, start_service
from tools.demo.fleet import PREFERENCES, cluster, replica_set
from tools.servers.http import get
from tools.servers.processes import ProcessServer
from tools.servers.running import free_port
from tools.servers.stack import RunningStack

MANAGER = "kube-sync-remediator"


def _place(*clusters: str) -> str:
    return json.dumps({"clusters": {name: {"weight": 1} for name in clusters}})


class World:
    """An API server, decisions that a test makes, and remediators that carry them out."""

    def __init__(self, stack: RunningStack, engine: StandIn, namespace: str, folder: Path) -> None:
        self.stack, self.engine, self.namespace, self.folder = stack, engine, namespace, folder
        assert stack.audit_log is not None
        self._before = stack.audit_log.stat().st_size
        self.uids: dict[str, str] = {}
        self.page = ""  # of the remediator that was started last

    def create(self, name: str, **annotations: str) -> str:
        manifest = replica_set(name)
        manifest["metadata"] |= {"namespace": self.namespace, "annotations": annotations}
        self.uids[name] = uid = self.stack.api.create(manifest)["metadata"]["uid"]
        return str(uid)

    def create_all(self, names: list[str], **annotations: str) -> None:
        for name in names:
            self.create(name, **annotations)

    def scale(self, replicas: int, *names: str) -> None:
        change = {"spec": {"replicas": replicas}}
        for name in names:
            self.stack.api.merge("replicasets", name, change, self.namespace)

    def metadata(self, name: str) -> Any:
        return self.stack.api.get("replicasets", name, self.namespace)["metadata"]

    def annotations(self, name: str) -> dict[str, str]:
        found = self.metadata(name).get("annotations") or {}
        return {key: value for key, value in found.items() if key not in (REQUESTED, HISTORY)}

    def labels(self, name: str) -> dict[str, str]:
        found: dict[str, str] = self.metadata(name).get("labels") or {}
        return {key: value for key, value in found.items() if key != "app"}

    async def decide(self, name: str, decision: Decision | None, uid: str = "") -> None:
        await self.engine.decide((self.namespace, name, uid or self.uids[name], decision))

    def waiting(self) -> Any:
        """What the remediator says that it holds."""
        return json.loads(get(self.page + STATUS).body)["waiting"]

    def writes(self, user: str = MANAGER) -> Counter[tuple[str, int]]:
        """How often each object was patched in this test, and with which answer."""
        return Counter(
            (line["objectRef"]["name"], line["responseStatus"]["code"])
            for line in self.stack.audited(user, since=self._before)
            if line["verb"] == "patch"
            and line["objectRef"]["resource"] == "replicasets"
            and line["objectRef"]["namespace"] == self.namespace
            and line["user"]["username"].endswith(user)
        )

    @asynccontextmanager
    async def remediator(
        self,
        name: str = "one",
        role: str = "remediator",
        *,
        lease_in: str = "kube-sync",
        ready: str = "/readyz",
        **remediate: Any,
    ) -> AsyncGenerator[ProcessServer]:
        """Run a remediator; it writes as a role of its own where there are two."""
        listen = f"127.0.0.1:{free_port()}"
        self.page = f"http://{listen}"
        section: dict[str, Any] = {**UNBRAKED, **remediate}
        # Most places that are decided here are no clusters; test_pair.py compares them.
        section["guard"] = {"known_clusters": False, **section["guard"]}
        configuration: dict[str, object] = {
            "kubernetes": {"kubeconfig": str(self.stack.kubeconfigs[role])},
            "decisions": {"url": self.engine.url},
            "remediate": {**section, "listen": listen},
            "coordination": {"namespace": lease_in},
        }
        if role == "admin":  # the remediator's role reads no ConfigMaps but of its own policies
            configuration["policies"] = {"namespaces": [self.namespace]}
        # In a thread, since it waits for the stream that this loop serves.
        started = await asyncio.to_thread(
            partial(start_service, "remediate", self.folder / name, configuration, ready=ready)
        )
        assert isinstance(started, ProcessServer)
        try:
            yield started
        finally:
            await asyncio.to_thread(started.stop)


@pytest.fixture
async def world(stack: RunningStack, namespace: str, tmp_path: Path) -> AsyncGenerator[World]:
    fleet = cluster("east", "europe-west1", "2")
    fleet["metadata"]["namespace"] = namespace
    stack.api.create(fleet)
    async with stand_in() as engine:
        yield World(stack, engine, namespace, tmp_path)


async def test_a_decision_is_carried_out_once_and_taken_back_in_one_patch(world: World) -> None:
    world.create("web", mine="1", kept="k")
    async with world.remediator():
        await world.decide("web", Decision({"mine": "2", "new": "3"}))
        await eventually(lambda: world.annotations("web"), {"mine": "2", "kept": "k", "new": "3"})
        await world.decide("web", Decision({"new": "4"}))
        await eventually(lambda: world.annotations("web"), {"mine": "1", "kept": "k", "new": "4"})
        await world.decide("web", None)
        await world.decide("web", Decision())
        await eventually(lambda: world.annotations("web"), {"mine": "1", "kept": "k"})
        assert REQUESTED not in world.metadata("web")["annotations"]
    assert world.writes() == {("web", 200): 3}


@pytest.mark.slow
async def test_what_came_by_a_json_patch_is_taken_back_when_it_is_not_decided_any_more(
    world: World,
) -> None:
    """A key that goes makes it one; what else it sets is the remediator's, by an update."""
    world.create("web", mine="1")
    world.stack.api.label("replicasets", "web", world.namespace, kept="k")
    async with world.remediator():
        await world.decide("web", Decision({"mine": "2"}))
        await eventually(lambda: world.annotations("web"), {"mine": "2"})
        await world.decide("web", Decision({"new": "3"}, labels={"tier": "gold"}))
        await eventually(lambda: world.annotations("web"), {"mine": "1", "new": "3"})
        assert world.labels("web") == {"kept": "k", "tier": "gold"}
        owners = {(m["manager"], m["operation"]) for m in world.metadata("web")["managedFields"]}
        assert (MANAGER, "Update") in owners
        await world.decide("web", Decision())
        await eventually(lambda: world.annotations("web"), {"mine": "1"})
        assert world.labels("web") == {"kept": "k"}
    assert world.writes() == {("web", 200): 3}


@pytest.mark.slow
async def test_object_with_deep_managed_fields_is_moved_like_any_other(world: World) -> None:
    """Its owner can write them; else it would stay where a policy does not want it any more."""
    manifest = replica_set("web")
    manifest["metadata"] |= {"namespace": world.namespace, "annotations": {"mine": "1"}}
    path = f"/apis/apps/v1/namespaces/{world.namespace}/replicasets"
    world.stack.kubectl("create", f"--raw={path}", "-f", "-", stdin=deeply_managed(manifest))

    def told(what: str) -> str:  # Python's own JSON reads no managedFields so deep
        where = (f"--namespace={world.namespace}", f"--output=jsonpath={{.metadata.{what}}}")
        return world.stack.kubectl("get", "replicaset", "web", *where)

    async with world.remediator():
        await world.decide("web", Decision({"mine": "2", "new": "3"}), told("uid"))
        await eventually(lambda: '"new":"3"' in told("annotations"), expected=True)


@pytest.mark.slow
async def test_clusters_that_only_an_owner_named_make_no_fleet_that_shrank(world: World) -> None:
    """The placement of what no policy decides is what its owner wrote."""
    world.create("forged", **{PREFERENCES: _place(*(f"no-such-{number}" for number in range(50)))})
    world.create("web", **{PREFERENCES: _place("east")})
    guard = {**GUARD_OFF, "shrink_share": 0.3}
    async with world.remediator(guard=guard):
        await world.decide("forged", None)
        await world.decide("web", Decision({PREFERENCES: _place("west")}))
        await eventually(lambda: world.annotations("web"), {PREFERENCES: _place("west")})
    # What a policy gave counts, and of that some are gone.
    world.create("placed", **{PREFERENCES: _place("a", "b", "east")})
    await world.decide("placed", Decision({PREFERENCES: _place("east")}))
    async with world.remediator(guard=guard):
        page = f"{world.page}/v1/remediation/status"
        await eventually(lambda: b"1 of 4 clusters are left" in get(page).body, expected=True)


@pytest.mark.slow
async def test_a_label_is_set_and_taken_back_alone(world: World) -> None:
    world.create("web", mine="1")
    async with world.remediator():
        await world.decide("web", Decision({"mine": "2"}, labels={"tier": "gold", "zone": "z"}))
        await eventually(lambda: world.labels("web"), {"tier": "gold", "zone": "z"})
        await world.decide("web", Decision(labels={"tier": "iron"}))
        await eventually(lambda: world.labels("web"), {"tier": "iron"})
        await world.decide("web", Decision())
        await eventually(lambda: world.labels("web"), {})
        assert world.annotations("web") == {"mine": "1"}


@pytest.mark.slow
async def test_an_engine_lets_a_move_wait_and_go_for_a_remediator_that_was_restarted(
    world: World,
) -> None:
    for name in ("waits", "goes"):
        world.create(name, **{PREFERENCES: _place("a", "b")})
    waits = f"{world.namespace}/waits"
    await world.engine.limit(Budget({"not_before": {waits: 4102444800}}))
    for name in ("waits", "goes"):
        await world.decide(name, Decision({PREFERENCES: _place("a")}))
    for name in ("one", "two"):
        async with world.remediator(name):
            # Decided last: what is before it in the stream was taken in when this is done.
            await world.decide("goes", Decision({PREFERENCES: _place("a"), "seen": name}))
            expected = {PREFERENCES: _place("a"), "seen": name}
            await eventually(partial(world.annotations, "goes"), expected)
            assert world.annotations("waits") == {PREFERENCES: _place("a", "b")}
            if name == "two":
                await world.engine.limit(None)
                await eventually(lambda: world.annotations("waits"), {PREFERENCES: _place("a")})


@pytest.mark.slow
async def test_what_has_no_owner_is_taken_back_too(world: World) -> None:
    """As the webhook leaves it: the value of a policy, and the note of what was asked for."""
    noted = {"place": "eu", "other": "x", REQUESTED: '{"place":"us","other":null}'}
    world.create("web", **noted)
    async with world.remediator():
        await world.decide("web", Decision())
        await eventually(lambda: world.annotations("web"), {"place": "us"})
    assert world.writes() == {("web", 200): 1}


async def test_a_key_that_policies_are_not_known_to_decide_is_refused_and_told(
    world: World,
) -> None:
    """By the ValidatingAdmissionPolicy beside the remediator's role, which lists the keys."""
    world.create("web")
    world.create("other")
    async with world.remediator():
        await world.decide("web", Decision({"not-on-the-list": "1"}))
        await world.decide("other", Decision({"a": "1"}))
        await eventually(lambda: world.annotations("other"), {"a": "1"})
        told = "ValidatingAdmissionPolicy kube-sync-remediator): not-on-the-list"
        events = partial(world.stack.api.get, "events", namespace=world.namespace)
        await eventually(lambda: told in json.dumps(events()), expected=True)
    assert world.annotations("web") == {}


@pytest.mark.slow
async def test_an_object_that_was_recreated_is_not_taken_for_the_one_before(world: World) -> None:
    old = world.create("web")
    world.stack.api.delete("replicasets", "web", world.namespace)
    world.create("web")
    world.create("other")
    async with world.remediator():
        await world.decide("web", Decision({"a": "1"}), uid=old)
        await world.decide("other", Decision({"a": "1"}))
        await eventually(lambda: world.annotations("other"), {"a": "1"})
        assert world.annotations("web") == {}
    assert world.writes() == {("other", 200): 1}


@pytest.mark.slow
async def test_of_two_remediators_one_writes_each_object_once(world: World) -> None:
    names = [f"web-{n}" for n in range(20)]
    for name in names:
        world.create(name)
    async with world.remediator("one"), world.remediator("two"):
        for name in names:
            await world.decide(name, Decision({"a": "1"}))
        await eventually(lambda: len(world.writes()), len(names))
    assert world.writes() == {(name, 200): 1 for name in names}


@pytest.mark.slow
async def test_a_stalled_leader_writes_nothing_once_another_has_taken_over(world: World) -> None:
    """SIGSTOP for longer than the Lease lasts: when it goes on it believes that no time passed."""
    for name in ("before", "meanwhile", "after"):
        world.create(name)
    async with world.remediator("one") as first:
        await world.decide("before", Decision({"a": "1"}))
        await eventually(lambda: world.annotations("before"), {"a": "1"})
        async with world.remediator("two", role="admin"):
            process = first._process  # noqa: SLF001 - to stop it, SIGSTOP
            assert process is not None
            os.kill(process.pid, signal.SIGSTOP)
            try:
                await world.decide("meanwhile", Decision({"a": "2"}))
                await eventually(lambda: world.annotations("meanwhile"), {"a": "2"}, 40)
            finally:
                os.kill(process.pid, signal.SIGCONT)
            await world.decide("after", Decision({"a": "3"}))
            await eventually(lambda: world.annotations("after"), {"a": "3"})
            await eventually(lambda: "lease_lost" in first.logs(), expected=True)
    assert world.writes() == {("before", 200): 1}


def _applied(world: World) -> dict[str, int]:
    """Count the writes that came through; by a conflict the next one learns of a last one.

    Of a request that the end of its client cut off (504) the object itself tells.
    """
    killed, other = world.writes(), world.writes("admin")
    assert {code for _, code in killed} <= {200, 409, 504}
    assert {code for _, code in other} <= {200, 409}
    applied = {name: times for (name, code), times in (killed + other).items() if code == 200}
    cut = {name for name, code in killed if code == 504} - applied.keys()
    return applied | {name: 1 for name in cut if world.annotations(name) == {"a": "1"}}


@pytest.mark.slow
async def test_what_a_leader_that_died_left_undone_is_done_by_the_next_one(world: World) -> None:
    names = [f"web-{n}" for n in range(300)]
    world.create_all(names)
    async with world.remediator("one") as first, world.remediator("two", role="admin"):
        decided = [(world.namespace, n, world.uids[n], Decision({"a": "1"})) for n in names]
        await world.engine.decide(*decided[:200])
        await eventually(lambda: len(world.writes()) > 5, expected=True)
        first.kill()
        done = world.writes()
        assert 5 < len(done) < len(names), "it was in the middle of it"
        await world.engine.decide(*decided[200:])
        await eventually(lambda: len(_applied(world)), len(names), 80)
    assert _applied(world) == dict.fromkeys(names, 1)


@pytest.mark.slow
async def test_who_keeps_changing_an_object_back_gets_it(world: World) -> None:
    world.create("web", a="theirs")
    async with world.remediator():
        await world.decide("web", Decision({"a": "ours"}))
        for _ in range(3):
            await eventually(lambda: world.annotations("web")["a"], "ours")
            world.stack.api.annotate("replicasets", "web", {"a": "theirs"}, world.namespace)

        def events() -> list[str]:
            found = world.stack.api.get("events.events.k8s.io", namespace=world.namespace)
            return [event["reason"] for event in found["items"]]

        await eventually(events, ["RemediationRival"])
        assert world.annotations("web")["a"] == "theirs"
    assert world.writes() == {("web", 200): 3}


async def test_a_workload_moves_when_the_policy_says_so_and_is_never_emptied(world: World) -> None:
    world.create("web", **{PREFERENCES: _place("east", "west")})
    world.create("other", **{PREFERENCES: _place("east", "west")})
    async with world.remediator():
        await world.decide("web", Decision({PREFERENCES: _place()}))
        await world.decide("other", Decision({PREFERENCES: _place("west")}))
        await eventually(lambda: world.annotations("other"), {PREFERENCES: _place("west")})
        assert world.annotations("web") == {PREFERENCES: _place("east", "west")}
    assert world.writes() == {("other", 200): 1}


@pytest.mark.slow
async def test_a_test_that_fails_is_told_from_a_value_that_is_refused(world: World) -> None:
    """Both are 422: one passes when the object is read again, the other never does."""
    uid = world.create("web", a="1")
    version, name = world.metadata("web")["resourceVersion"], ObjectKey(world.namespace, "web")
    async with kube_client(Kubernetes(str(world.stack.kubeconfigs["remediator"]))) as client:
        for stale in (Amend(uid, {"a": None}, {}, "1"), Amend("other", {"a": None}, {}, version)):
            with pytest.raises(Conflict):
                await amend_metadata(client, REPLICASETS, name, stale, MANAGER)
        refused = Amend(uid, {"a": "x" * 300_000}, {}, version)
        with pytest.raises(Terminal, match="Too long"):
            await amend_metadata(client, REPLICASETS, name, refused, MANAGER)
        await amend_metadata(
            client, REPLICASETS, name, Amend(uid, {"a": None}, {}, version), MANAGER
        )
        wanted, gone = Apply("other", {"a": "1"}), ObjectKey(world.namespace, "gone")
        with pytest.raises(NotFound):
            await apply_metadata(client, REPLICASETS, "ReplicaSet", name, wanted, MANAGER)
        with pytest.raises(NotFound):
            await apply_metadata(client, REPLICASETS, "ReplicaSet", gone, wanted, MANAGER)
    assert world.annotations("web") == {}


async def test_held_moves_are_told_approved_and_carried_out(world: World) -> None:
    """A mass of moves; the person who approves has rights on the policy, not on the workloads."""
    names = [f"web-{n}" for n in range(3)]
    for name in names:
        world.create(name, **{PREFERENCES: _place("east", "west")})
    policy = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"p.rego": "package p"}}
    policy["metadata"] = {"name": "policy", "namespace": world.namespace}
    world.stack.api.create(policy)
    guard = {**UNBRAKED["guard"], "mass_share": 0, "mass_floor": 2}  # type: ignore[dict-item]
    async with world.remediator(role="admin", guard=guard) as remediator:
        file = remediator.spec.folder / "config.yaml"

        async def ask(*arguments: str) -> str:
            return await asyncio.to_thread(_cli, file, *arguments)

        status = json.loads(await ask("status", "--json"))
        assert (status["active"], status["waiting"]) == (True, [])
        target = [(world.namespace, n, world.uids[n], _west()) for n in names]
        await world.engine.decide(*target)

        await eventually(lambda: len(world.waiting()), len(names))
        waiting = json.loads(await ask("status", "--json"))["waiting"]
        assert {one["kind"] for one in waiting} == {"mass"}
        assert "3 of 3 workloads of namespace" in await ask("status")
        (approve,) = {one["approve"] for one in waiting}
        assert f"approved on ConfigMap {world.namespace}/policy" in await ask("approve", approve)
        for name in names:
            await eventually(partial(world.annotations, name), {PREFERENCES: _place("west")})
        await eventually(world.waiting, [])
    assert set(world.writes("admin").values()) == {1}


@pytest.mark.slow
async def test_a_person_lets_through_what_waits_for_one(world: World) -> None:
    world.create("web")
    world.create("other")
    async with world.remediator(mode="manual") as remediator:
        await world.engine.decide(
            *((world.namespace, n, world.uids[n], Decision({"a": "1"})) for n in world.uids)
        )
        file = remediator.spec.folder / "config.yaml"
        await eventually(lambda: len(world.waiting()), 2)
        said = await asyncio.to_thread(_cli, file, "apply", "web", "-n", world.namespace)
        assert said == f"{world.namespace}/web: let through\n"
        await eventually(lambda: world.annotations("web"), {"a": "1"})
        assert "other" in await asyncio.to_thread(_cli, file, "status")
    assert world.writes() == {("web", 200): 1}


def _west() -> Decision:
    return Decision({PREFERENCES: _place("west")})


def _cli(file: Path, *arguments: str) -> str:
    finished = kube_sync("remediate", *arguments, "--config", str(file))
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


# What a page can make a browser on this machine send, and the answer.
_OF_A_PAGE = (
    ({"Origin": "https://evil", "Content-Type": "text/plain"}, 403),
    ({"Content-Type": "text/plain"}, 415),
    ({"Host": "evil.example", "Content-Type": "application/json"}, 403),
)


async def test_web_page_that_asks_for_everything_moves_nothing(world: World) -> None:
    """Where no token is configured."""
    world.create("web", mine="1")
    async with world.remediator(mode="manual"), aiohttp.ClientSession() as browser:
        await world.decide("web", Decision({"mine": "2"}))

        async def status(**headers: str) -> tuple[int, str]:
            async with browser.get(world.page + STATUS, headers=headers) as answer:
                return answer.status, await answer.text()

        await eventually(status, lambda answer: '"kind":"manual"' in answer[1])
        for sent, code in _OF_A_PAGE:
            apply = browser.post(world.page + APPLY, data='{"all":true}', headers=sent)
            async with apply as answer:
                assert answer.status == code
        assert (await status(Host="evil.example"))[0] == 403
        assert '"kind":"manual"' in (await status())[1], "it waits yet"
    assert world.annotations("web") == {"mine": "1"}
    assert not world.writes()


@pytest.mark.slow
async def test_remediator_without_the_namespace_of_its_lease_is_not_ready_until_it_is_made(
    world: World,
) -> None:
    world.create("web", mine="1")
    space = f"{world.namespace}-lease"
    async with world.remediator(role="admin", lease_in=space, ready="/livez") as process:
        await world.decide("web", Decision({"mine": "2"}))

        def unready() -> bool:
            answer = get(f"{process.url}/readyz")
            said = answer.body.decode()
            return answer.status == 503 and f"kubectl create namespace {space}" in said

        await eventually(unready, expected=True)
        assert get(f"{process.url}/livez").status == 200
        assert world.annotations("web") == {"mine": "1"}
        world.stack.api.create_namespace(space)
        try:
            await eventually(lambda: get(f"{process.url}/readyz").status, 200)
            await eventually(lambda: world.annotations("web"), {"mine": "2"})
        finally:
            world.stack.api.delete("namespaces", space)


@pytest.mark.slow
async def test_remediator_that_may_have_no_lease_names_the_roles_to_apply(world: World) -> None:
    async with world.remediator(lease_in=world.namespace, ready="/livez") as process:
        await eventually(
            lambda: "kubectl apply -k manifests/base" in get(f"{process.url}/readyz").body.decode(),
            expected=True,
        )
        assert get(f"{process.url}/readyz").status == 503


async def test_mass_of_one_tenant_leaves_others_and_workloads_without_replicas_alone(
    world: World,
) -> None:
    """Its workloads without replicas neither raise its share nor wait for an approval."""
    tenant = [f"mass{number}" for number in range(12)]
    idle = [f"idle{number}" for number in range(60)]
    west = {PREFERENCES: _place("west")}
    east = {PREFERENCES: _place("east")}
    world.create_all([*tenant, *idle], **west)
    world.scale(0, *idle)
    neighbour = World(world.stack, world.engine, f"{world.namespace}-b", world.folder)
    world.stack.api.create_namespace(neighbour.namespace)
    try:
        neighbour.create_all(["web"], **west)
        for name in [*tenant, "idle0"]:
            await world.decide(name, Decision(east))
        await neighbour.decide("web", Decision(east))
        guard = {**GUARD_OFF, "mass_share": 0.2, "mass_floor": 10}
        async with world.remediator(guard=guard), aiohttp.ClientSession() as person:
            await eventually(lambda: neighbour.annotations("web"), east)
            await eventually(lambda: world.annotations("idle0"), east)
            async with person.get(world.page + STATUS) as answer:
                waiting = (await answer.json())["waiting"]
            assert {one["name"] for one in waiting} == set(tenant)
            (reason,) = {one["reason"] for one in waiting}
            assert reason == f"12 of 12 workloads of namespace {world.namespace} would move"
            assert world.annotations("mass0") == west
    finally:
        world.stack.api.delete("replicasets", "web", neighbour.namespace)
        world.stack.api.delete("namespaces", neighbour.namespace)
