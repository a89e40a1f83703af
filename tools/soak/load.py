"""So many changes a second, whatever becomes of them: objects, clusters, policies.

The next change begins when its time has come, not when the last one was answered, up to a number
that is under way at once. One object is changed by one change at a time.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

import aiohttp

from benchmarks.bare import Bare
from benchmarks.policies import module
from tools.demo.fleet import FLEET, LEVEL, POLICIES, POLICY, REGION, namespace, policy_map
from tools.soak.comparing import Key
from tools.soak.tally import Tally
from tools.soak.windows import Outcome
from tools.soak.wishes import (
    INSIDE,
    NARROW,
    OUTSIDE,
    Wish,
    edition_policy,
    first_clusters,
    placement,
    random_wish,
    strong,
    versions_policy,
    workload,
)

_AT_ONCE = 64
_PATIENCE = 30.0  # seconds for one change
_IN_ONE_NAMESPACE = 200  # a look at one keeps nobody waiting
_FEWEST_NAMESPACES = 3
_SETTING_UP = 32  # at once
_MAPS = f"/api/v1/namespaces/{POLICIES}/configmaps"
_PROFILES = f"/apis/multicluster.x-k8s.io/v1alpha1/namespaces/{FLEET}/clusterprofiles"
_APPLY = "apply-patch+yaml"
_MERGE = "merge-patch+json"

# Of a hundred thousand changes. A cluster's level moves one object in four hundred, its region one
# in twenty-five, the edition of a policy one in fifty of those that were made since. At 100 changes
# a second a cluster changes every six seconds and a policy every twenty; with 50,000 objects moves
# ask for some fifteen changes a second more.
_WEIGHTS = {
    "mark": 59790,
    "wish": 10000,
    "create": 15500,
    "delete": 14500,
    "cluster mark": 130,
    "cluster level": 20,
    "cluster region": 5,
    "policy": 45,
    "edition": 10,
}


class Load:
    """The objects, and what is done to them; `chance` decides."""

    def __init__(
        self, bare: Bare, chance: random.Random, tally: Tally, objects: int, clusters: int
    ) -> None:
        self.editions: dict[int, int] = {}  # of policy modules; the newest that was accepted
        self.edition = 0  # of the policy that decides
        self._bare, self._chance, self._tally = bare, chance, tally
        self._spaces = [f"soak-{index:03}" for index in range(_spaces(objects))]
        self._clusters = list(first_clusters(clusters))
        self._strong = strong(clusters)
        self._alive: list[Key] = []
        self._busy: set[Key] = set()
        self._numbers = 0
        self._under_way: set[asyncio.Task[None]] = set()
        self._policies = asyncio.Lock()  # the newest edition is the one that is known
        self._kinds: dict[str, Callable[[], Awaitable[None]]] = {
            "mark": self._mark,
            "wish": self._wish,
            "create": self._create,
            "delete": self._delete,
            "cluster mark": self._cluster_mark,
            "cluster level": self._cluster_level,
            "cluster region": self._cluster_region,
            "policy": self._policy,
            "edition": self._edition,
        }

    @property
    def alive(self) -> Sequence[Key]:
        """The objects that are there as far as answers told."""
        return self._alive

    @property
    def spaces(self) -> Sequence[str]:
        """The namespaces of the objects."""
        return self._spaces

    async def set_up_policies(self, count: int) -> None:
        """Have the policy that decides, the module that tells versions, and so many others."""
        await self._apply_map("placement", policy_map(POLICY.read_text(encoding="utf-8"))["data"])
        await self._apply_map("edition", {"edition.rego": edition_policy(0)})
        await self._apply_map("versions", {"versions.rego": versions_policy()})
        self.editions = dict.fromkeys(range(max(0, count - 3)), 0)
        for index in self.editions:
            await self._apply_map(f"other-{index}", {"m.rego": module(index, 0)})

    async def set_up_clusters(self) -> None:
        """Create the namespaces and the clusters."""
        for name in (FLEET, *self._spaces):
            await self._bare.kube("POST", "/api/v1/namespaces", namespace(name))
        for manifest in first_clusters(len(self._clusters)).values():
            await self._bare.kube("POST", _PROFILES, manifest)

    async def set_up_objects(self, count: int) -> None:
        """Create so many objects, placed already as the webhook would: it is not there yet."""
        numbers, clusters = iter(range(count)), first_clusters(len(self._clusters))

        async def create() -> None:
            for _ in numbers:
                self._numbers += 1
                key = (self._chance.choice(self._spaces), f"app-{self._numbers:07}")
                # Without an edition: whoever creates an object with one has asked for it.
                wish = replace(random_wish(self._chance, possible=True), edition=False)
                manifest = workload(*key, wish)
                wished = manifest["metadata"]["annotations"]
                manifest["metadata"]["annotations"] |= placement(wished, clusters.values())
                await self._bare.kube("POST", _path(key[0]), manifest)
                self._alive.append(key)

        await asyncio.gather(*(create() for _ in range(_SETTING_UP)))

    async def run(self, rate: float) -> None:
        """Change something `rate` times a second until cancelled; what is under way is awaited."""
        loop = asyncio.get_running_loop()
        due = loop.time()
        try:
            while True:
                due = max(due + 1 / rate, loop.time() - 1)  # a second is made up for, no more
                await asyncio.sleep(max(0.0, due - loop.time()))
                if len(self._under_way) < _AT_ONCE:
                    self._begin()
        finally:
            await asyncio.gather(*self._under_way)

    def _begin(self) -> None:
        kind = self._chance.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0]
        task = asyncio.create_task(self._do(kind))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def _do(self, kind: str) -> None:
        await self._kinds[kind]()

    async def _create(self, *, possible: bool = False) -> None:
        self._numbers += 1
        key = (self._chance.choice(self._spaces), f"app-{self._numbers:07}")
        wish = random_wish(self._chance, possible=possible)
        asked = ("POST", _path(key[0]), workload(*key, wish))
        if await self._ask("create", *asked, possible=wish.possible) in ("made", "let through"):
            self._alive.append(key)

    async def _mark(self) -> None:
        """Change what decides nothing."""
        mark = {"metadata": {"labels": {"mark": str(self._chance.randrange(10**6))}}}
        if (key := self._pick()) is not None:
            await self._ask("mark", "PATCH", _path(*key), mark, _MERGE)
            self._busy.discard(key)

    async def _wish(self) -> None:
        wish: Wish = random_wish(self._chance, possible=False)
        body = {"metadata": {"annotations": wish.annotations()}}
        if (key := self._pick()) is not None:
            path = _path(*key)
            await self._ask("wish", "PATCH", path, body, _MERGE, possible=wish.possible)
            self._busy.discard(key)

    async def _delete(self) -> None:
        if (key := self._pick(remove=True)) is not None:
            await self._ask("delete", "DELETE", _path(*key))
            self._busy.discard(key)

    def _pick(self, *, remove: bool = False) -> Key | None:
        """Return an object that no other change is about, and be about it."""
        for _ in range(_AT_ONCE if self._alive else 0):
            index = self._chance.randrange(len(self._alive))
            if (key := self._alive[index]) not in self._busy:
                break
        else:
            return None
        self._busy.add(key)
        if remove:
            self._alive[index] = self._alive[-1]
            self._alive.pop()
        return key

    async def _cluster_mark(self) -> None:
        value = str(self._chance.randrange(10**6))
        await self._cluster("cluster mark", self._chance.choice(self._clusters), "mark", value)

    async def _cluster_level(self) -> None:
        level = str(self._chance.choice(NARROW))
        await self._cluster("cluster level", self._chance.choice(self._strong), LEVEL, level)

    async def _cluster_region(self) -> None:
        region = self._chance.choice((INSIDE, OUTSIDE))
        await self._cluster("cluster region", self._chance.choice(self._strong), REGION, region)

    async def _cluster(self, kind: str, name: str, label: str, value: str) -> None:
        body = {"metadata": {"labels": {label: value}}}
        await self._ask(kind, "PATCH", f"{_PROFILES}/{name}", body, _MERGE)

    async def _policy(self) -> None:
        async with self._policies:
            if not self.editions:
                return
            index = self._chance.choice(list(self.editions))
            edition = self.editions[index] + 1
            data = {"m.rego": module(index, edition)}
            if await self._ask_map("policy", f"other-{index}", data) == "made":
                self.editions[index] = edition

    async def _edition(self) -> None:
        async with self._policies:
            data = {"edition.rego": edition_policy(self.edition + 1)}
            if await self._ask_map("edition", "edition", data) == "made":
                self.edition += 1

    async def _ask_map(self, kind: str, name: str, data: dict[str, str]) -> Outcome:
        path, body = _map(name, data)
        return await self._ask(kind, "PATCH", path, body, _APPLY)

    async def _apply_map(self, name: str, data: dict[str, str]) -> None:
        path, body = _map(name, data)
        await self._bare.kube("PATCH", path, body, _APPLY)

    async def _ask(
        self,
        kind: str,
        method: str,
        path: str,
        body: Any = None,
        form: str = "json",
        *,
        possible: bool = True,
    ) -> Outcome:
        begun = self._tally.now
        status, text = 0, ""
        try:
            async with asyncio.timeout(_PATIENCE):
                status, text = await self._bare.answer(method, path, body, form)
        except (aiohttp.ClientError, TimeoutError, ConnectionError):
            pass  # it is noted as without an answer
        return self._tally.note(kind, path, begun, status, text, possible=possible)


def _spaces(objects: int) -> int:
    return max(_FEWEST_NAMESPACES, objects // _IN_ONE_NAMESPACE)


def _path(where: str, name: str | None = None) -> str:
    path = f"/apis/apps/v1/namespaces/{where}/replicasets"
    return path if name is None else f"{path}/{name}"


def _map(name: str, data: dict[str, str]) -> tuple[str, dict[str, Any]]:
    metadata = {"name": name, "namespace": POLICIES}
    manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
    return f"{_MAPS}/{name}?fieldManager=soak&force=true", manifest
