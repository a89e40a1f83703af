"""Which objects one evaluation answers for, and what was decided of each class.

Keeps true: a decision is shared only by objects of the class that was asked about, by members as
OPA was last known to hold them; and it is kept for one state of policy and data, so that a change
of either asks again. An answer of which it is not certain which state of the representative it is
about counts for the representative alone, and the others are asked about again.
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
from kube_sync.opa.analysis.reads import Reads

log: structlog.stdlib.BoundLogger = structlog.get_logger()

_SPARE = 1_000  # decisions of classes that are not worth the time to let them go
TURN = 500  # objects between two looks at what came meanwhile


class Objects(Protocol):
    """What OPA holds of one collection."""

    name: str
    members: Members

    @property
    def held(self) -> int:
        """How many objects OPA holds."""
        ...

    def moves(self, key: ObjectKey) -> bool:
        """Whether OPA may hold another state of an object than the one that is noted."""
        ...


@dataclass(frozen=True, slots=True)
class Answer:
    """What was decided of a class, for these objects."""

    question: Question
    outcome: Outcome


class Sharing:
    """The decisions of classes, through one epoch of OPA's data."""

    def __init__(self, hub: DecisionHub) -> None:
        self._hub = hub
        self._in_force = SinglePolicySet()
        self._divide: Callable[[SinglePolicySet], PolicySets] | None = (
            None  # None: it decides on all
        )
        self._sets: PolicySets = self._in_force
        self._reads: Reads | None = None  # of all sets
        self._shares = False
        self._changing = False
        self._division_changing = False
        self._known: dict[tuple[str, bytes], tuple[Outcome, int]] = {}  # and on which data
        self._revision = 0
        self._unshared: set[str] = set()
        self._awaited: set[Key] = set()

    def expect(self, keys: Iterable[Key]) -> None:
        """Note which of these nothing was told of yet."""
        self._awaited = set(keys)

    @property
    def expecting(self) -> bool:
        """Whether nothing was told of some of what was expected."""
        return bool(self._awaited)

    def policies_changing(self) -> None:
        """Share nothing until it is known what the next policies read."""
        self._changing = True
        self._reread()
        self.outdate()

    def policies_changed(self, digest: str, reads: Reads) -> None:
        """Decide in the name of these policies, which read this."""
        self._in_force = SinglePolicySet(digest, reads)
        self._changing = False
        self._reread()
        self.outdate()

    def division_changing(self) -> None:
        """Share nothing until it is known what sets beside what is in force read next."""
        self._division_changing = True
        self._reread()
        self.outdate()

    def divided(self, division: Division) -> None:
        """Have objects decided by the sets that they are divided among."""
        self._divide, self._division_changing = division.divide, False
        self._reread()
        self._revision += 1  # what is asked for now is of either
        known = self._known.items()
        self._known = {ident: said for ident, said in known if not division.is_outdated(ident[1])}

    def _reread(self) -> None:
        self._sets = self._in_force if self._divide is None else self._divide(self._in_force)
        self._reads = self._sets.reads
        changing = self._changing or self._division_changing
        self._shares = not changing and self._reads is not None and shares(self._reads)

    def policies_renamed(self, digest: str) -> None:
        """Decide in the name of other policies, which decide alike."""
        self._in_force = replace(self._in_force, digest=digest)
        self._reread()

    def outdate(self) -> None:
        """Take note that what was decided may be decided otherwise now."""
        self._known.clear()
        self._revision += 1

    def looks_at(self, name: str) -> bool:
        """Tell whether a decision may depend on the objects of a collection, beside its own."""
        read = self._reads.resources.get(name) if self._reads is not None else None
        return read is None or read.used

    @property
    def fleeting(self) -> bool:
        """Whether decisions change without any data."""
        return self._reads is not None and bool(self._reads.impure)

    def grouped(self, found: Objects, keys: Iterable[ObjectKey], cause: Cause) -> Sweep:
        """Return what is to be asked about all of these, each class once."""
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
        """Take from a queue what is asked next; what is known already is said at once."""
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
        """Take from a sweep what is asked next, and what is known already."""
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
        """Ask about a group; returns whether there was room."""
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
        # Where all have changed since, any of them is asked about for itself alone.
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
        """Tell what was decided, None where OPA lacks the object; returns what to ask again.

        `changed` is what OPA holds another state of since the question.
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
        """Tell what was decided of the one that was asked about; returns if others may share it."""
        one = question.one
        if outcome is None:
            self._awaited.discard((found.name, one))
            self._hub.delete(Target.of(gvr, one))
            return False
        # As it was asked: whatever OPA holds by now, this is what it said of this uid.
        cause = question.keys[one]
        self._tell(found.name, gvr, one, outcome, cause, uid=outcome.uid, data=question.data)
        # A write may reach OPA before the question and be answered after it. Until then it is
        # pending in the Mirror, from then on the object is among those that changed.
        same = self._is(found, one, question.kind) and not found.moves(one)
        if not same or (found.name, one) in changed:
            return False
        if question.kind is not None and question.revision == self._revision:
            if len(self._known) > 2 * found.held + _SPARE:
                self._known.clear()  # most are of classes that no object is of any more
            self._known[found.name, question.kind] = outcome, question.data
        return True

    def share(
        self, answer: Answer, keys: Iterable[ObjectKey], found: Objects, gvr: GroupVersionResource
    ) -> Changed:
        """Tell it of these of its class; returns those that are of another one by now."""
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
        """Count the classes of a collection, and say when there are as many as objects."""
        if self._changing:  # it is of no policies
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
        """Count the classes of a collection no more, and expect nothing of it."""
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
        """Ask about an object with its class; returns whether there was room."""
        # One that is on its way may be there already: it stands for no other one.
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
