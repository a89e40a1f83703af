"""Share one evaluation among all objects of a class, and cache the decision of each class.

Invariant: only objects of the evaluated class share a decision, by their classes as OPA was last
known to hold them. A decision is cached for one state of policies and data; a change of either
causes another evaluation. If it is uncertain which state of the representative was evaluated, the
answer counts for it alone, and the others are evaluated again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import islice

import structlog

from kube_sync.decisions.classes import Member, Objects, may_share
from kube_sync.decisions.evaluation_queue import Cause, Changed, Evaluation, Group, Key, Sweep
from kube_sync.decisions.evaluator import Outcome
from kube_sync.decisions.hub import DecisionHub
from kube_sync.decisions.policysets import Division, PolicySets, SinglePolicySet
from kube_sync.decisions.records import Target
from kube_sync.objects import GroupVersionResource, ObjectKey
from kube_sync.observability import metrics
from kube_sync.opa.analysis.paths import Path
from kube_sync.opa.analysis.result import Reads

log: structlog.stdlib.BoundLogger = structlog.get_logger()

_SPARE = 1_000  # cached decisions of former classes that are not worth removing
OBJECTS_PER_YIELD = 500  # objects between two yields to other tasks


@dataclass(frozen=True, slots=True)
class Answer:
    """The decision of a class, for these objects."""

    evaluation: Evaluation
    outcome: Outcome


class Sharing:
    """The decisions of classes, through one epoch of OPA's data."""

    def __init__(
        self,
        hub: DecisionHub,
        *,
        static: bool = False,
        documents: Callable[[], Iterable[Path]] = tuple,
    ) -> None:
        """Share decisions of one epoch; `static`: OPA has policies that are not written by us.

        `documents` returns the paths of data that is written besides the collections.
        """
        self._documents = documents
        self._static = static
        self._hub = hub
        self._in_force = SinglePolicySet()
        # None: the set in force decides on all.
        self._sets_for: Callable[[SinglePolicySet], PolicySets] | None = None
        self._sets: PolicySets = self._in_force
        self._reads: Reads | None = None  # of all sets
        self._may_share = False
        self._is_changing = False
        self._is_division_changing = False
        # With the state of the data.
        self._cached: dict[tuple[str, bytes], tuple[Outcome, int]] = {}
        self._revision = 0
        self._unshared: set[str] = set()
        self._awaited: set[Key] = set()
        hub.basis.withhold("OPA is being loaded")

    def expect(self, keys: Iterable[Key]) -> None:
        """Record the objects that await their first decision."""
        self._awaited = set(keys)

    @property
    def is_expecting(self) -> bool:
        """Whether any expected object has no decision yet."""
        return bool(self._awaited)

    def policies_changing(self) -> None:
        """Share nothing until it is known what the next policies read."""
        self._is_changing = True
        self._update_sets()
        self.invalidate()

    def policies_changed(self, digest: str, reads: Reads) -> None:
        """Decide by the policies with this digest, which read this."""
        self._in_force = SinglePolicySet(digest, reads)
        self._is_changing = False
        self._update_sets()
        self.invalidate()

    def division_changing(self) -> None:
        """Share nothing until it is known what the sets beside the one in force read next."""
        self._is_division_changing = True
        self._update_sets()
        self.invalidate()

    def division_changed(self, division: Division) -> None:
        """Let objects be decided by the sets that they are divided among."""
        self._sets_for, self._is_division_changing = division.divide, False
        self._update_sets()
        self._begin_revision()  # pending evaluations may be of either
        cached = self._cached.items()
        self._cached = {
            ident: found for ident, found in cached if not division.is_outdated(ident[1])
        }

    def _update_sets(self) -> None:
        self._sets = self._in_force if self._sets_for is None else self._sets_for(self._in_force)
        self._reads = self._sets.reads
        changing = self._is_changing or self._is_division_changing
        self._may_share = not changing and self._reads is not None and may_share(self._reads)

    def policies_renamed(self, digest: str) -> None:
        """Change the digest of the policies in force, which decide the same."""
        self._in_force = replace(self._in_force, digest=digest)
        self._update_sets()
        self._publish_basis()

    def invalidate(self) -> None:
        """Drop cached decisions, since they may be out of date."""
        self._cached.clear()
        self._begin_revision()

    def _begin_revision(self) -> None:
        self._revision += 1
        self._publish_basis()

    def _publish_basis(self) -> None:
        if self._is_changing or self._is_division_changing:
            self._hub.basis.withhold("policies are changing")
        elif self._static:
            self._hub.basis.withhold("OPA has policies of its own (policies.static)")
        elif not isinstance(self._sets, SinglePolicySet):
            self._hub.basis.withhold("a canary decides on some objects")
        elif self._reads is None:
            self._hub.basis.withhold("OPA is being loaded")
        else:
            self._hub.basis.share(self._sets.digest, self._reads, self._documents())

    def may_read(self, name: str) -> bool:
        """Return whether decisions may depend on other objects of a collection."""
        read = self._reads.resources.get(name) if self._reads is not None else None
        return read is None or read.used

    @property
    def is_impure(self) -> bool:
        """Whether decisions change without any change of data."""
        return self._reads is not None and bool(self._reads.impure)

    def group_by_class(self, collection: Objects, keys: Iterable[ObjectKey], cause: Cause) -> Sweep:
        """Return a sweep of all these objects, grouped by class."""
        sweep: Sweep = {}
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
                self._publish(name, gvr, key, cached[0], cause, uid=member.uid, data=cached[1])
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
        keys = dict.fromkeys(group.keys, group.cause)
        if isinstance(kind, ObjectKey):
            member = self._member(collection, kind)
            cached = None if member is None else self._cached.get((collection.name, member.kind))
            if member is None or cached is None:
                return self._add_to_query(
                    evaluations, collection, kind, group.cause, member, batch_size
                )
            answers.append(
                Answer(Evaluation(member.kind, keys, self._revision, cached[1]), cached[0])
            )
            return True
        if (cached := self._cached.get((collection.name, kind))) is not None:
            answers.append(Answer(Evaluation(kind, keys, self._revision, cached[1]), cached[0]))
            return True
        # If all members have changed since, one of them is evaluated for itself alone.
        fitting = (
            key
            for key in keys
            if self._is_of_class(collection, key, kind) and not collection.is_pending(key)
        )
        representative = next(fitting, group.keys[0])
        if kind not in evaluations and len(evaluations) >= batch_size:
            return False
        before = evaluations[kind].keys if kind in evaluations else {representative: group.cause}
        evaluations[kind] = Evaluation(kind, before | keys, self._revision, self._hub.data)
        return True

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
        keys = [*evaluation.keys][1:]
        is_shareable = self.publish_representative(evaluation, outcome, collection, gvr, changed)
        if outcome is None or not is_shareable:
            return {(collection.name, key): evaluation.keys[key] for key in keys}
        return self.share(Answer(evaluation, outcome), keys, collection, gvr)

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
            self._awaited.discard((collection.name, representative))
            self._hub.delete(Target.of(gvr, representative))
            return False
        # For the uid in the answer, whatever OPA holds by now.
        cause = evaluation.keys[representative]
        self._publish(
            collection.name,
            gvr,
            representative,
            outcome,
            cause,
            uid=outcome.uid,
            data=evaluation.data,
        )
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
        self,
        answer: Answer,
        keys: Iterable[ObjectKey],
        collection: Objects,
        gvr: GroupVersionResource,
    ) -> Changed:
        """Publish a class's decision for these; return those that are of another class by now."""
        requeued: Changed = {}
        evaluation = answer.evaluation
        for key in keys:
            member, cause = self._member(collection, key), evaluation.keys[key]
            if member is not None and member.kind == evaluation.kind:
                uid, data = member.uid, evaluation.data
                self._publish(collection.name, gvr, key, answer.outcome, cause, uid=uid, data=data)
            else:
                requeued[collection.name, key] = cause
        return requeued

    def measure(self, collection: Objects, *, is_deciding: bool) -> None:
        """Update the metrics of a collection's classes, and log if no objects share a decision."""
        if self._is_changing:  # no policies are known
            return
        members, count = collection.members, collection.object_count
        all_differ = members.known == members.classes == count
        is_unshared = (
            is_deciding
            and count > 1
            and (all_differ or not self._may_share or not members.is_classifying)
        )
        classes = members.classes + count - members.known if self._may_share else count
        metrics.decision_classes.labels(collection.name).set(classes)
        metrics.decision_unshared.labels(collection.name).set(is_unshared)
        if is_unshared and collection.name not in self._unshared:
            log.info("decisions_unshared", resource=collection.name, reason=self._unshared_reason())
        (self._unshared.add if is_unshared else self._unshared.discard)(collection.name)

    def forget(self, name: str) -> None:
        """Remove the metrics of a collection, and its awaited objects."""
        self._awaited = {key for key in self._awaited if key[0] != name}
        self._unshared.discard(name)
        for metric in (metrics.decision_classes, metrics.decision_unshared):
            metric.remove(name)

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
                kind, {}, self._revision, self._hub.data
            )
        evaluation.keys[key] = cause
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
        key: ObjectKey,
        outcome: Outcome,
        cause: Cause,
        *,
        uid: str,
        data: int,
    ) -> None:
        self._awaited.discard((name, key))
        policy, source = self._sets.policy(key), cause.source
        target = Target.of(gvr, key)
        self._hub.update(target, outcome, cause.kind, policy, uid=uid, data=data, source=source)

    def _unshared_reason(self) -> str:
        if self._reads is None or self._reads.gave_up is not None:
            return "the policies could not be analysed"
        if self._reads.impure:
            return f"decided by {', '.join(self._reads.impure)}"
        return "the objects differ in what is read of them"
