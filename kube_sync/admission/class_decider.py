"""Decides reviews by the answers that OPA gave for other reviews of the same class.

Invariant: an answer is reused only if OPA gave it to an input of the same class, asked under the
same revision of policies and data, and named the load of its data that the replicator confirms
(`answer_origin`); and if the replicator has confirmed that revision within the last second. It is
not reused before the replicator has confirmed the revision after it was given: while policies
change, OPA may answer by others that distinguish what the class does not. In every other case OPA
is asked: an unknown class, another revision, no confirmation, policies whose decision reads what no
class covers. Only decisions of OPA are kept, never failures.

While OPA is down, known classes are decided on for a limited time, since the replicator still
confirms that nothing that the policies read has changed; after that, reviews fail closed as without
classes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Literal, NamedTuple, Protocol

import msgspec

from kube_sync.admission.answer_origin import AnswerOrigin
from kube_sync.admission.class_comparison import Comparison, Revision, counted
from kube_sync.admission.decision_client import Admitted, Denied, Undecidable, Verdict
from kube_sync.admission.review import Review
from kube_sync.decisions.basis import Basis
from kube_sync.decisions.classes import Classify
from kube_sync.errors import NO_JSON, SyncError

MOST = 10_000  # classes

Mode = Literal["verify", "on"]


class Client(Protocol):
    """Asks OPA."""

    @property
    def engine_is_down(self) -> bool:
        """Whether OPA is known to be down."""

    async def verdict(self, review: Review, seconds: float, *, always: bool = False) -> Verdict:
        """Decide within so many seconds, `always` or only if a policy may exist; never raises."""


class Present(Protocol):
    """The basis of decisions."""

    asked: float  # when it was last asked for, on the clock

    @property
    def classify(self) -> Classify | None:
        """The classifier of inputs, None if answers must not be shared."""

    @property
    def confirmed(self) -> Basis | None:
        """The present basis, None while it is not known to be current."""


# Not a dataclass: there is one for each review, and a tuple is made in a fifth of the time.
class _Question(NamedTuple):
    """The class of an input, and the revision under which it is asked about."""

    kind: bytes
    epoch: str  # of the load of OPA's data that is confirmed
    revision: Revision
    confirmed: float  # when the report was asked for


class _Given(msgspec.Struct, frozen=True, gc=False):
    """An answer of OPA, and when it was given."""

    answer: Admitted | Denied
    at: float


class Answers:
    """The answers of OPA to one decision, by class, of one revision."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._revision: Revision = "", -1
        self._known: dict[bytes, _Given] = {}

    def find(self, question: _Question) -> Admitted | Denied | None:
        """Return the answer for a class, None if none is confirmed under this revision."""
        if question.revision != self._revision:
            return None
        given = self._known.get(question.kind)
        return given.answer if given is not None and given.at < question.confirmed else None

    def has_any(self, revision: Revision) -> bool:
        """Return whether an answer of this revision is kept."""
        return revision == self._revision and bool(self._known)

    def add(self, question: _Question, answer: Admitted | Denied, now: float) -> None:
        """Keep an answer to a question; those of other revisions are dropped."""
        if question.revision != self._revision:
            self._revision = question.revision
            self._known.clear()
        if question.kind in self._known or len(self._known) < self._most:
            self._known.setdefault(question.kind, _Given(answer, now))


class ClassDecider:
    """Decides with another decider, or as it decided on the class before."""

    def __init__(
        self,
        client: Client,
        basis: Present,
        answers: Answers,
        origin: AnswerOrigin,
        view: Callable[[Review], msgspec.Raw],
        may_exist: Callable[[], bool],
        *,
        mode: Mode,
        outage_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`view` returns the policy's input, `may_exist` whether a policy may exist.

        With the mode `verify` OPA is always asked, and its answer compared. While OPA is down,
        known classes are decided on for `outage_seconds` at most; `clock` is monotonic.
        """
        self._client = client
        self._basis = basis
        self._answers = answers
        self._origin = origin
        self._view = view
        self._may_exist = may_exist
        self._comparison = Comparison(basis) if mode == "verify" else None
        self._outage_seconds = outage_seconds
        self._clock = clock
        self._down_since: float | None = None

    async def verdict(self, review: Review, seconds: float) -> Verdict:
        """Decide within so many seconds; never raises."""
        question = self._question(review) if self._may_exist() else None
        if question is None:
            return await self._client.verdict(review, seconds)
        known = self._answers.find(question)
        if known is not None and self._comparison is None and self._may_reuse():
            counted["reused"].inc()
            return known
        verdict = await self._client.verdict(review, seconds, always=True)  # a policy may exist
        if isinstance(verdict, Undecidable):
            return verdict
        if not self._origin.is_confirmed(question.epoch, verdict.asked.epoch):
            counted["elsewhere"].inc()
            return verdict
        now = self._clock()
        if known is None or self._comparison is None:
            counted["asked"].inc()
        else:
            kind, revision = question.kind, question.revision
            self._comparison.compare(known, verdict, kind, revision, review.uid, now)
        # Under the revision at which OPA was asked: what has changed since belongs to another one.
        self._answers.add(question, verdict, now)
        return verdict

    @property
    def does_without_opa(self) -> bool:
        """Whether known classes are decided on although OPA may be down."""
        basis = self._basis.confirmed
        return (
            basis is not None
            and self._comparison is None
            and self._answers.has_any((basis.instance, basis.revision))
            and self._may_reuse()
        )

    def _question(self, review: Review) -> _Question | None:
        """Return what is asked, None if the answer cannot be shared now."""
        basis, classify = self._basis.confirmed, self._basis.classify
        if basis is None or classify is None:
            counted["unconfirmed" if basis is None else "unshared"].inc()
            return None
        try:
            kind = classify(bytes(self._view(review)))
        except (*NO_JSON, SyncError):
            counted["unshared"].inc()
            return None
        revision = basis.instance, basis.revision
        return _Question(kind, basis.epoch, revision, self._basis.asked)

    def _may_reuse(self) -> bool:
        """Return whether OPA answers, or has not been down for too long."""
        if not self._client.engine_is_down:
            self._down_since = None
            return True
        now = self._clock()
        if self._down_since is None:
            self._down_since = now
        return now - self._down_since <= self._outage_seconds
