"""Staged policies beside the set in force: lanes, a canary, candidates; for PolicyReconciler.

Invariant: the set in force neither waits for staged policies nor is changed by them, except for a
canary that decided before OPA was loaded. The evaluators are notified that a lane or a canary ends
before OPA may hold another one, and that it exists once OPA holds it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial

from kube_sync.config import Settings
from kube_sync.decisions.batch_module import batch_module
from kube_sync.decisions.canary import Canary
from kube_sync.opa.analysis.result import Reads, joined
from kube_sync.opa.scratch import Modules
from kube_sync.policies.bundle import digest
from kube_sync.policies.configmap_status import not_put
from kube_sync.policies.delivery import Compiler, Delivery
from kube_sync.policies.epoch import Epoch
from kube_sync.policies.loaded_policies import Failures
from kube_sync.policies.placementpolicy_status import Policy
from kube_sync.policies.quarantine import Quarantine
from kube_sync.policies.reading import Reading
from kube_sync.policies.required_fields import Need
from kube_sync.policies.staging.canaries import Canaries, Counting, Halted, Offer
from kube_sync.policies.staging.lane_builder import Beside, LaneMaker
from kube_sync.policies.staging.lanes import Counted, Lanes
from kube_sync.policies.trial_run import Trial

_AGAIN_SECONDS = 30.0  # until lanes are built again after the compiler did not answer


@dataclass(frozen=True, slots=True)
class Staged:
    """The staged modules that OPA is to hold, and what data they need."""

    lane: Modules = field(default_factory=dict[str, str])
    lane_need: Need | None = None
    canary: Offer = field(default_factory=lambda: Offer({}))

    @property
    def modules(self) -> Modules:
        """All modules."""
        return {**self.lane, **self.canary.modules}

    @property
    def needs(self) -> list[Need | None]:
        """What each part needs, None if nothing."""
        return [self.lane_need, self.canary.need]


class Stages:
    """The stages of policies, from one epoch to the next."""

    def __init__(
        self,
        reading: Reading,
        news: asyncio.Event,
        *,
        lanes: Lanes,
        canaries: Canaries,
        candidates: Lanes,
    ) -> None:
        """`news` is set when staged modules or statuses have to be delivered.

        OPA holds no modules of `candidates`, which are only compiled.
        """
        self._reading = reading
        self._news = news
        self._lanes = lanes
        self._canaries = canaries
        self._candidates = candidates
        self._counted: Counted | None = None
        self._told_lane: tuple[str, Reads] | None = None
        self._told_canary: Canary | None = None
        self._told_counting: Counting | None = None
        self._canary_changing = False
        self._again: asyncio.TimerHandle | None = None

    @property
    def canary(self) -> Canary | None:
        """The canary that decides on the objects of its side, None if there is none."""
        return self._told_canary

    def begin(self) -> None:
        """Begin with an OPA that holds nothing."""
        self._told_lane = self._counted = None
        self._told_canary = self._told_counting = None
        self._canary_changing = False
        self._canaries.begin()

    def count(self, counted: Counted | None) -> None:
        """Record what a lane would change, for its policies' statuses; None: there is none."""
        self._counted = counted
        self._news.set()

    def count_canary(self, counted: Counted | None) -> None:
        """Record what the canary changes, or would; None: unknown."""
        self._canaries.count(counted)
        self._news.set()

    async def offer(self, way: Delivery, epoch: Epoch, beside: Beside, wanted: Modules) -> Staged:
        """Return the modules that OPA is to hold now: those built, whose data is loaded.

        A missing lane delays nothing: it is delivered after the set in force.
        """
        self._canaries.look(epoch.staged)
        lane, need = await self._lane(way, epoch, beside, wanted)
        if not epoch.applied.is_set():
            await self._canaries.make_first(beside)

        async def canary_need(modules: Modules) -> Need:
            together = {**way.static, **wanted, **modules}
            return await self._reading.need(together, lane="canary")

        hold = epoch.data.hold
        canary = await self._canaries.offer(beside, canary_need, lambda need: hold([need]))
        return Staged(lane, need, canary)

    def leave(self, epoch: Epoch, staged: Staged) -> None:
        """Announce what ends before OPA may hold something else."""
        if self._told_lane is not None and self._told_lane[0] != digest(staged.lane):
            self._tell_lane(epoch, {}, None)
        told, offer = self._told_canary, staged.canary
        if told is not None and offer.canary is None:
            self._told_canary, self._canary_changing = None, False
            epoch.staging.canary_changed(None)
        elif told is not None and offer.canary is not None and offer.canary.policy != told.policy:
            self._canary_changing = True
            epoch.staging.canary_changing()
        counting = self._told_counting
        if counting is not None and (offer.counting is None or offer.counting.of != counting.of):
            self._told_counting = None
            epoch.staging.counting_changed(None)

    def enter(self, epoch: Epoch, staged: Staged, reads: Reads, refused: Failures) -> None:
        """Announce what OPA holds now, without modules that it `refused`."""
        need = staged.lane_need
        if staged.lane and need is not None and not refused.keys() & staged.lane.keys():
            self._tell_lane(epoch, staged.lane, need.reads)
        self._enter_canary(epoch, staged.canary, reads, refused)

    def statuses(
        self, epoch: Epoch, beside: Beside, staged: Staged, refused: Failures
    ) -> Iterator[tuple[Policy, str]]:
        """Yield the status of each staged policy, as far as known."""
        made = self._lanes.made(epoch.beside, beside)
        # While its modules are held back, the data lacks what they read, and is listed again.
        if made is not None and (staged.lane or not made.modules):
            why = not_put({i: error for i, error in refused.items() if i in staged.lane})
            yield from self._lanes.statuses(epoch.beside, beside, self._counted, [*why])
        yield from self._candidates.statuses(epoch.candidates, beside)
        yield from self._canaries.statuses(epoch.staged, beside)

    async def make(self, epoch: Epoch, beside: Beside) -> None:
        """Build what to deliver next, after what is in force was reported."""
        if await self._lanes.make(epoch.beside, beside):
            self._news.set()
        if await self._canaries.make(beside):
            self._news.set()
        # If there is a change, another step follows.
        idle = not self._news.is_set()
        if idle and await self._candidates.make(epoch.candidates, beside):
            self._news.set()
        untried = any(one.untried for one in (self._lanes, self._canaries, self._candidates))
        if untried and self._again is None:
            self._again = asyncio.get_running_loop().call_later(_AGAIN_SECONDS, self._try_again)

    async def _lane(
        self, way: Delivery, epoch: Epoch, beside: Beside, wanted: Modules
    ) -> tuple[Modules, Need | None]:
        made = self._lanes.made(epoch.beside, beside)
        if made is None or not made.modules:
            return {}, None
        together = {**way.static, **wanted, **made.modules}
        need = await self._reading.need(together, lane="shadow")
        return (made.modules if epoch.data.hold([need]) else {}), need

    def _tell_lane(self, epoch: Epoch, modules: Modules, reads: Reads | None) -> None:
        lane = None if reads is None else (digest(modules), reads)
        if lane != self._told_lane:
            self._told_lane = lane
            epoch.staging.lane_changed(reads)

    def _enter_canary(self, epoch: Epoch, offer: Offer, reads: Reads, refused: Failures) -> None:
        if self._canaries.delivered(offer, refused):
            self._news.set()
        if refused.keys() & offer.modules.keys():
            return  # the next step removes it
        if offer.canary != self._told_canary or self._canary_changing:
            self._told_canary, self._canary_changing = offer.canary, False
            epoch.staging.canary_changed(offer.canary)
        counting = offer.counting
        if counting is not None:
            counting = replace(counting, reads=joined(reads, counting.reads))
        if counting != self._told_counting:
            self._told_counting = counting
            epoch.staging.counting_changed(counting)

    def _try_again(self) -> None:
        self._again = None
        self._news.set()


def stages_of(
    settings: Settings,
    compiler: Compiler,
    generated: Modules,
    *,
    quarantine: Quarantine,
    trial: Trial | None,
    halted: Halted,
) -> Callable[[Reading, asyncio.Event], Stages]:
    """Return a factory of the configured stages; `generated` modules are in each lane."""
    decision = settings.placement.path
    batch = partial(batch_module, settings.replicate.root, decision)
    make = partial(LaneMaker, compiler, generated, batch, quarantine=quarantine, trial=trial)
    everywhere = settings.asks_opa()
    return partial(
        Stages,
        lanes=Lanes(make(), "shadow"),
        canaries=Canaries(Lanes(make(), "canary"), decision, everywhere=everywhere, halted=halted),
        candidates=Lanes(make(), "candidate"),
    )
