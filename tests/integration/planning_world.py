"""A fleet on real servers, with a replicator and a remediator, and what a plan says of it.

When all that follows from an edit has come is told by a workload of its own, whose decision names a
turn. Decisions are made and carried out in order: whoever was to be asked for or written when the
first turn was written has been by the time that the second one is.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from benchmarks.bare import Bare, bare_client
from kube_sync.decisions.decision import REQUESTED
from kube_sync.decisions.records import DecisionRecord
from kube_sync.decisions.streamclient import stream_client
from kube_sync.planning import command
from kube_sync.planning.arguments import Request
from kube_sync.safety import HISTORY
from kube_sync.settings import Decisions, Settings, load_settings
from kube_sync.survey.progress import Progress
from tests.faults.world import until
from tests.integration.planning_edits import NOTHING, TURN, TURNS, State, profile, start, workload
from tools.demo.components import UNBRAKED, start_replicator, start_service
from tools.demo.fleet import FLEET, POLICIES, PREFERENCES, SHOP, namespace, replica_set
from tools.servers.files import write_file
from tools.servers.running import Launcher, free_port
from tools.servers.stack import RunningStack, furnished_stack

_SETS = "/apis/apps/v1/namespaces/{}/replicasets"
_PROFILES = "/apis/multicluster.x-k8s.io/v1alpha1/namespaces/{}/clusterprofiles"
_MAPS = f"/api/v1/namespaces/{POLICIES}/configmaps"
OWN = frozenset({REQUESTED, HISTORY})  # what the remediator notes for itself
_AT_ONCE = 16
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
    state: State = NOTHING
    turn: int = 0

    def settings(self) -> Settings:
        return load_settings(str(self.config), {})


@contextmanager
def planning_servers(launcher: Launcher, folder: Path) -> Iterator[Servers]:
    """Run all servers, and the services that carry out what is decided."""
    with furnished_stack(launcher, folder / "stack") as stack:
        configuration = {
            "kubernetes": {"kubeconfig": str(stack.kubeconfigs["replicator"])},
            "opa": stack.opa_settings(),
            "remediate": dict(UNBRAKED),
        }
        file = write_file(folder / "plan.yaml", yaml.safe_dump(configuration).encode())
        replicator = start_replicator(stack, folder / "replicator")
        remediate = {"listen": f"127.0.0.1:{free_port()}", **UNBRAKED}
        carried_out_by: dict[str, object] = {
            "kubernetes": {"kubeconfig": str(stack.kubeconfigs["remediator"])},
            "decisions": stack.endpoint.client(),
            "remediate": remediate,
        }
        remediator = start_service("remediate", folder / "remediator", carried_out_by)
        try:
            yield Servers(stack, file)
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

        turns = replica_set(TURNS)
        turns["metadata"]["namespace"] = TURNS
        await asyncio.gather(*map(create, [turns, *map(workload, range(number))]))
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
        for _ in range(2):
            await self._next_turn()
            await until("the decisions are carried out", self._is_carried_out)

    async def _next_turn(self) -> None:
        self.servers.turn += 1
        body = {"metadata": {"labels": {"turn": str(self.servers.turn)}}}
        path = f"{_PROFILES.format(TURNS)}/{TURNS}"
        await self.bare.kube("PATCH", path, body, "merge-patch+json")

    async def _is_carried_out(self) -> bool:
        found = await self.seen(TURNS)
        return dict(found[TURNS].annotations).get(TURN) == str(self.servers.turn)

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
        found = json.loads(await self.bare.kube("GET", _SETS.format(where)))["items"]
        return {item["metadata"]["name"]: _seen(item["metadata"]) for item in found}

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
