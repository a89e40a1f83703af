"""Changes of what decisions depend on, one after another, in the order of a seed.

Keeps true: no change brings back an answer that a change before it took away. Each revision and
each edition is new, and before a cluster or an object leaves an answer, another one of the same
answer changes. A policy goes behind an edition of another one: both come by one watch.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable

import aiohttp

from benchmarks.bare import Bare
from tools.demo.fleet import FLEET, POLICIES, cluster, replica_set
from tools.soak.classes.policies import (
    BROKEN,
    DATA,
    DATA_NAME,
    EVERYWHERE,
    HEALTH,
    MODULES,
    OBJECTS,
    PLACE,
    REGION,
    REGIONS,
    REV,
    TIER,
    TIERS,
    UNSHARED,
    module,
)

_CLUSTERS = 8
_OBJECTS = 20
_PATIENCE = 10.0  # seconds for one request
_UNSHARED_SECONDS = 1.0
_PROFILES = f"/apis/multicluster.x-k8s.io/v1alpha1/namespaces/{FLEET}/clusterprofiles"
_SETS = f"/apis/apps/v1/namespaces/{OBJECTS}/replicasets"
_ALWAYS = "always"  # a cluster of every region, and an object of every tier
_APPLY = "?fieldManager=soak&force=true"
_MERGE = "merge-patch+json"
_BURST = 0.25  # of the changes follow the one before at once
_SHARED = tuple(name for name in MODULES if name not in (PLACE, *UNSHARED))

# Of a hundred changes.
_WEIGHTS = {
    "cluster": 22,
    "cluster's region": 8,
    "cluster's health": 10,
    "cluster comes or goes": 10,
    "what nobody reads": 5,
    "object": 12,
    "object comes or goes": 6,
    "data": 6,
    "policy": 8,
    "policy comes or goes": 8,
    "policy breaks": 3,
    "policy that no class covers": 2,
}


class Churn:
    """The state that is asked for; `chance` decides what changes next."""

    def __init__(self, bare: Bare, chance: random.Random, gap: float) -> None:
        """`gap` is the mean time in seconds between two changes."""
        self.counts: Counter[str] = Counter()
        self.failed = 0  # without an answer of the API server, or refused by it
        self.last = ""  # the last change
        self._bare, self._chance, self._gap = bare, chance, gap
        self._number = 0
        self._clusters: set[str] = set()
        self._objects: set[str] = set()
        self._modules: set[str] = set()
        self._kinds: dict[str, Callable[[], Awaitable[None]]] = {
            "cluster": self._cluster,
            "cluster's region": self._region,
            "cluster's health": self._health,
            "cluster comes or goes": self._cluster_comes_or_goes,
            "what nobody reads": self._unread,
            "object": self._object,
            "object comes or goes": self._object_comes_or_goes,
            "data": self._data,
            "policy": self._policy,
            "policy comes or goes": self._policy_comes_or_goes,
            "policy breaks": self._policy_breaks,
            "policy that no class covers": self._unshared,
        }

    async def set_up(self) -> None:
        """Create the first clusters, objects, data and policies."""
        await self._put_cluster(_ALWAYS, EVERYWHERE)
        for _ in range(_CLUSTERS // 2):
            await self._new_cluster()
        for tier in TIERS:
            await self._put_object(f"{_ALWAYS}-{tier}", tier)
        await self._data()
        await self._put_module(PLACE)

    async def run(self) -> None:
        """Change something again and again until cancelled."""
        while True:
            if self._chance.random() > _BURST:
                await asyncio.sleep(self._chance.expovariate((1 - _BURST) / self._gap))
            kind = self._chance.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0]
            self.last = kind
            try:
                async with asyncio.timeout(_PATIENCE):
                    await self._kinds[kind]()
            except (aiohttp.ClientError, TimeoutError, ConnectionError):
                self.failed += 1
            else:
                self.counts[kind] += 1

    # Clusters

    async def _cluster(self) -> None:
        name = self._any(self._clusters) or _ALWAYS
        await self._label(f"{_PROFILES}/{name}", {REV: self._next()})

    async def _region(self) -> None:
        if name := self._any(self._clusters):
            region = self._chance.choice(REGIONS)
            await self._label(f"{_PROFILES}/{_ALWAYS}", {REV: self._next()})
            await self._label(f"{_PROFILES}/{name}", {REGION: region, REV: self._next()})

    async def _health(self) -> None:
        name = self._any(self._clusters) or _ALWAYS
        status = self._chance.choice(("True", "False"))
        condition = {"type": HEALTH, "status": status, "reason": f"R{self._next()}"}
        body = {"status": {"conditions": [condition]}}
        await self._bare.kube("PATCH", f"{_PROFILES}/{name}/status", body, _MERGE)

    async def _cluster_comes_or_goes(self) -> None:
        if len(self._clusters) < self._chance.randrange(_CLUSTERS):
            await self._new_cluster()
        elif name := self._any(self._clusters):
            await self._label(f"{_PROFILES}/{_ALWAYS}", {REV: self._next()})
            self._clusters.discard(name)
            await self._delete(f"{_PROFILES}/{name}")

    async def _unread(self) -> None:
        name = self._any(self._clusters) or _ALWAYS
        await self._label(f"{_PROFILES}/{name}", {"note": self._next()})

    async def _new_cluster(self) -> None:
        name = f"cluster-{self._next()}"
        await self._put_cluster(name, self._chance.choice(REGIONS))
        self._clusters.add(name)

    async def _put_cluster(self, name: str, region: str) -> None:
        manifest = cluster(name, region, "1")
        manifest["metadata"]["labels"] = {REGION: region, REV: self._next()}
        await self._bare.kube("PATCH", f"{_PROFILES}/{name}{_APPLY}", manifest, "apply-patch+yaml")

    # Objects

    async def _object(self) -> None:
        name = self._any(self._objects) or f"{_ALWAYS}-{TIERS[0]}"
        await self._label(f"{_SETS}/{name}", {REV: self._next()})

    async def _object_comes_or_goes(self) -> None:
        if len(self._objects) < self._chance.randrange(_OBJECTS):
            await self._new_object()
        elif name := self._any(self._objects):
            for tier in TIERS:
                await self._label(f"{_SETS}/{_ALWAYS}-{tier}", {REV: self._next()})
            self._objects.discard(name)
            await self._delete(f"{_SETS}/{name}")

    async def _new_object(self) -> None:
        name = f"object-{self._next()}"
        await self._put_object(name, self._chance.choice(TIERS))
        self._objects.add(name)

    async def _put_object(self, name: str, tier: str) -> None:
        manifest = replica_set(name)
        labels = manifest["metadata"]["labels"] | {TIER: tier, REV: self._next()}
        manifest["metadata"] |= {"namespace": OBJECTS, "labels": labels}
        await self._bare.kube("PATCH", f"{_SETS}/{name}{_APPLY}", manifest, "apply-patch+yaml")

    # Data and policies

    async def _data(self) -> None:
        labels = {"openpolicyagent.org/data": "opa"}
        await self._put_map(DATA, DATA_NAME, {REV: self._next()}, labels)

    async def _policy(self) -> None:
        await self._put_module(self._any(self._modules | {PLACE}) or PLACE)

    async def _policy_comes_or_goes(self) -> None:
        name = self._chance.choice(_SHARED)
        if name in self._modules:
            await self._remove_module(name)
        else:
            await self._put_module(name)

    async def _policy_breaks(self) -> None:
        """Load one that does not compile: the version before it stays in force."""
        name = self._any(self._modules | {PLACE}) or PLACE
        await self._put_map(POLICIES, f"classes-{name}", {f"{name}.rego": BROKEN})

    async def _unshared(self) -> None:
        """Have a policy for a moment that reads what no class covers."""
        name = self._chance.choice(UNSHARED)
        await self._put_module(name)
        try:
            await asyncio.sleep(_UNSHARED_SECONDS)
        finally:
            await self._remove_module(name)

    async def _put_module(self, name: str) -> None:
        text = module(name, int(self._next()))
        await self._put_map(POLICIES, f"classes-{name}", {f"{name}.rego": text})
        self._modules.add(name)

    async def _remove_module(self, name: str) -> None:
        await self._put_module(PLACE)
        await self._delete(f"/api/v1/namespaces/{POLICIES}/configmaps/classes-{name}")
        self._modules.discard(name)

    async def _put_map(
        self, where: str, name: str, data: dict[str, str], labels: dict[str, str] | None = None
    ) -> None:
        metadata = {"name": name, "namespace": where, "labels": labels or {}}
        found = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
        path = f"/api/v1/namespaces/{where}/configmaps/{name}{_APPLY}"
        await self._bare.kube("PATCH", path, found, "apply-patch+yaml")

    # Requests

    async def _label(self, path: str, labels: dict[str, str]) -> None:
        await self._bare.kube("PATCH", path, {"metadata": {"labels": labels}}, _MERGE)

    async def _delete(self, path: str) -> None:
        status, text = await self._bare.answer("DELETE", path)
        if status not in (200, 202, 404):  # 404: an earlier request without an answer did it
            raise aiohttp.ClientPayloadError(text)

    def _any(self, names: set[str]) -> str | None:
        return self._chance.choice(sorted(names)) if names else None

    def _next(self) -> str:
        self._number += 1
        return str(self._number)
