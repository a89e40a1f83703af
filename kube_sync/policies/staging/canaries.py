"""The canary's modules in OPA: its lane, and the entry module that routes objects to both sides.

Invariant: the entry is in OPA only together with the lane that it routes to, and is removed first.
A lane is counted only if it was built for exactly the set in force. A canary that decides keeps its
lane until a new one is built for the new set in force, so that no object switches back and forth
for an edit of another policy.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from kube_sync.decisions.canary import Canary
from kube_sync.errors import Retriable
from kube_sync.opa.analysis.result import Reads
from kube_sync.opa.client import OpaError
from kube_sync.opa.entry import ENTRY_MODULE, entry_module
from kube_sync.opa.scratch import Cause, Modules
from kube_sync.opa.sides import Side
from kube_sync.policies.bundle import digest
from kube_sync.policies.configmap_status import STAGE, account, not_put
from kube_sync.policies.placementpolicy_status import Policy
from kube_sync.policies.required_fields import Need
from kube_sync.policies.staging.canary import CanaryKeeper, Halt, halted_before
from kube_sync.policies.staging.lane_builder import Beside, Staged
from kube_sync.policies.staging.lanes import Counted, Lanes
from kube_sync.policies.staging.neighbours import neighbours

_NOTHING: Cause = {
    "code": STAGE,
    "message": "nothing is in force that decides on the other objects: make it active, or shadow",
}

_ELSEWHERE: Cause = {
    "code": STAGE,
    "message": "the webhook asks for decisions elsewhere (admission.engine), and knows no canary",
}

_TRIES = 5  # to build the lane of a deciding canary at the start

Halted = Callable[[Policy, Halt], None]  # called when a canary passes a limit
NeedOf = Callable[[Modules], Awaitable[Need]]  # of a lane, by its modules


@dataclass(frozen=True, slots=True)
class Counting:
    """What to count: the objects of a side, by a lane that reads this."""

    of: object
    side: Side
    reads: Reads


class StagedDecisions(Protocol):
    """Evaluates what is staged in OPA."""

    def lane_changed(self, reads: Reads | None) -> None:
        """Handle a new shadow lane in OPA that reads this, None: there is none."""

    def counting_changed(self, counting: Counting | None) -> None:
        """Handle a change of the canary lane to count; None: there is none."""

    def canary_changing(self) -> None:
        """Prepare for a change of the canary in OPA."""

    def canary_changed(self, canary: Canary | None) -> None:
        """Handle a change of the canary that decides on its side, None: there is none."""


@dataclass(frozen=True, slots=True)
class Offer:
    """The modules for the canary that OPA is to hold, and what is true once it does."""

    modules: Modules
    need: Need | None = None
    sources: Modules = field(default_factory=dict[str, str])  # of the lane, before it was moved
    canary: Canary | None = None  # decides from then on
    counting: Counting | None = None
    waits: bool = False  # a deciding canary waits for data that its lane reads


_NONE = Offer({})


@dataclass(frozen=True, slots=True)
class _Standing:
    """The lane that OPA holds."""

    identity: object
    modules: Modules
    need: Need
    sources: Modules


class Canaries:
    """Manages the canary, through the epochs of OPA's data."""

    def __init__(
        self,
        lanes: Lanes,
        decision: str,
        *,
        everywhere: bool = True,
        halted: Halted = lambda _policy, _halt: None,
    ) -> None:
        """Route to the `decision`, a path, by `lanes` that are built for the canary.

        There is no canary unless the webhook queries this OPA `everywhere`. `halted` is called when
        a canary passes a limit.
        """
        self._tell_halted = halted
        self._everywhere = everywhere
        self._lanes = lanes
        self._decision = decision
        self._keeper = CanaryKeeper()
        self._held: _Standing | None = None  # None: OPA holds no lane, as far as known
        self._entered = False  # OPA may hold the entry
        self._refused: tuple[str, Sequence[Cause]] | None = None  # lane that OPA rejected, and why
        self._of: object = None  # identity of what is counted
        self._tries = _TRIES

    def begin(self) -> None:
        """Forget what OPA holds."""
        self._held, self._entered, self._refused = None, False, None
        self._tries = _TRIES

    def count(self, counted: Counted | None) -> None:
        """Record what the canary would change."""
        self._keeper.counted(counted)

    @property
    def decides(self) -> bool:
        """Whether it decides, or did when the last process ended."""
        return self._keeper.effect is not None

    def look(self, staged: Sequence[Policy]) -> None:
        """Find the canary among these."""
        self._keeper.look(staged)

    async def make_first(self, beside: Beside) -> None:
        """Build its lane before the first decision, if it decided before. Raises Retriable.

        Without it its objects would switch back for a while; the number of attempts is limited.
        """
        if not self.decides or not self._wanted(beside) or not self._tries:
            return
        await self._lanes.make(self._staged, beside)
        if self._lanes.made(self._staged, beside) is None:
            self._tries -= 1
            msg = "the set of the canary, which decides, cannot be made"
            raise Retriable(msg)

    async def make(self, beside: Beside) -> bool:
        """Build its lane unless it is built; return whether there is a change."""
        if not self._wanted(beside):
            return False
        return await self._lanes.make(self._staged, beside)

    @property
    def untried(self) -> bool:
        """Whether its lane has to be built again, since the compiler did not answer."""
        return self._lanes.untried

    async def offer(self, beside: Beside, need_of: NeedOf, hold: Callable[[Need], bool]) -> Offer:
        """Return the modules that OPA is to hold now; `hold` returns whether OPA has their data."""
        offer = await self._offer(beside, need_of, hold)
        if self._entered and offer.canary is None and self._held is not None:
            # First without the entry: nothing may be routed to a lane that is being removed.
            return Offer(self._held.modules, self._held.need, self._held.sources)
        # Set already here, since a delivery may fail halfway.
        self._entered = self._entered or ENTRY_MODULE in offer.modules
        return offer

    async def _offer(self, beside: Beside, need_of: NeedOf, hold: Callable[[Need], bool]) -> Offer:
        keeper, side = self._keeper, self._keeper.wanted
        if side is None or not self._wanted(beside):
            if side is not None:
                keeper.fail()
            return _NONE
        made = self._lanes.made(self._staged, beside)
        if made is None:
            return self._as_it_is()
        if not made.modules or (self._refused and self._refused[0] == digest(made.modules)):
            keeper.fail()
            return _NONE
        need = await need_of(made.modules)
        if not hold(need):
            waits = self._as_it_is()
            return waits if waits.modules else Offer({}, need, waits=self.decides)
        of = digest(made.modules), digest(_together(beside)), side
        keeper.judge(of)
        if keeper.halted is not None:
            if keeper.policy is not None:
                self._tell_halted(keeper.policy, keeper.halted)
            return _NONE
        return self._deciding(made, need, Counting(of, side, need.reads))

    def _as_it_is(self) -> Offer:
        """Return the lane that decides already, until its next one is built."""
        held = self._held
        if held is None or held.identity != self._keeper.identity or not self.decides:
            return _NONE
        return self._deciding(Staged(held.modules, sources=held.sources), held.need, None)

    def _deciding(self, made: Staged, need: Need, counting: Counting | None) -> Offer:
        side = self._keeper.effect
        if side is None:
            return Offer(made.modules, need, made.sources, None, counting)
        entry = {ENTRY_MODULE: entry_module(self._decision, side)}
        # By the digest it would have in force, under which its modules are recorded.
        canary = Canary(side, digest(made.sources), need.reads, made.sources)
        return Offer({**made.modules, **entry}, need, made.sources, canary, counting)

    def delivered(self, offer: Offer, refused: Mapping[str, OpaError]) -> bool:
        """Record that OPA holds this, without `refused` modules; return if more is to do."""
        lane = {i: source for i, source in offer.modules.items() if i != ENTRY_MODULE}
        was_entered, self._entered = self._entered, ENTRY_MODULE in offer.modules
        if offer.need is None or not lane:
            self._held = None
        elif self._held is None or self._held.modules != lane:
            self._held = _Standing(self._keeper.identity, lane, offer.need, offer.sources)
        self._of = None if offer.counting is None else offer.counting.of
        if causes := [*not_put({i: e for i, e in refused.items() if i in offer.modules})]:
            self._refused = digest(lane), causes
        return bool(causes) or (was_entered and not self._entered)

    def statuses(self, staged: Sequence[Policy], beside: Beside) -> Iterator[tuple[Policy, str]]:
        """Yield the status text of each canary among these."""
        keeper = self._keeper
        for policy in staged:
            if policy is keeper.policy and keeper.halted is not None:
                yield policy, self._status(policy, beside)
            elif policy is not keeper.policy and (halted := halted_before(policy)) is not None:
                # It is recorded nowhere else, and the canary would decide again when its turn
                # comes.
                yield policy, halted
            elif causes := self._causes(policy, beside):
                yield policy, account(causes, (), in_force=False)
            elif policy is keeper.policy and self._is_settled(beside):
                yield policy, self._status(policy, beside)

    def _status(self, policy: Policy, beside: Beside) -> str:
        return self._keeper.status(policy, self._of, neighbours(policy, beside.versions))

    def _causes(self, policy: Policy, beside: Beside) -> Sequence[Cause]:
        """Return why a policy is no canary."""
        if policy is not self._keeper.policy:
            return self._keeper.failures.get(policy.key, ())
        if not self._everywhere:
            return [_ELSEWHERE]
        if not _is_in_force(beside):
            return [_NOTHING]
        made = self._lanes.made(self._staged, beside)
        if made is None:
            return ()
        refused = self._refused
        if refused is not None and refused[0] == digest(made.modules):
            return refused[1]
        return made.failures.get(policy.key, ())

    def _is_settled(self, beside: Beside) -> bool:
        """Return whether the canary has a status to report."""
        keeper = self._keeper
        if keeper.halted is not None or self._held is not None:
            return True
        made = self._lanes.made(self._staged, beside)
        return made is not None and not made.modules

    @property
    def _staged(self) -> list[Policy]:
        policy = self._keeper.policy
        return [] if policy is None else [policy]

    def _wanted(self, beside: Beside) -> bool:
        possible = self._everywhere and _is_in_force(beside)
        return possible and self._keeper.wanted is not None


def _is_in_force(beside: Beside) -> bool:
    return any(beside.versions.values())


def _together(beside: Beside) -> dict[str, str]:
    return {i: source for modules in beside.versions.values() for i, source in modules.items()}
