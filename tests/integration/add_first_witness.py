"""A watch that looks at every state of the workloads of a namespace. It shares no code with us."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from benchmarks.bare import Bare, bare_client
from tools.servers.stack import RunningStack

PLACEMENT = "federation.kubernetes.io/replica-set-preferences"
HEALTH = "health.kube-sync.io/"


class Witness:
    """Where each workload has been, and which had no cluster at any moment where it was healthy."""

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace
        self.events = 0
        self.stories: dict[str, list[str]] = {}  # placements, one after the other
        self.without: list[str] = []

    def see(self, found: Any) -> None:
        """Look at one state of an object."""
        metadata = found["metadata"]
        annotations = metadata.get("annotations") or {}
        if metadata["namespace"] != self._namespace or PLACEMENT not in annotations:
            return
        self.events += 1
        name, clusters = metadata["name"], json.loads(annotations[PLACEMENT])["clusters"]
        story, place = self.stories.setdefault(name, []), ",".join(sorted(clusters))
        if story[-1:] != [place]:
            story.append(place)
        if not any(annotations.get(HEALTH + one) == "healthy" for one in clusters):
            self.without.append(f"{name} on {place}")

    def at(self, *places: str) -> int:
        """Return how many workloads have been exactly there, in this order."""
        return sum(story == [*places] for story in [*self.stories.values()])


@asynccontextmanager
async def watched(stack: RunningStack, namespace: str) -> AsyncGenerator[tuple[Witness, Bare]]:
    """Yield a witness of every event of a namespace, and the client that it uses."""
    witness, opened = Witness(namespace), asyncio.Event()

    async def watch(bare: Bare) -> None:
        async for event in bare.watch(opened=opened.set):
            witness.see(event["object"])

    async with bare_client(stack) as bare:
        task = asyncio.create_task(watch(bare))
        try:
            await opened.wait()
            yield witness, bare
            assert not task.done(), "the watch ended: it may have missed something"
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
