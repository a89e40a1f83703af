"""A fleet on real servers, with a replicator and a remediator, and what a plan says of it.

All that follows from an edit has come when each workload's decision was told as OPA answers for it
now, and what is left to write, by the remediator's own comparison, waits for a reason that it
tells. Clusters come to OPA in order, so one of them, whose label names a turn, tells when OPA has
all of them; no workload could: one that changes itself is decided before those of a sweep, and
several are written at once.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from benchmarks.bare import Bare, bare_client
from kube_sync.config import Decisions, Settings, load_settings
from kube_sync.decisions.decision import REQUESTED, Decision, parse_decision
from kube_sync.decisions.records import DecisionRecord
from kube_sync.decisions.streamclient import stream_client
from kube_sync.errors import Undecided
from kube_sync.guard import HISTORY
from kube_sync.inspect.plan import command
from kube_sync.inspect.plan.request import Request
from kube_sync.inspect.survey.progress import Progress
from kube_sync.kube.collection import Event, Item
from kube_sync.objects import ObjectKey
from kube_sync.remediation.holds import changes_of
from kube_sync.remediation.plan import Current, Wanted, Write, plan
from kube_sync.remediation.statuspage import STATUS
from kube_sync.remediation.targets import Targets
from tests.fakes.decided import MADE_UP, let_decide
from tests.faults.world import until
from tests.integration.planning_edits import NOTHING, TURNS, State, profile, start, workload
from tools.demo.components import UNBRAKED, start_replicator, start_service
from tools.demo.fleet import FLEET, POLICIES, PREFERENCES, SHOP, namespace
from tools.servers.files import write_file
from tools.servers.running import Launcher, free_port
from tools.servers.stack import RunningStack, furnished_stack

_SETS = "/apis/apps/v1/namespaces/{}/replicasets"
_PROFILES = "/apis/multicluster.x-k8s.io/v1alpha1/namespaces/{}/clusterprofiles"
_MAPS = f"/api/v1/namespaces/{POLICIES}/configmaps"
OWN = frozenset({REQUESTED, HISTORY})  # what the remediator notes for itself
_AT_ONCE = 16
_DECISION = "io/k8s/federation/admission"
_STAGED = {"kube-sync.io/stage": "candidate"}


@dataclass(frozen=True, slots=True)
class Seen:
    """One workload as the API server has it, without what the remediator notes for itself."""

    annotations: tuple[tuple[str, str], ...]
    labels: tuple[tuple[str, str], ...]

    @property
    def on(self) -> tuple[str, ...]:
        """The clusters that it may run on."""
        text = dict(self.annotations).get(PREFERENCES)
        return tuple(sorted(json.loads(text)["clusters"])) if text else ()


@dataclass
class Servers:
    """What outlives the tests of a module."""

    stack: RunningStack
    config: Path  # of a plan: the replicator's rights, which may write no workload and no policy
    remediation: str  # where the remediator tells what it is doing
    state: State = NOTHING
    turn: int = 0

    def settings(self) -> Settings:
        return load_settings(str(self.config), {})


@contextmanager
def planning_servers(launcher: Launcher, folder: Path) -> Iterator[Servers]:
    """Run all servers, and the services that carry out what is decided."""
    with furnished_stack(launcher, folder / "stack") as stack:
        let_decide(stack, *MADE_UP)
        configuration = {
            "kubernetes": {"kubeconfig": str(stack.kubeconfigs["replicator"])},
            "opa": stack.opa_settings(),
            "remediate": dict(UNBRAKED),
        }
        file = write_file(folder / "plan.yaml", yaml.safe_dump(configuration).encode())
        replicator = start_replicator(stack, folder / "replicator")
        address = f"127.0.0.1:{free_port()}"
        remediate = {"listen": address, **UNBRAKED}
        carried_out_by: dict[str, object] = {
            "kubernetes": {"kubeconfig": str(stack.kubeconfigs["remediator"])},
            "decisions": stack.endpoint.client(),
            "remediate": remediate,
        }
        remediator = start_service("remediate", folder / "remediator", carried_out_by)
        try:
            yield Servers(stack, file, f"http://{address}{STATUS}")
        finally:
            remediator.stop()
            replicator.stop()


@dataclass
class World:
    """The servers, and what the decision stream says."""

    servers: Servers
    bare: Bare
    said: dict[str, DecisionRecord] = field(default_factory=dict)  # by namespace/name

    async def fill(self, number: int) -> None:
        """Create namespaces, so many workloads, and what edits begin with."""
        for name in (FLEET, SHOP, TURNS):
            await self.bare.kube("POST", "/api/v1/namespaces", namespace(name))
        gate = asyncio.Semaphore(_AT_ONCE)

        async def create(manifest: dict[str, Any]) -> None:
            async with gate:
                path = _SETS.format(manifest["metadata"]["namespace"])
                await self.bare.kube("POST", path, manifest)

        await asyncio.gather(*map(create, map(workload, range(number))))
        ours = profile(TURNS, {"turn": "0"})
        ours["metadata"]["namespace"] = TURNS
        await self.bare.kube("POST", _PROFILES.format(TURNS), ours)
        await self.become(start())

    async def become(self, state: State) -> None:
        """Make the edits for real that lead to another state, and wait until all has come."""
        before, self.servers.state = self.servers.state, state
        clusters = _PROFILES.format(FLEET)
        for name in _differing(before.clusters, state.clusters):
            wanted = state.clusters.get(name)
            body = None if wanted is None else profile(name, wanted)
            await self._put(clusters, name, body, there=name in before.clusters)
        for name in _differing(before.policies, state.policies):
            source = state.policies.get(name)
            body = None if source is None else policy_map(name, source)
            await self._put(_MAPS, name, body, there=name in before.policies)
        await self._settled(state)

    async def _put(self, path: str, name: str, body: Any, *, there: bool) -> None:
        if not there:
            await self.bare.kube("POST", path, body)
        elif body is None:
            await self.bare.kube("DELETE", f"{path}/{name}")
        else:
            # A PUT needs the version that it stands on, as `kubectl replace` has it.
            found = json.loads(await self.bare.kube("GET", f"{path}/{name}"))
            body["metadata"]["resourceVersion"] = found["metadata"]["resourceVersion"]
            await self.bare.kube("PUT", f"{path}/{name}", body)

    async def _settled(self, state: State) -> None:
        await until("OPA holds the policies", self._holds_policies)
        if not state.policies:
            await until("nothing is decided", lambda: not any(map(_decided, self.said.values())))
            return
        await self._next_turn()
        await until("OPA holds the clusters", self._holds_clusters)
        decided = await self._answers()
        await until("all decisions are told", lambda: self._tells(decided))
        await until("all is written, or held", self._is_carried_out)

    async def _next_turn(self) -> None:
        self.servers.turn += 1
        body = {"metadata": {"labels": {"turn": str(self.servers.turn)}}}
        path = f"{_PROFILES.format(TURNS)}/{TURNS}"
        await self.bare.kube("PATCH", path, body, "merge-patch+json")

    async def _holds_clusters(self) -> bool:
        path = f"kubernetes/clusters/{TURNS}/{TURNS}/metadata/labels/turn"
        found: object = await self.bare.get(path)
        return found == str(self.servers.turn)

    async def _answers(self) -> dict[str, Decision | None]:
        """Return what OPA answers about each workload, None where that is no decision."""
        gate = asyncio.Semaphore(_AT_ONCE)

        async def ask(item: dict[str, Any]) -> tuple[str, Decision | None]:
            async with gate:
                try:
                    found = await self.bare.query(_DECISION, json.dumps({"input": item}).encode())
                    decision = parse_decision(json.dumps(found).encode())
                except (aiohttp.ClientResponseError, Undecided):
                    return _name(item), None
                return _name(item), decision

        return dict(await asyncio.gather(*map(ask, await self._items())))

    def _tells(self, decided: Mapping[str, Decision | None]) -> bool:
        return all(self._tells_of(name, decision) for name, decision in decided.items())

    def _tells_of(self, name: str, decision: Decision | None) -> bool:
        record = self.said.get(name)
        if record is None:
            return False
        return record.decision == decision if decision else record.failure is not None

    async def _is_carried_out(self) -> bool:
        held = await self._held()
        for item in await self._items():
            name = _name(item)
            current, record = _current(item), self.said[name]
            step = plan(Wanted(record.uid, record.decision, record.failure), current)
            if isinstance(step, Write) and held.get(name) != changes_of(current, step):
                return False
        return True

    async def _held(self) -> dict[str, dict[str, tuple[str | None, str | None]]]:
        """Return what the remediator would change of each object and does not, for a reason."""
        async with (
            aiohttp.ClientSession() as session,
            session.get(self.servers.remediation) as response,
        ):
            found = await response.json()
        return {
            f"{one['namespace']}/{one['name']}": {
                key: (change["is"], change["wanted"]) for key, change in one["changes"].items()
            }
            for one in found["waiting"]
        }

    async def _holds_policies(self) -> bool:
        wanted = {
            f"{POLICIES}/{name}/{name}.rego": source
            for name, source in self.servers.state.policies.items()
        }
        found = {
            module["id"].partition("/")[2]: module["raw"]  # after the name of the bundle
            for module in await self.opa("v1/policies")
        }
        return {i: raw for i, raw in found.items() if i.startswith(f"{POLICIES}/")} == wanted

    async def opa(self, path: str) -> Any:
        """Return what the OPA that serves answers."""
        answer = await self.bare.opa(path)
        return answer["result"]

    async def seen(self, where: str = SHOP) -> dict[str, Seen]:
        """Return all workloads as they are now."""
        found = await self._items(where)
        return {item["metadata"]["name"]: _seen(item["metadata"]) for item in found}

    async def _items(self, where: str = SHOP) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = json.loads(await self.bare.kube("GET", _SETS.format(where)))[
            "items"
        ]
        return items

    def refusals(self) -> dict[str, str]:
        """Return of which workloads there is no decision to carry out, and why."""
        found = {name.partition("/")[2]: _why(record) for name, record in self.said.items()}
        return {name: why for name, why in found.items() if why is not None}

    async def stage(self, name: str, source: str) -> None:
        """Put a candidate beside the policy that it stands for."""
        body = policy_map(name, source)
        body["metadata"] |= {"name": f"{name}-candidate", "labels": _STAGED}
        await self.bare.kube("POST", _MAPS, body)

    async def unstage(self, name: str) -> None:
        """Take it away again."""
        await self.bare.kube("DELETE", f"{_MAPS}/{name}-candidate")

    async def plan(self, request: Request, say: Callable[[str], None] = print) -> Any:
        """Return a plan as `-o json` prints it, made of what the API server has now."""
        answer = await command.run(request, self.servers.settings(), say)
        return json.loads(answer.text)

    async def planned(self, request: Request, say: Callable[[str], None]) -> Any:
        """Do so with a sign of life from every step."""
        ticks = iter(range(0, 10_000, 10))
        progress = Progress(say, lambda: float(next(ticks)))
        return await command.planned(request, self.servers.settings(), progress, time.time())


@asynccontextmanager
async def planning_world(servers: Servers) -> AsyncGenerator[World]:
    """Follow the stream beside the block."""
    async with bare_client(servers.stack) as bare:
        world = World(servers, bare)
        task = asyncio.create_task(_follow(servers, world.said))
        try:
            yield world
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


async def _follow(servers: Servers, said: dict[str, DecisionRecord]) -> None:
    endpoint = servers.stack.endpoint
    settings = Decisions(
        url=f"{endpoint.url}/v1/decisions",
        token_file=str(endpoint.token_file),
        ca_file=str(endpoint.ca_file),
    )
    async with (
        stream_client(settings, lambda _: None) as stream,
        aclosing(stream.records()) as records,
    ):
        async for record in records:
            if isinstance(record, DecisionRecord):
                said[str(record.object.key)] = record


def policy_map(name: str, source: str) -> dict[str, Any]:
    """Return a policy as a ConfigMap."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": POLICIES},
        "data": {f"{name}.rego": source},
    }


def _differing(one: Any, other: Any) -> list[str]:
    return sorted(name for name in {*one, *other} if one.get(name) != other.get(name))


def _name(item: dict[str, Any]) -> str:
    return f"{item['metadata']['namespace']}/{item['metadata']['name']}"


def _current(item: dict[str, Any]) -> Current:
    """Return an object as the remediator reads it."""
    metadata, targets = item["metadata"], Targets(lambda _key: None)
    key = ObjectKey(metadata["namespace"], metadata["name"])
    version = metadata["resourceVersion"]
    found = Item(key, metadata["uid"], version, json.dumps(item).encode())
    targets.apply(Event("ADDED", version, found))
    current = targets.get(key)
    assert current is not None
    return current


def _seen(metadata: dict[str, Any]) -> Seen:
    annotations = metadata.get("annotations") or {}
    kept = {key: text for key, text in annotations.items() if key not in OWN}
    return Seen(tuple(sorted(kept.items())), tuple(sorted(metadata["labels"].items())))


def _decided(record: DecisionRecord) -> bool:
    return record.decision is not None


def _why(record: DecisionRecord) -> str | None:
    if record.failure is not None:
        return "failed"
    if record.decision is None:
        return "undecided"
    return "refused" if record.decision.errors else None
