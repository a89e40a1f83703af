"""Half a million ReplicaSets in minutes: one of each class by the API server, the rest in etcd.

The API server writes the first ReplicaSet of each class. The others are copies of what it stored,
with another name and uid of the same length, so that each value stays what the API server would
have stored. It hears of them by its own watch of etcd, and serves them as any other object.
"""

from __future__ import annotations

import asyncio
import base64
import json
import random
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import aiohttp

from benchmarks.bare import REPLICA_SETS, Bare
from tools.demo.fleet import replica_set
from tools.servers.stack import RunningStack

NAMESPACE = "default"
WISH = "bench.example.com/wish"
ORIGIN = "bench.example.com/region"
_PREFIX = f"/registry/replicasets/{NAMESPACE}/"
_IN_ONE = 100  # writes of one transaction; etcd takes 128
_AT_ONCE = 4  # transactions
_TOLD = 50_000  # objects between two lines of progress
_ENV = ("DATABASE_HOST", "CACHE_HOST", "LOG_LEVEL")


@dataclass(frozen=True, slots=True)
class _Stored:
    """What the API server stored of the first object of a class."""

    name: str
    uid: str
    value: bytes


class Seeding:
    """Creates ReplicaSets of so many classes; the number of an object is that of its name."""

    def __init__(self, stack: RunningStack, bare: Bare, regions: Sequence[str]) -> None:
        """Make a class for each of `regions`: what the objects of a class ask for."""
        self._etcd = stack.etcd.url
        self._bare = bare
        self._regions = regions
        self._stored: list[_Stored] = []
        self._made = 0
        self._random = random.Random(28)  # noqa: S311 - uids need no secret

    async def grow(self, total: int) -> None:
        """Create the next ones, until there are so many."""
        timeout = aiohttp.ClientTimeout(total=60)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            while self._made < min(total, len(self._regions)):
                await self._create(session, self._made)
                self._made += 1
            await self._copy(session, total)
        await self._until_served(total)

    async def _create(self, session: aiohttp.ClientSession, number: int) -> None:
        name = name_of(number)
        path = f"/apis/apps/v1/namespaces/{NAMESPACE}/replicasets"
        answer = await self._bare.kube("POST", path, _manifest(number, self._regions[number]))
        body = {"key": _encoded((_PREFIX + name).encode())}
        async with session.post(f"{self._etcd}/v3/kv/range", json=body) as response:
            value = base64.b64decode((await response.json())["kvs"][0]["value"])
        self._stored.append(_Stored(name, json.loads(answer)["metadata"]["uid"], value))

    async def _copy(self, session: aiohttp.ClientSession, total: int) -> None:
        gate, started, first = asyncio.Semaphore(_AT_ONCE), time.perf_counter(), self._made

        async def write(numbers: Sequence[int]) -> None:
            async with gate:
                body = {"success": [self._put(number) for number in numbers]}
                async with session.post(f"{self._etcd}/v3/kv/txn", json=body) as response:
                    response.raise_for_status()
                    await response.read()

        for part in _parts(range(first, total), _TOLD):
            await asyncio.gather(*(write(some) for some in _parts(part, _IN_ONE)))
            self._made = part[-1] + 1
            seconds = time.perf_counter() - started
            print(f"    {self._made} objects after {seconds:.0f} s", flush=True)

    def _put(self, number: int) -> dict[str, Any]:
        stored = self._stored[number % len(self._stored)]
        name = name_of(number)
        uid = str(uuid.UUID(int=self._random.getrandbits(128), version=4))
        value = stored.value.replace(stored.name.encode(), name.encode())
        value = value.replace(stored.uid.encode(), uid.encode())
        key = _encoded((_PREFIX + name).encode())
        return {"requestPut": {"key": key, "value": _encoded(value)}}

    async def _until_served(self, total: int) -> None:
        """Wait until the API server has heard of all of them."""
        async with asyncio.timeout(600):
            while await self._served() < total:  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.5)

    async def _served(self) -> int:
        page: dict[str, Any] = json.loads(await self._bare.kube("GET", f"{REPLICA_SETS}?limit=1"))
        return len(page["items"]) + int(page["metadata"].get("remainingItemCount", 0))


def name_of(number: int) -> str:
    """Return the name of an object."""
    return f"app-{number:06}"


def _parts(numbers: range, size: int) -> Iterator[range]:
    return (numbers[start : start + size] for start in range(0, len(numbers), size))


def _encoded(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def _manifest(number: int, region: str) -> dict[str, Any]:
    """Return a ReplicaSet of about 2 KB as listed."""
    name = name_of(number)
    manifest = replica_set(name)
    manifest["metadata"]["namespace"] = NAMESPACE
    manifest["metadata"]["annotations"] = {ORIGIN: region, WISH: f"{number:06}"}
    manifest["spec"]["template"]["spec"] = {
        "containers": [
            {
                "name": "web",
                "image": f"registry.example.com/shop/{name}:1.4.2",
                "env": [{"name": key, "value": f"{key.lower()}.{name}"} for key in _ENV],
            }
        ]
    }
    return manifest
