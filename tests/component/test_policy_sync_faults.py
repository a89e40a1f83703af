"""Policy sync on a fake hub that fails at random: in the end there is what is wanted, once.

What a story changes, it changes for good: a copy that is wanted in the end was never unwanted since
it was there. So whatever is removed of those was removed by mistake.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web

from kube_sync.config import Settings
from kube_sync.objects import GroupVersionResource, ObjectKey
from kube_sync.observability.readiness import Readiness
from kube_sync.policysync.copies import MANAGER
from kube_sync.policysync.desired import PLACEMENT, PLACEMENT_DECISIONS
from kube_sync.policysync.hubstate import GATEWAYS, MANAGED_CLUSTERS
from kube_sync.policysync.manifestworks import WORKS
from kube_sync.processes.context import Context
from kube_sync.processes.policysync import policy_sync
from kube_sync.runtime.backoff import Backoff
from kube_sync.runtime.draining import Drain
from kube_sync.runtime.services import Service
from tests.component.test_policy_sync_refused import KINDS, hub
from tests.fakes.apiserver import (
    FakeApiServer,
    error_event,
    fake_apiserver,
    lists,
    patches,
    watches,
)
from tests.fakes.clients import kube_of
from tests.fakes.copies import AUTH, source
from tests.fakes.http import Handler, Proceed, Recorded, answer, failing, lose_answer, stream
from tests.parts import quickly

CLUSTERS = ("east", "north", "west")
_FIRST, _THEN = ("east", "west"), ("east", "north")  # clusters of the second Gateway
_PATIENCE = 30.0  # seconds
_FOLLOWED = tuple(KINDS)
_TORN = b'{"type":"DELETED","object":{"metadata":{"namespace":"shop","name":"lo'
_HALF = b'{"kind":"List","metadata":{"resourceVersion":"100"},"items":[{"metadata":{"na'
_UNBOUND = {"shrink_share": 1.0, "mass_share": 1.0}  # nothing is held that is to go
_OWN: dict[str, Any] = {"policy_sync": {"grace_seconds": 0, "brakes": _UNBOUND}}

Wanted = dict[tuple[str, str], int]  # by policy and cluster, the version of its rules


@pytest.fixture(autouse=True)
def brisk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let waits take a twentieth of their time, and looks at all come as soon."""

    async def sleep(seconds: float) -> None:
        await asyncio.sleep(seconds / 20)

    defaults = Backoff.__init__.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "sleep", sleep)
    monkeypatch.setattr("kube_sync.policysync.hub._SURVEY_SECONDS", 0.05)


