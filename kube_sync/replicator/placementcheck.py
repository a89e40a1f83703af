"""Check decided placements for clusters that are not in the fleet, and decisions for errors.

The result is a note on the decision stream, and a warning on the policy: the remediator holds such
placements, and reports that only beside the workloads.

Level-based: each check compares all decisions with the names of all clusters, and the pause between
two checks is twenty times as long as the last check. Invariant: while the clusters are not current,
or the decisions are held, the last result stays. It sends OPA no queries, and nothing waits for it.
The cluster names are those in OPA. Their labels are not kept, so only the remediator evaluates
cluster selectors.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from operator import attrgetter
from typing import Final, NoReturn

from kube_sync.config import CLUSTERS
from kube_sync.decisions.changelog import EncodedVerdict
from kube_sync.decisions.decision import PLACEMENT, Decision
from kube_sync.decisions.decision_reader import Modules, Row, rows_of_annotation, rows_with_literal
from kube_sync.decisions.hub import DecisionHub
from kube_sync.guard import Inventory, Placements
from kube_sync.guard.placements import Clusters
from kube_sync.policies.policywarning import PolicyWarning, Warnings, by_module
from kube_sync.replicator.mirror import Mirror

_REST_SECONDS: Final = 2.0  # minimum pause between two checks
_SHARE: Final = 20
_SLICE: Final = 1_000  # objects processed between two yields to other tasks
_NAMES: Final = 10  # unknown names that are searched for in policies
_encoded = attrgetter("encoded")  # not a generator: it is called for every object


class PlacementCheck:
    """Compares decided placements with the fleet."""

    def __init__(
        self,
        hub: DecisionHub,
        placements: Placements,
        inventory: Callable[[], Inventory | None],
        modules: Callable[[], Modules],
        warn: Callable[[Warnings], None],
        failing_rows: Callable[[str], Collection[Row]],
        *,
        rest: float = _REST_SECONDS,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        """`inventory` returns the known clusters, `modules` the policies in force.

        Each check calls `warn` with the warnings by module; `failing_rows` returns the rows that
        cause a failure of decisions.
        """
        self._hub = hub
        self._placements = placements
        self._inventory = inventory
        self._modules = modules
        self._warn = warn
        self._failing_rows = failing_rows
        self._rest = rest
        self._clock = clock
        self._sleep = sleep
        self._news = asyncio.Event()

    def written(self, name: str) -> None:
        """Handle a write of a collection into OPA."""
        if name == CLUSTERS:
            self._news.set()

    async def run(self) -> NoReturn:
        """Check whenever the result may change, until cancelled."""
        while True:
            self._news.clear()
            # Registered before the check: changes during the check or the pause start another one.
            self._hub.waiting.add(self._news)
            begun = self._clock()
            await self._look()
            await self._sleep(max(self._rest, _SHARE * (self._clock() - begun)))
            await self._news.wait()

    async def _look(self) -> None:
        late = {one.source for one in self._hub.freshness.sources}
        if self._hub.held or CLUSTERS in late:
            return
        told = await self._told()
        failures = {t.verdict.failure for t in told if t.verdict.failure is not None}
        said, note = [*self._of_failures(failures)], None
        if (inventory := self._inventory()) is not None:
            unknown, note = self._compared(inventory, told)
            said += self._of_names(inventory, unknown)
        self._hub.note("placements", note)
        self._warn(by_module(said))

    async def _told(self) -> Counter[EncodedVerdict]:
        """Return the current decisions, each with its number of objects."""
        found, entries = Counter[EncodedVerdict | None](), [*self._hub.log]
        for start in range(0, len(entries), _SLICE):
            found.update(map(_encoded, entries[start : start + _SLICE]))
            await asyncio.sleep(0)
        return Counter({one: number for one, number in found.items() if one is not None})

    def _compared(
        self, inventory: Inventory, told: Mapping[EncodedVerdict, int]
    ) -> tuple[frozenset[str], str | None]:
        """Return the names without a cluster, and the note for readers."""
        names, some, lost = set[str](), 0, 0
        for one, number in told.items():
            decision = one.verdict.decision
            if decision is None or decision.errors or one.verdict.failure is not None:
                continue
            places = [*self._places(decision)]
            unknown = frozenset[str]().union(*map(inventory.unknown, places))
            names |= unknown
            some += number if unknown else 0
            is_lost = not decision.evict and any(map(inventory.nowhere, places))
            lost += number if is_lost and unknown else 0
        if not names:
            return frozenset(), None
        note = f"{some} placements name clusters that are unknown, {lost} of them no other ones"
        return frozenset(names), f"{note}: {inventory.description(frozenset(names))}"

    def _places(self, decision: Decision) -> Iterable[Clusters]:
        read = self._placements.read(decision.annotations)
        return (clusters for clusters in read.values() if clusters is not None)

    def _of_names(self, inventory: Inventory, unknown: Collection[str]) -> Iterable[PolicyWarning]:
        """Yield a warning for each unknown name, on the policies that contain it or else all."""
        modules = self._modules() if unknown else {}
        for name in sorted(unknown)[:_NAMES]:
            for module, row in rows_with_literal(modules, name) or rows_of_annotation(
                modules, PLACEMENT
            ):
                text = f"{_key(module)} row {row}: {inventory.description(frozenset([name]))}"
                text += "; workloads that get no other cluster are not moved there"
                yield PolicyWarning("unknown_cluster", module, row, text)

    def _of_failures(self, failures: Iterable[str]) -> Iterable[PolicyWarning]:
        for failure in sorted(failures):
            for module, row in self._failing_rows(failure):
                text = f"decisions cannot be used: {failure}"
                yield PolicyWarning("unusable_decision", module, row, text)


def _key(module: str) -> str:
    """Return the key of a module in its policy, by which its author knows it."""
    return module.split("/", 2)[-1]


def fleet_names(collections: Iterable[Mirror]) -> Inventory | None:
    """Return the replicated clusters, None if there are none, or if they are not known."""
    found = next((one for one in collections if one.name == CLUSTERS), None)
    if found is None or not found.known or not found.loaded:
        return None
    keys = [*found.keys()]
    names = frozenset(key.name for key in keys)
    qualified = frozenset(str(key) for key in keys if key.namespace)
    return Inventory(names, qualified=qualified) if keys else None
