"""The state of the one canary: its terms, whether it decides, and why it was halted.

Invariant: a canary decides only after it was counted and found within its limits, by this process
or an earlier one, as its status says. One that passed a limit decides nothing until it or its
limits are edited, also after a restart. Only the oldest canary is tried, so that no share is
applied to a policy that it was not written for. Pure but for log and metrics.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import structlog

from kube_sync.errors import NO_JSON
from kube_sync.kube.placementpolicies import PlacementPolicy
from kube_sync.kube.policynames import called, named
from kube_sync.kube.staging import CANARY, MAX_BREAKS, MAX_MOVES, NAMESPACES, SHARE
from kube_sync.objects import ObjectKey
from kube_sync.observability import metrics
from kube_sync.opa.analysis.moving import Trouble
from kube_sync.opa.scratch import Cause
from kube_sync.opa.sides import Side, side_of
from kube_sync.policies.bundle import digest
from kube_sync.policies.placementpolicy_status import Policy, said_before, unreadable
from kube_sync.policies.staging.lane_builder import Failures, stage_cause
from kube_sync.policies.staging.lanes import Counted
from kube_sync.policies.staging.promotion import Limits, passed

log: structlog.stdlib.BoundLogger = structlog.get_logger()

_COUNT = re.compile(r"[0-9]{1,9}")
_PART = re.compile(r"(0(\.[0-9]{1,12})?|1(\.0{1,12})?)")
_SURE: Final = 100  # one object of so many may be unknown when a canary begins to decide


@dataclass(frozen=True, slots=True)
class Terms:
    """The objects that a canary decides on, and the limits that halt it."""

    side: Side
    limits: Limits


class Halt(msgspec.Struct, frozen=True):
    """Why a canary was halted, and the counts at that time."""

    why: list[str]
    counts: dict[str, int]


class _Shown(msgspec.Struct, frozen=True):
    """A side as a status shows it."""

    share: str
    namespaces: list[str] = []


class _Said(msgspec.Struct, frozen=True):
    """The part of a status that the next process reads."""

    stage: str = ""
    modules: str = ""
    stands_for: str = ""
    effect: _Shown | None = None
    halted: Halt | None = None
    limits: Limits | None = None


class CanaryKeeper:
    """Tracks whether the canary decides; it outlives the epochs of OPA's data."""

    def __init__(self) -> None:
        self.policy: Policy | None = None
        self.failures: Failures = {}  # of other canaries
        self.effect: Side | None = None  # the objects it decides on
        self.halted: Halt | None = None
        self._terms: Terms | None = None
        self._is: tuple[ObjectKey, str, str] | None = None
        self._counted: Counted | None = None

    @property
    def identity(self) -> object:
        """A value that is equal as long as policy and content are the same."""
        return self._is

    @property
    def wanted(self) -> Side | None:
        """The objects it is to decide on, None if there is no canary, or it was halted."""
        return None if self._terms is None or self.halted is not None else self._terms.side

    def look(self, staged: Sequence[Policy]) -> None:
        """Find the canary among these, and its terms."""
        found, self.failures = _oldest(staged)
        self.policy, terms = found or (None, None)
        old, self._terms = self._terms, terms
        known, self._is = self._is, None if self.policy is None else _identity(self.policy)
        said = _said(self.policy)
        if self._is != known:
            self.effect = self.halted = self._counted = None
            if self.policy is not None and _tells_of(said, self._is) and terms is not None:
                self.effect = _side(said.effect, terms)
        elif old is not None and terms is not None and old.limits != terms.limits:
            self.halted = None
        if terms is not None and _tells_of(said, self._is) and said.limits == terms.limits:
            self.halted = self.halted or said.halted  # by this process or another one
        if self.halted is not None:
            self.effect = None
        self._measure()

    def counted(self, counted: Counted | None) -> None:
        """Record what it would change, None: unknown."""
        self._counted = counted

    def judge(self, of: object) -> None:
        """Start or halt the canary by its counts, if they are `of` the present state."""
        counted, terms = self._counted, self._terms
        if counted is None or counted.of != of or terms is None or self.halted is not None:
            return
        counts = {"objects": counted.objects, **counted.differences}
        if why := [*passed(counts, terms.limits)]:
            self.halted = Halt(why, counts)
            log.error("canary_halted", policy=str(self.policy and self.policy.key), why=why)
            self.effect = None
        elif counted.unknown * _SURE <= counted.objects and self.effect != terms.side:
            log.info("canary_decides", policy=str(self.policy and self.policy.key), side=terms.side)
            self.effect = terms.side
        self._measure()

    def fail(self) -> None:
        """Record that it can have no lane now: it starts over once it can."""
        self.effect = None
        self._measure()

    def status(self, policy: Policy, of: object, decides_with: Sequence[str] = ()) -> str:
        """Return the status of the canary as the text of a ConfigMap's annotation.

        `decides_with` names the policies in force that it decides with once it is active.
        """
        status: dict[str, Any] = {
            "status": "ok" if self.halted is None else "halted",
            "stage": CANARY,
            "stands_for": named(policy.stands_for or policy.key),
            "modules": digest(policy.modules),
            "effect": None if self.effect is None else _shown(self.effect),
            "limits": self._terms and self._terms.limits,
        }
        if decides_with:
            status["decides_with"] = decides_with
        counted = self._counted
        if self.halted is not None:
            status |= {"halted": self.halted, **self.halted.counts}
        elif counted is not None and counted.of == of:
            status |= {"objects": counted.objects, **counted.differences}
        return msgspec.json.encode(status).decode()

    def _measure(self) -> None:
        metrics.canary_in_effect.set(self.effect is not None)
        metrics.canary_halted.set(self.halted is not None)