class Story:
    """A hub whose wishes and whose faults come as a seed says."""

    def __init__(self, api: FakeApiServer, seed: int) -> None:
        self.api = api
        self.random = random.Random(seed)  # noqa: S311 - a story, no secret
        self.told: list[str] = []
        self._policies: dict[str, tuple[str, int]] = {}  # their Gateways, their rules
        self._moved = False
        self._places: dict[str, tuple[str, ...]] = {"web": _FIRST, "edge": _FIRST}
        self._calm = list(api.http.faults)
        for cluster in CLUSTERS:
            api.put(MANAGED_CLUSTERS, ObjectKey("", cluster))
        spec = {"gatewayClassName": "multi"}
        metadata = {"labels": {PLACEMENT: "edge"}}
        api.put(GATEWAYS, ObjectKey("shop", "edge"), metadata=metadata, spec=spec)
        self._decide()
        self._put("login", "web", 0)
        for number in range(4):
            self._put(f"p{number}", "edge" if number % 2 else "web", 0)

    # What is wanted

    def wanted(self) -> Wanted:
        return {
            (name, cluster): rules
            for name, (gateway, rules) in self._policies.items()
            for cluster in self._places[gateway]
        }

    def placed(self) -> Wanted:
        found = {}
        for key, work in self.api.objects(WORKS).items():
            (manifest,) = work["spec"]["workload"]["manifests"]
            found[manifest["metadata"]["name"], key.namespace] = manifest["spec"]["rules"]
        assert len(found) == len(self.api.objects(WORKS)), "a copy is there twice"
        return found

    def removed(self) -> set[tuple[str, str]]:
        """Return of which copies the removal was asked for."""
        prefix = f"/apis/{WORKS.group}/{WORKS.version}/namespaces/"
        found = [r.path for r in self.api.http.requests if r.method == "DELETE"]
        parts = [path.removeprefix(prefix).split("/") for path in found if path.startswith(prefix)]
        return {(name.split("-")[2], cluster) for cluster, _, name in parts}

    @property
    def writes(self) -> int:
        """How often policy sync has written but to its Lease."""
        return len([r for r in self.api.http.requests if _is_write(r)])

    # What happens

    def change(self) -> None:
        """Change what is wanted."""
        what = self.random.choice(["add", "delete", "edit", "move"])
        names = sorted(self._policies)
        self._tell(what)
        if what == "add":
            self._put(f"n{len(self.told)}", self.random.choice(["web", "edge"]), 0)
        elif what == "delete" and len(names) > 1:
            name = self.random.choice(names)
            del self._policies[name]
            self.api.delete(AUTH, ObjectKey("shop", name))
        elif what == "edit":
            name = self.random.choice(names)
            gateway, rules = self._policies[name]
            self._put(name, gateway, rules + 1)
        elif what == "move":
            self._places["edge"] = _THEN
            self._decide()

    async def fail(self) -> None:
        """Have the API server fail in one of its ways."""
        faults: list[Callable[[], Any]] = [
            self._cut, self._compact, self._away, self._tear, self._break_list,
            self._hide, self._lose,
        ]  # fmt: skip
        fault = self.random.choice(faults)
        self._tell(fault.__name__.strip("_"))
        if (again := fault()) is not None:
            await again

    async def wait(self) -> None:
        await asyncio.sleep(self.random.choice([0.0, 0.01, 0.05, 0.2]))

    def calm(self) -> None:
        self.api.http.faults[:] = self._calm

    def _cut(self) -> None:
        self.api.http.cut()

    def _compact(self) -> None:
        self.api.compact()
        self.api.http.cut()

    async def _away(self) -> None:
        """Answer nobody for a while; those that wait are left too."""
        gone = self.api.http.fault(lambda _: True, _hang_up, times=10**6)
        self.api.http.faults.insert(0, self.api.http.faults.pop())
        self._cut()
        await self.wait()
        gone.times = 0

    def _tear(self) -> None:
        """End WATCHes in the middle of a line, or with what nobody can tell any more."""
        for gvr in self._some():
            end = self.random.choice([stream(_TORN, cut=True), stream(error_event(410)), stream()])
            self._fault(watches(gvr), end)
        self._cut()

    def _break_list(self) -> None:
        for gvr in self._some():
            no = [stream(_HALF, cut=True), failing(500, "no"), answer(429, retry_after="1")]
            self._fault(lists(gvr), self.random.choice(no))
        self._compact()

    def _hide(self) -> None:
        """Answer as an API server that has only begun does: what it serves is not there."""
        for gvr in self._some():
            for asks in (lists(gvr), watches(gvr)):
                self._fault(asks, answer(404, b"404 page not found\n"))
        self._compact()

    def _lose(self) -> None:
        how = [lose_answer(), failing(500, "no"), answer(429, retry_after="1")]
        self._fault(patches(WORKS), self.random.choice(how))
        self._fault(_deletes, self.random.choice(how))
        self._fault(patches(AUTH), self.random.choice(how))

    def _fault(self, matches: Callable[[Recorded], bool], handler: Handler) -> None:
        self.api.http.fault(matches, handler, times=self.random.randint(1, 3))

    def _some(self) -> list[GroupVersionResource]:
        return self.random.sample(_FOLLOWED, self.random.randint(1, 3))

    def _tell(self, what: str) -> None:
        self.told.append(what)

    def _put(self, name: str, gateway: str, rules: int) -> None:
        self._policies[name] = gateway, rules
        spec = dict(source(name).body["spec"])
        spec["targetRef"] = {**spec["targetRef"], "name": gateway}
        self.api.put(AUTH, ObjectKey("shop", name), spec={**spec, "rules": rules})

    def _decide(self) -> None:
        for gateway, name, label in (("web", "d1", "both"), ("edge", "d2", "edge")):
            status = {"decisions": [{"clusterName": one} for one in self._places[gateway]]}
            metadata = {"labels": {PLACEMENT: label}}
            where = ObjectKey("shop", name)
            self.api.put(PLACEMENT_DECISIONS, where, metadata=metadata, status=status)


async def _hang_up(request: web.Request, _proceed: Proceed) -> web.StreamResponse:
    if request.transport is not None:
        request.transport.abort()
    return web.Response()


def _deletes(recorded: Recorded) -> bool:
    return recorded.method == "DELETE" and f"/{WORKS.resource}/" in recorded.path


def _is_write(recorded: Recorded) -> bool:
    return recorded.query.get("fieldManager") == MANAGER or recorded.method == "DELETE"


async def _run(service: Service) -> None:
    await service()


@asynccontextmanager
async def syncing(api: FakeApiServer, folder: Path) -> AsyncGenerator[None]:
    """Run policy sync beside the block; what it raises ends the block, and fails the test."""
    async with kube_of(api, folder) as kube, AsyncExitStack() as stack:
        readiness = Readiness()
        drain = Drain(1.0, readiness.waiting)
        context = Context(msgspec.convert(_OWN, Settings), readiness, stack, kube, drain)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(_run(service)) for service in policy_sync(context)]
            try:
                yield
            finally:
                for task in tasks:
                    task.cancel()


async def _reached(story: Story) -> None:
    """Wait until what is wanted is there."""
    try:
        async with asyncio.timeout(_PATIENCE):
            while story.placed() != story.wanted():  # noqa: ASYNC110 - what is watched knows no test
                await asyncio.sleep(0.02)
    except TimeoutError:
        pytest.fail(f"after {story.told}: {story.placed()}, not {story.wanted()}")


@pytest.mark.timeout(120)
@pytest.mark.parametrize("seed", quickly(2, range(6)))
async def test_a_hub_that_fails_at_random_ends_with_what_is_wanted_and_loses_nothing_of_it(
    tmp_path: Path, seed: int
) -> None:
    async with fake_apiserver() as api:
        hub(api)
        story = Story(api, seed)
        ever = set(story.wanted())
        for _ in range(2):  # processes, one after the other
            async with syncing(api, tmp_path):
                for _ in range(8):
                    await story.fail()
                    await story.wait()
                    story.change()
                    ever |= story.wanted().keys()
                    await story.wait()
                story.calm()
                await _reached(story)
        async with syncing(api, tmp_path):
            await _reached(story)
            assert story.removed().isdisjoint(story.wanted()), story.told
            assert story.removed() <= ever
            await asyncio.sleep(2.0)  # what is told to policies may wait for so long
            before = story.writes
            await asyncio.sleep(0.5)
            assert story.writes == before
