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
from typing import Protocol

import structlog

from kube_sync.decisions.classes import Member, Members, shares
from kube_sync.decisions.evaluation_queue import Cause, Changed, Group, Key, Question, Sweep
from kube_sync.decisions.evaluator import Outcome
from kube_sync.decisions.hub import DecisionHub
from kube_sync.decisions.policysets import Division, PolicySets, SinglePolicySet
from kube_sync.decisions.records import Target
from kube_sync.objects import GroupVersionResource, ObjectKey
from kube_sync.observability import metrics
from kube_sync.opa.analysis.paths import Path
from kube_sync.opa.analysis.reads import Reads

log: structlog.stdlib.BoundLogger = structlog.get_logger()

_SPARE = 1_000  # cached decisions of former classes that are not worth removing
TURN = 500  # objects between two yields to other tasks


class Objects(Protocol):
    """OPA's content of one collection."""

    name: str
    members: Members

    @property
    def held(self) -> int:
        """The number of objects in OPA."""
        ...

    def moves(self, key: ObjectKey) -> bool:
        """Return whether OPA may hold another state of an object than the classified one."""
        ...


@dataclass(frozen=True, slots=True)
class Answer:
    """The decision of a class, for these objects."""

    question: Question
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
        self._hub = hub
        self._static = static
        self._in_force = SinglePolicySet()
        self._divide: Callable[[SinglePolicySet], PolicySets] | None = (
            None  # None: the set in force decides on all
        )
        self._sets: PolicySets = self._in_force
        self._reads: Reads | None = None  # of all sets
        self._shares = False
        self._changing = False
        self._division_changing = False
        self._known: dict[tuple[str, bytes], tuple[Outcome, int]] = {}  # with the state of the data
        self._revision = 0
        self._unshared: set[str] = set()
        self._awaited: set[Key] = set()
        hub.basis.withhold("OPA is being loaded")

    def expect(self, keys: Iterable[Key]) -> None:
        """Record the objects that await their first decision."""
        self._awaited = set(keys)

    @property
    def expecting(self) -> bool:
        """Whether any expected object has no decision yet."""
        return bool(self._awaited)

    def policies_changing(self) -> None:
        """Share nothing until it is known what the next policies read."""
        self._changing = True
        self._reread()
        self.outdate()

    def policies_changed(self, digest: str, reads: Reads) -> None:
        """Decide by the policies with this digest, which read this."""
        self._in_force = SinglePolicySet(digest, reads)
        self._changing = False
        self._reread()
        self.outdate()

    def division_changing(self) -> None:
        """Share nothing until it is known what the sets beside the one in force read next."""
        self._division_changing = True
        self._reread()
        self.outdate()

    def divided(self, division: Division) -> None:
        """Let objects be decided by the sets that they are divided among."""
        self._divide, self._division_changing = division.divide, False
        self._reread()
        self._begin_revision()  # pending evaluations may be of either
        known = self._known.items()
        self._known = {ident: said for ident, said in known if not division.is_outdated(ident[1])}

    def _reread(self) -> None:
        self._sets = self._in_force if self._divide is None else self._divide(self._in_force)
        self._reads = self._sets.reads
        changing = self._changing or self._division_changing
        self._shares = not changing and self._reads is not None and shares(self._reads)

    def policies_renamed(self, digest: str) -> None:
        """Change the digest of the policies in force, which decide the same."""
        self._in_force = replace(self._in_force, digest=digest)
        self._reread()
        self._publish_basis()

    def outdate(self) -> None:
        """Drop cached decisions, since they may be out of date."""
        self._known.clear()
        self._begin_revision()

    def _begin_revision(self) -> None:
        self._revision += 1
        self._publish_basis()

    def _publish_basis(self) -> None:
        if self._changing or self._division_changing:
            self._hub.basis.withhold("policies are changing")
        elif self._static:
            self._hub.basis.withhold("OPA has policies of its own (policies.static)")
        elif not isinstance(self._sets, SinglePolicySet):
            self._hub.basis.withhold("a canary decides on some objects")
        elif self._reads is None:
            self._hub.basis.withhold("OPA is being loaded")
        else:
            self._hub.basis.share(self._sets.digest, self._reads, self._documents())

    def looks_at(self, name: str) -> bool:
        """Return whether decisions may depend on other objects of a collection."""
        read = self._reads.resources.get(name) if self._reads is not None else None
        return read is None or read.used

    @property
    def fleeting(self) -> bool:
        """Whether decisions change without any change of data."""
        return self._reads is not None and bool(self._reads.impure)

    def grouped(self, found: Objects, keys: Iterable[ObjectKey], cause: Cause) -> Sweep:
        """Return a sweep of all these objects, grouped by class."""
        sweep: Sweep = {}
        for key in keys:
            member = self._member(found, key)
            ident = found.name, key if member is None else member.kind
            if (group := sweep.get(ident)) is None:
                group = sweep[ident] = Group([], cause)
            group.keys.append(key)
        return sweep

    def questions(
        self, queue: Changed, found: Objects, gvr: GroupVersionResource, room: int
    ) -> list[Question]:
        """Take the next evaluations from a queue; publish decisions that are cached."""
        asked: dict[object, Question] = {}
        for (name, key), cause in [*islice(queue.items(), TURN)]:
            if name != found.name:
                continue
            member = self._member(found, key)
            if member is not None and (known := self._known.get((name, member.kind))) is not None:
                self._tell(name, gvr, key, known[0], cause, uid=member.uid, data=known[1])
            elif not self._ask(asked, found, key, cause, member, room):
                continue
            queue.pop((name, key))
        return [*asked.values()]

    def swept(self, sweep: Sweep, found: Objects, room: int) -> tuple[list[Question], list[Answer]]:
        """Take the next evaluations from a sweep, and cached decisions."""
        asked: dict[object, Question] = {}
        known: list[Answer] = []
        for ident, group in [*islice(sweep.items(), TURN)]:
            if ident[0] != found.name:
                continue
            if not self._take(asked, known, found, ident[1], group, room):
                break
            del sweep[ident]
        return [*asked.values()], known

    def _take(
        self,
        asked: dict[object, Question],
        known: list[Answer],
        found: Objects,
        kind: bytes | ObjectKey,
        group: Group,
        room: int,
    ) -> bool:
        """Add a group to the query; return whether there was room."""
        keys = dict.fromkeys(group.keys, group.cause)
        if isinstance(kind, ObjectKey):
            member = self._member(found, kind)
            said = None if member is None else self._known.get((found.name, member.kind))
            if member is None or said is None:
                return self._ask(asked, found, kind, group.cause, member, room)
            known.append(Answer(Question(member.kind, keys, self._revision, said[1]), said[0]))
            return True
        if (said := self._known.get((found.name, kind))) is not None:
            known.append(Answer(Question(kind, keys, self._revision, said[1]), said[0]))
            return True
        # If all members have changed since, one of them is evaluated for itself alone.
        fit = (k for k in keys if self._is(found, k, kind) and not found.moves(k))
        one = next(fit, group.keys[0])
        if kind not in asked and len(asked) >= room:
            return False
        before = asked[kind].keys if kind in asked else {one: group.cause}
        asked[kind] = Question(kind, before | keys, self._revision, self._hub.data)
        return True

    def answered(
        self,
        question: Question,
        outcome: Outcome | None,
        found: Objects,
        gvr: GroupVersionResource,
        changed: Changed,
    ) -> Changed:
        """Publish an outcome, None if OPA lacks the object; return the objects to enqueue again.

        `changed` are the objects that OPA holds another state of since the query.
        """
        keys = [*question.keys][1:]
        same = self.answered_one(question, outcome, found, gvr, changed)
        if outcome is None or not same:
            return {(found.name, key): question.keys[key] for key in keys}
        return self.share(Answer(question, outcome), keys, found, gvr)

    def answered_one(
        self,
        question: Question,
        outcome: Outcome | None,
        found: Objects,
        gvr: GroupVersionResource,
        changed: Changed,
    ) -> bool:
        """Publish the outcome of the evaluated object; return if others may share it."""
        one = question.one
        if outcome is None:
            self._awaited.discard((found.name, one))
            self._hub.delete(Target.of(gvr, one))
            return False
        # For the uid in the answer, whatever OPA holds by now.
        cause = question.keys[one]
        self._tell(found.name, gvr, one, outcome, cause, uid=outcome.uid, data=question.data)
        # A write may reach OPA before the query and be answered after it. Until then it is pending
        # in the Mirror; afterwards the object is among the changed ones.
        same = self._is(found, one, question.kind) and not found.moves(one)
        if not same or (found.name, one) in changed:
            return False
        if question.kind is not None and question.revision == self._revision:
            if len(self._known) > 2 * found.held + _SPARE:
                self._known.clear()  # most are of classes without objects
            self._known[found.name, question.kind] = outcome, question.data
        return True

    def share(
        self, answer: Answer, keys: Iterable[ObjectKey], found: Objects, gvr: GroupVersionResource
    ) -> Changed:
        """Publish a class's decision for these; return those that are of another class by now."""
        again: Changed = {}
        question = answer.question
        for key in keys:
            member, cause = self._member(found, key), question.keys[key]
            if member is not None and member.kind == question.kind:
                uid, data = member.uid, question.data
                self._tell(found.name, gvr, key, answer.outcome, cause, uid=uid, data=data)
            else:
                again[found.name, key] = cause
        return again

    def measure(self, found: Objects, *, deciding: bool) -> None:
        """Update the metrics of a collection's classes, and log if no objects share a decision."""
        if self._changing:  # no policies are known
            return
        members, held = found.members, found.held
        each = members.known == members.classes == held
        alone = deciding and held > 1 and (each or not self._shares or not members.wanted)
        classes = members.classes + held - members.known if self._shares else held
        metrics.decision_classes.labels(found.name).set(classes)
        metrics.decision_unshared.labels(found.name).set(alone)
        if alone and found.name not in self._unshared:
            log.info("decisions_unshared", resource=found.name, reason=self._why_alone())
        (self._unshared.add if alone else self._unshared.discard)(found.name)

    def forget(self, name: str) -> None:
        """Remove the metrics of a collection, and its awaited objects."""
        self._awaited = {key for key in self._awaited if key[0] != name}
        self._unshared.discard(name)
        for metric in (metrics.decision_classes, metrics.decision_unshared):
            metric.remove(name)

    def _ask(
        self,
        asked: dict[object, Question],
        found: Objects,
        key: ObjectKey,
        cause: Cause,
        member: Member | None,
        room: int,
    ) -> bool:
        """Add an object to the query, with its class; return whether there was room."""
        # A pending write may be in OPA already: the object represents no class.
        kind = None if member is None or found.moves(key) else member.kind
        if (question := asked.get(kind or key)) is None:
            if len(asked) >= room:
                return False
            question = asked[kind or key] = Question(kind, {}, self._revision, self._hub.data)
        question.keys[key] = cause
        return True

    def _member(self, found: Objects, key: ObjectKey) -> Member | None:
        member = found.members.of(key) if self._shares else None
        return None if member is None else self._sets.member(member, key)

    def _is(self, found: Objects, key: ObjectKey, kind: bytes | None) -> bool:
        member = self._member(found, key)
        return member is not None and member.kind == kind

    def _tell(
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

    def _why_alone(self) -> str:
        if self._reads is None or self._reads.gave_up is not None:
            return "the policies could not be analysed"
        if self._reads.impure:
            return f"decided by {', '.join(self._reads.impure)}"
        return "the objects differ in what is read of them"
