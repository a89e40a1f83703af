"""The story of one workload: its decision, the input and the rules, and its writes.

Invariant: of the object itself only fields that policies read are returned; a missing part has
a reason, and the others are returned.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from kube_sync.config import Resource
from kube_sync.decisions.canary import Canary
from kube_sync.decisions.explaining import Explaining, Explanation, Rule
from kube_sync.decisions.history import Change, History
from kube_sync.decisions.hub import DecisionHub
from kube_sync.decisions.input_values import Input, inputs
from kube_sync.decisions.records import DecisionRecord, DeletedRecord, Target
from kube_sync.decisions.requested import as_requested
from kube_sync.errors import SyncError
from kube_sync.objects import ObjectKey
from kube_sync.opa.analysis.result import Reads
from kube_sync.opa.sides import Side, description
from kube_sync.ui.fleet import Data
from kube_sync.ui.remediator_client import RemediatorStatus
from kube_sync.ui.replication import Replication


class RelatedCollection(msgspec.Struct, frozen=True):
    """A collection that the page reads beside the object itself."""

    collection: str
    fields: tuple[str, ...]


class OnSide(msgspec.Struct, frozen=True):
    """The canary that decides on an object, as in its ConfigMap's annotations."""

    stands_for: str
    share: str
    namespaces: tuple[str, ...]
    told: str  # the side, for people


class Story(msgspec.Struct, frozen=True, kw_only=True):
    """Everything known about one workload; a `…_failure` is why a part is missing."""

    v: int = 1
    record: DecisionRecord | None  # None: no decision
    canary: OnSide | None = None  # None: the policies in force decide
    inputs: tuple[Input, ...] = ()
    inputs_failure: str | None = None
    looked_at: tuple[RelatedCollection, ...] = ()
    rules: tuple[Rule, ...] = ()
    rules_failure: str | None = None
    decided_otherwise: bool = False  # evaluated now, the decision differs from the last one
    history: tuple[Change, ...] = ()
    history_since: float
    history_cut: bool
    waiting: tuple[Any, ...] = ()  # as the remediator's status has them
    waiting_failure: str | None = None


class Stories:
    """Assembles stories."""

    def __init__(
        self,
        hub: DecisionHub,
        replication: Replication,
        history: History,
        opa: Data,
        explaining: Explaining,
        *,
        remediator: Callable[[], Any],
        targets: Callable[[], Sequence[Resource]],
        root: str,
    ) -> None:
        """`remediator` returns its status; `targets` are the resources with decisions."""
        self._hub = hub
        self._replication = replication
        self._history = history
        self._opa = opa
        self._explaining = explaining
        self._remediator = remediator
        self._targets = targets
        self._root = root

    async def read(self, target: Target) -> Story | None:
        """Return the story of an object, None without a current or recent decision."""
        entry = self._hub.log.get(target)
        record = None if entry is None else entry.record
        record = None if isinstance(record, DeletedRecord) else record
        past = self._history.of(target)
        if record is None and not past.changes:
            return None
        body, failure = await self._body(target)
        canary = self._canary(target)
        explanation = await self._explained(body, canary)
        waiting, waiting_failure = await self._waiting(target)
        found = Story(
            record=record,
            canary=None if canary is None else _on(canary.side),
            inputs_failure=failure,
            rules=explanation.rules,
            rules_failure=explanation.failure,
            decided_otherwise=_otherwise(record, body, explanation),
            history=past.changes,
            history_since=past.complete_since,
            history_cut=past.cut,
            waiting=waiting,
            waiting_failure=waiting_failure,
        )
        reads = self._replication.policies.reads if canary is None else canary.reads
        return _with_inputs(found, body, reads)

    def _canary(self, target: Target) -> Canary | None:
        """Return the canary that decides on an object."""
        canary = self._replication.policies.canary
        key = ObjectKey(target.namespace, target.name)
        return canary if canary is not None and canary.side.has(key) else None

    async def _body(self, target: Target) -> tuple[bytes | None, str | None]:
        """Return the object as a decision's input, from OPA, or why it is missing."""
        names = (r.name for r in self._targets() if r.gvr == target.gvr)
        if (name := next(names, None)) is None:
            return None, "decisions are not about this resource any more"
        inside = (target.namespace, target.name) if target.namespace else (target.name,)
        try:
            body = await self._opa.get_data((self._root, name, *inside))
            return (None, "OPA does not hold it") if body is None else (as_requested(body), None)
        except SyncError as error:
            return None, str(error)
        except (msgspec.DecodeError, RecursionError):
            return None, "the object cannot be read"

    async def _explained(self, body: bytes | None, canary: Canary | None) -> Explanation:
        if body is None:
            return Explanation(failure="there is nothing to ask about")
        if canary is not None:
            return await self._explaining.explain(body, canary.modules, "canary")
        return await self._explaining.explain(body, self._replication.policies.in_force)

    async def _waiting(self, target: Target) -> tuple[tuple[Any, ...], str | None]:
        answer: RemediatorStatus = await self._remediator()
        if answer.failure is not None:
            return (), answer.failure
        status = answer.status if isinstance(answer.status, dict) else {}
        entries = status.get("waiting")
        found = (e for e in entries or () if isinstance(e, dict) and _is(e, target))
        return tuple(found), None


def _on(side: Side) -> OnSide:
    return OnSide(side.stands_for, side.share, tuple(sorted(side.namespaces)), description(side))


def _with_inputs(story: Story, body: bytes | None, reads: Reads | None) -> Story:
    if body is None:
        return story
    if reads is None or reads.gave_up is not None:
        reason = "no policies are in force" if reads is None else reads.gave_up
        return msgspec.structs.replace(story, inputs_failure=f"not known: {reason}")
    try:
        read = inputs(msgspec.json.decode(body, type=dict[str, Any]), reads.input)
    except (msgspec.DecodeError, RecursionError):
        return msgspec.structs.replace(story, inputs_failure="the object cannot be read")
    return msgspec.structs.replace(story, inputs=read, looked_at=_related(reads))


def _is(entry: Mapping[str, Any], target: Target) -> bool:
    found = (entry.get("resource"), entry.get("namespace"), entry.get("name"))
    return found == (str(target.gvr), target.namespace, target.name)


def _related(reads: Reads) -> tuple[RelatedCollection, ...]:
    lines = ((n, inputs({}, document)) for n, document in sorted(reads.resources.items()))
    return tuple(
        RelatedCollection(n, tuple(one.path for one in found)) for n, found in lines if found
    )


def _otherwise(record: DecisionRecord | None, body: bytes | None, explanation: Explanation) -> bool:
    if body is None or explanation.failure is not None or record is None or record.failure:
        return False
    return record.decision != explanation.decision