def terms_of(policy: Policy) -> Terms:
    """Parse the terms of a canary. Raises ValueError."""
    said, limits = policy.terms, Limits()
    side = side_of(str(policy.stands_for), said.get(SHARE), said.get(NAMESPACES))
    breaks, moves = said.get(MAX_BREAKS), said.get(MAX_MOVES)
    if breaks is not None and _COUNT.fullmatch(breaks) is None:
        msg = f"annotation {MAX_BREAKS}: {breaks!r:.80} is no number of objects"
        raise ValueError(msg)
    if moves is not None and _PART.fullmatch(moves) is None:
        msg = f"annotation {MAX_MOVES}: {moves!r:.80} is no share: a number from 0 to 1"
        raise ValueError(msg)
    return Terms(
        side,
        Limits(
            limits.breaks if breaks is None else int(breaks),
            limits.moves if moves is None else float(moves),
        ),
    )


def _oldest(
    staged: Sequence[Policy],
) -> tuple[tuple[Policy, Terms] | None, dict[ObjectKey, list[Cause]]]:
    """Return the oldest canary with its terms, and why the others are none."""
    first: tuple[Policy, Terms] | None = None
    failures: dict[ObjectKey, list[Cause]] = {}
    canaries = (policy for policy in staged if policy.stage == CANARY)
    for policy in sorted(canaries, key=lambda policy: (policy.born, policy.key)):
        if causes := unreadable(policy):
            failures[policy.key] = [*causes]
            continue
        try:
            terms = terms_of(policy)
        except ValueError as error:
            failures[policy.key] = [stage_cause(Trouble(0, f"it is no canary: {error}"))]
            continue
        if first is None:
            first = policy, terms
        else:
            message = f"it waits for {called(first[0].key)}, which is older: one canary at a time"
            failures[policy.key] = [stage_cause(Trouble(0, message))]
    return first, failures


def _identity(policy: Policy) -> tuple[ObjectKey, str, str]:
    return policy.key, digest(policy.modules), named(policy.stands_for or policy.key)


def _said(policy: Policy | None) -> _Said:
    try:
        if isinstance(policy, PlacementPolicy):
            return msgspec.convert(said_before(policy), _Said)
        return msgspec.json.decode((policy and policy.status) or "{}", type=_Said)
    except NO_JSON:
        return _Said()


def halted_before(policy: Policy) -> str | None:
    """Return the status, as annotation text, of a policy that was halted; None for others."""
    said = _said(policy)
    if policy.stage != CANARY or said.halted is None or not _tells_of(said, _identity(policy)):
        return None
    if isinstance(policy, PlacementPolicy):
        return msgspec.json.encode(said_before(policy)).decode()
    return policy.status


def _tells_of(said: _Said, identity: tuple[ObjectKey, str, str] | None) -> bool:
    return identity is not None and (said.stage, said.modules, said.stands_for) == (
        CANARY,
        *identity[1:],
    )


def _side(shown: _Shown | None, terms: Terms) -> Side | None:
    if shown is None:
        return None
    try:
        return side_of(terms.side.stands_for, shown.share, ",".join(shown.namespaces))
    except ValueError:  # edited by hand
        return None


def _shown(side: Side) -> Mapping[str, object]:
    return {"share": side.share, "namespaces": sorted(side.namespaces)}
