"""A Placer in memory: what it is asked to do it does at once, or fails as a test says."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from kube_sync.errors import Conflict, SyncError
from kube_sync.policysync.copies import GATEWAYS, Copy, CopyKey, Feedback, Placed, PolicyId, Report
from kube_sync.policysync.naming import parse_keys


class MemoryPlacer:
    """Copies by policy and cluster."""

    def __init__(self, on_change: Callable[[PolicyId], object] = lambda _policy: None) -> None:
        self.ready = True
        self.on_change = on_change
        self.there: dict[CopyKey, Placed] = {}
        self.steps: list[str] = []
        self.during: Callable[[], object] = lambda: None  # what happens during a step
        self.failing: dict[str, SyncError] = {}  # by cluster
        self.slow: dict[str, asyncio.Event] = {}  # by policy: what its copies fail after
        self.under_way = 0  # of those

    def policies(self) -> Iterable[PolicyId]:
        return {key.policy for key in self.there}

    def placed(self, policy: PolicyId) -> Mapping[str, Placed]:
        found = {key.cluster: one for key, one in self.there.items() if key.policy == policy}
        return dict(sorted(found.items()))

    async def apply(self, copy: Copy) -> None:
        if (gate := self.slow.get(copy.key.policy.name)) is not None:
            self.under_way += 1
            await gate.wait()
            msg = "too slow"
            raise Conflict(msg)
        self._do("apply", copy.key)
        gateways = parse_keys(copy.body["metadata"]["annotations"][GATEWAYS])
        for key in [*self.there]:
            if key.cluster == copy.key.cluster and key.policy[1:] == copy.key.policy[1:]:
                del self.there[key]  # one object, whatever version it was written in
        self.there[copy.key] = Placed(copy.key, copy.digest, None, None, gateways)

    async def mark_for_removal(self, key: CopyKey, at: float) -> None:
        self._do("leave", key)
        self.there[key] = replace(self.there[key], remove_after=at)

    async def remove(self, key: CopyKey) -> None:
        self._do("remove", key)
        self.there.pop(key, None)

    def say(self, key: CopyKey, *reports: Report, **values: str | int) -> None:
        """Have a cluster answer; `reports`: what entries of the copy's ancestors say."""
        found = self.there[key]
        told = {"digest": found.digest, "generation": 1, **values}
        feedback = Feedback(applied=True, values=told, reports=reports)
        self.there[key] = replace(found, feedback=feedback)
        self.on_change(key.policy)

    def hold(self, one: Placed) -> None:
        """Have a copy there from before."""
        self.there[one.key] = one
        self.on_change(one.key.policy)

    def _do(self, what: str, key: CopyKey) -> None:
        self.during()
        if (error := self.failing.get(key.cluster)) is not None:
            raise error
        self.steps.append(f"{what} {key.policy.name} {key.cluster}")
