"""Share one evaluation among all objects of a class, and cache the decision of each class.

Invariant: only objects of the evaluated class share a decision, by their classes as OPA was last
known to hold them. A decision is cached for one state of policies and data; a change of either
causes another evaluation. If it is uncertain which state of the representative was evaluated, the
answer counts for it alone, and the others are evaluated again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice

import structlog

from kube_sync.decisions.basis import BasisPublisher
from kube_sync.decisions.class_metrics import ClassMetrics
from kube_sync.decisions.classes import Member, Objects, may_share
from kube_sync.decisions.evaluation_queue import Cause, Changed, Evaluation, Group, Sweep
from kube_sync.decisions.evaluator import Outcome
from kube_sync.decisions.hub import DecisionHub
from kube_sync.decisions.policysets import Division, PolicySets, SinglePolicySet
from kube_sync.decisions.records import Target
from kube_sync.objects import GroupVersionResource, ObjectKey
from kube_sync.observability import tracing
from kube_sync.opa.analysis.result import Reads

log: structlog.stdlib.BoundLogger = structlog.get_logger()

_SPARE = 1_000  # cached decisions of former classes that are not worth removing
OBJECTS_PER_YIELD = 500  # objects between two yields to other tasks


@dataclass(frozen=True, slots=True)
class Answer:
    """The decision of a class, for these objects."""

    evaluation: Evaluation
    outcome: Outcome


class Awaited:
    """The objects that have no decision yet since the load of OPA began."""

    def __init__(self) -> None:
        self._keys: dict[str, set[ObjectKey]] = {}  # by collection, none of them empty

    def __bool__(self) -> bool:
        """Return whether any object has no decision yet."""
        return bool(self._keys)

    def expect(self, sweep: Sweep) -> None:
        """Await the first decision on each object of a sweep, and on no other."""
        self._keys = {}
        for (name, _), group in sweep.items():
            self._keys.setdefault(name, set()).update(group.keys)

    def decided(self, name: str, *keys: ObjectKey) -> None:
        """Record that objects have a decision, or are gone."""
        if (awaited := self._keys.get(name)) is None:
            return
        awaited.difference_update(keys)
        if not awaited:
            del self._keys[name]

    def forget(self, name: str) -> None:
        """Await nothing of a collection any more."""
        self._keys.pop(name, None)


class Sharing:
    """The decisions of classes, through one epoch of OPA's data."""

    def __init__(self, hub: DecisionHub, basis: BasisPublisher) -> None:
        self._basis = basis
        self._hub = hub
        self._in_force = SinglePolicySet()
        # None: the set in force decides on all.
        self._sets_for: Callable[[SinglePolicySet], PolicySets] | None = None
        self._sets: PolicySets = self._in_force
        self._reads: Reads | None = None  # of all sets
        self._may_share = False
        self._changing: set[str] = set()  # policies, division
        # With the state of the data.
        self._cached: dict[tuple[str, bytes], tuple[Outcome, int]] = {}
        self._revision = 0
        self._metrics = ClassMetrics()
        self.awaited = Awaited()

    def policies_changing(self) -> None:
        """Share nothing until it is known what the next policies read."""
        self._changing.add("policies")
        self._update_sets()
        self.invalidate()

    def policies_changed(self, digest: str, reads: Reads) -> None:
        """Decide by the policies with this digest, which read this."""
        self._in_force = SinglePolicySet(digest, reads)
        self._changing.discard("policies")
        self._update_sets()
        self.invalidate()

    def division_changing(self) -> None:
        """Share nothing until it is known what the sets beside the one in force read next."""
        self._changing.add("division")
        self._update_sets()
        self.invalidate()

    def division_changed(self, division: Division) -> None:
        """Let objects be decided by the sets that they are divided among."""
        self._sets_for = division.divide
        self._changing.discard("division")
        self._update_sets()
        self._begin_revision()  # pending evaluations may be of either
        for ident in [one for one in self._cached if division.is_outdated(one[1])]:
            del self._cached[ident]

    def _update_sets(self) -> None:
        self._sets = self._in_force if self._sets_for is None else self._sets_for(self._in_force)
        self._reads = self._sets.reads
        self._may_share = not self._changing and self._reads is not None and may_share(self._reads)

    def policies_renamed(self, digest: str) -> None:
        """Change the digest of the policies in force, which decide the same."""
        self._in_force = replace(self._in_force, digest=digest)
        self._update_sets()
        self._begin_revision()

    def invalidate(self) -> None:
        """Drop cached decisions, since they may be out of date."""
        self._cached.clear()
        self._begin_revision()

    def _begin_revision(self) -> None:
        self._revision += 1
        self._basis.publish(self._sets, self._reads, is_changing=bool(self._changing))

    def may_read(self, name: str) -> bool:
        """Return whether decisions may depend on other objects of a collection."""
        read = self._reads.resources.get(name) if self._reads is not None else None
        return read is None or read.used

    @property
    def is_impure(self) -> bool:
        """Whether decisions change without any change of data."""
        return self._reads is not None and bool(self._reads.impure)

    def group_by_class(
        self, collection: Objects, keys: Collection[ObjectKey], cause: Cause
    ) -> Sweep:
        """Return a sweep of all these objects, grouped by class."""
        sweep: Sweep = {}
        if self._may_share and self._sets is self._in_force:
            # The classes are as they are: all objects at once, since this may be half a million.
            revision = collection.members.revision
            for kind, (members, uids) in collection.members.by_class().items():
                sweep[collection.name, kind] = Group(members, cause, uids, revision)
            keys = collection.members.without(keys)
        for key in keys:
            member = self._member(collection, key)
            ident = collection.name, key if member is None else member.kind
            if (group := sweep.get(ident)) is None:
                group = sweep[ident] = Group([], cause)
            group.keys.append(key)
        return sweep

    def take_changed(
        self, queue: Changed, collection: Objects, gvr: GroupVersionResource, batch_size: int
    ) -> list[Evaluation]:
        """Take the next evaluations from a queue; publish decisions that are cached."""
        evaluations: dict[object, Evaluation] = {}
        for (name, key), cause in [*islice(queue.items(), OBJECTS_PER_YIELD)]:
            if name != collection.name:
                continue
            member = self._member(collection, key)
            if member is not None and (cached := self._cached.get((name, member.kind))) is not None:
                alike = [(key, member.uid)]
                self._publish(name, gvr, alike, cached[0], cause, data=cached[1])
            elif not self._add_to_query(evaluations, collection, key, cause, member, batch_size):
                continue
            queue.pop((name, key))
        return [*evaluations.values()]

    def take_swept(
        self, sweep: Sweep, collection: Objects, batch_size: int
    ) -> tuple[list[Evaluation], list[Answer]]:
        """Take the next evaluations from a sweep, and cached decisions."""
        evaluations: dict[object, Evaluation] = {}
        cached: list[Answer] = []
        for ident, group in [*islice(sweep.items(), OBJECTS_PER_YIELD)]:
            if ident[0] != collection.name:
                continue
            if not self._take_group(evaluations, cached, collection, ident[1], group, batch_size):
                break
            del sweep[ident]
        return [*evaluations.values()], cached

    def _take_group(
        self,
        evaluations: dict[object, Evaluation],
        answers: list[Answer],
        collection: Objects,
        kind: bytes | ObjectKey,
        group: Group,
        batch_size: int,
    ) -> bool:
        """Add a group to the query; return whether there was room."""
        if isinstance(kind, ObjectKey):
            member = self._member(collection, kind)
            cached = None if member is None else self._cached.get((collection.name, member.kind))
            if member is None or cached is None:
                return self._add_to_query(
                    evaluations, collection, kind, group.cause, member, batch_size
                )
            self._answer(answers, member.kind, group, cached)
            return True
        if (cached := self._cached.get((collection.name, kind))) is not None:
            self._answer(answers, kind, group, cached)
            return True
        if (evaluation := evaluations.get(kind)) is not None:
            evaluation.groups.append(group)
            return True
        if len(evaluations) >= batch_size:
            return False
        # If all members have changed since, one of them is evaluated for itself alone.
        fitting = (
            index
            for index, key in enumerate(group.keys)
            if self._is_of_class(collection, key, kind) and not collection.is_pending(key)
        )
        if index := next(fitting, 0):
            group.begin_with(index)
        evaluations[kind] = Evaluation(kind, [group], self._revision, self._hub.data)
        return True

    def _answer(
        self, answers: list[Answer], kind: bytes, group: Group, cached: tuple[Outcome, int]
    ) -> None:
        outcome, data = cached
        answers.append(Answer(Evaluation(kind, [group], self._revision, data), outcome))

    def publish(
        self,
        evaluation: Evaluation,
        outcome: Outcome | None,
        collection: Objects,
        gvr: GroupVersionResource,
        changed: Changed,
    ) -> Changed:
        """Publish an outcome, None if OPA lacks the object; return the objects to enqueue again.

        `changed` are the objects that OPA holds another state of since the query.
        """
        others = evaluation.without_representative
        is_shareable = self.publish_representative(evaluation, outcome, collection, gvr, changed)
        if outcome is None or not is_shareable:
            return {(collection.name, key): cause for key, cause in others.with_causes()}
        requeued: Changed = {}
        for group in others.groups:
            requeued |= self.share(Answer(others, outcome), group, collection, gvr)
        return requeued

    def publish_representative(
        self,
        evaluation: Evaluation,
        outcome: Outcome | None,
        collection: Objects,
        gvr: GroupVersionResource,
        changed: Changed,
    ) -> bool:
        """Publish the outcome of the evaluated object; return if others may share it."""
        representative = evaluation.representative
        if outcome is None:
            self.awaited.decided(collection.name, representative)
            self._hub.delete(Target.of(gvr, representative))
            return False
        # For the uid in the answer, whatever OPA holds by now.
        one, cause = [(representative, outcome.uid)], evaluation.groups[0].cause
        self._publish(collection.name, gvr, one, outcome, cause, data=evaluation.data)
        # A write may reach OPA before the query and be answered after it. Until then it is pending
        # in the Mirror; afterwards the object is among the changed ones.
        is_shareable = self._is_of_class(
            collection, representative, evaluation.kind
        ) and not collection.is_pending(representative)
        if not is_shareable or (collection.name, representative) in changed:
            return False
        if evaluation.kind is not None and evaluation.revision == self._revision:
            if len(self._cached) > 2 * collection.object_count + _SPARE:
                self._cached.clear()  # most are of classes without objects
            self._cached[collection.name, evaluation.kind] = outcome, evaluation.data
        return True

    def share(
        self, answer: Answer, group: Group, collection: Objects, gvr: GroupVersionResource
    ) -> Changed:
        """Publish a class's decision for these; return those that are of another class by now."""
        name, data, found = collection.name, answer.evaluation.data, collection.members
        if not (self._may_share and self._sets is self._in_force):
            member: Callable[[ObjectKey], Member | None] = partial(self._member, collection)
            members, others = _split(member, group.keys, answer.evaluation.kind)
        elif group.uids is not None and group.revision == found.revision:
            # Nothing to look up: no class has changed since.
            members, others = [*zip(group.keys, group.uids, strict=True)], []
        else:
            members, others = _split(found.of, group.keys, answer.evaluation.kind)
        if members:
            self._publish(name, gvr, members, answer.outcome, group.cause, data=data)
        return {(name, key): group.cause for key in others}

    def measure(self, collection: Objects, *, is_deciding: bool) -> None:
        """Update the metrics of a collection's classes, and log if no objects share a decision."""
        if "policies" in self._changing:  # none are known
            return
        self._metrics.update(
            collection, self._reads, may_share=self._may_share, is_deciding=is_deciding
        )

    def forget(self, name: str) -> None:
        """Remove the metrics of a collection, and its awaited objects."""
        self.awaited.forget(name)
        self._metrics.forget(name)

    def _add_to_query(
        self,
        evaluations: dict[object, Evaluation],
        collection: Objects,
        key: ObjectKey,
        cause: Cause,
        member: Member | None,
        batch_size: int,
    ) -> bool:
        """Add an object to the query, with its class; return whether there was room."""
        # A pending write may be in OPA already: the object represents no class.
        kind = None if member is None or collection.is_pending(key) else member.kind
        if (evaluation := evaluations.get(kind or key)) is None:
            if len(evaluations) >= batch_size:
                return False
            evaluation = evaluations[kind or key] = Evaluation(
                kind, [], self._revision, self._hub.data
            )
        evaluation.add(key, cause)
        return True

    def _member(self, collection: Objects, key: ObjectKey) -> Member | None:
        member = collection.members.of(key) if self._may_share else None
        return None if member is None else self._sets.member(member, key)

    def _is_of_class(self, collection: Objects, key: ObjectKey, kind: bytes | None) -> bool:
        member = self._member(collection, key)
        return member is not None and member.kind == kind

    def _publish(
        self,
        name: str,
        gvr: GroupVersionResource,
        members: list[tuple[ObjectKey, str]],
        outcome: Outcome,
        cause: Cause,
        *,
        data: int,
    ) -> None:
        """Publish one outcome for objects of one class, or for one object, with their uids."""
        self.awaited.decided(name, *(key for key, _ in members))
        if cause.trace:
            outcome = replace(outcome, trace=tracing.continued(cause.trace, outcome.trace))
        policy, source = (
            self._sets.policy(members[0][0]),
            cause.source,
        )  # one set decides on a class
        self._hub.publish_shared(
            gvr, members, outcome, cause.kind, policy, data=data, source=source
        )


def _split(
    member: Callable[[ObjectKey], Member | None], keys: Iterable[ObjectKey], kind: bytes | None
) -> tuple[list[tuple[ObjectKey, str]], list[ObjectKey]]:
    """Return those of `keys` that are of a class, each with its uid, and the others."""
    of_class: list[tuple[ObjectKey, str]] = []
    others: list[ObjectKey] = []
    for key in keys:
        if (found := member(key)) is not None and found.kind == kind:
            of_class.append((key, found.uid))
        else:
            others.append(key)
    return of_class, others
