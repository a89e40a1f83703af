"""Query OPA for the decisions on many resources at once, over the data it holds.

A generated module, `kube_sync.batch`, evaluates the placement decision `with input as` each
replicated object, so no object body is sent, and the answer belongs to one state of the data. A
query has as many objects as OPA decided in 20 ms, because a write that waits for a long query
stalls every client of OPA.

The input is the object as its owner requested it (`requested`), restored in Rego. Warnings are for
whoever writes an object, so they are dropped here. With an InputReader, the answer contains the
inputs of the decisions, but never a Secret.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, Protocol

import msgspec

from kube_sync.decisions.batch_module import package_of
from kube_sync.decisions.decision import Decision, parse_decision
from kube_sync.decisions.decision_reader import ReadDecision
from kube_sync.decisions.input_reader import InputReader, InputRequest, Outdated, RecordedInput
from kube_sync.errors import NO_JSON, Retriable, Undecided
from kube_sync.objects import ObjectKey
from kube_sync.observability import metrics, tracing
from kube_sync.opa.analysis.result import Reads
from kube_sync.opa.client import QueryApi
from kube_sync.opa.lanes import Lane

# OPA runs queries concurrently, but a write that waits for one blocks all clients (one query of
# 12 s and one PATCH stalled every client for as long), so a query aims at this for any fleet.
_TARGET_SECONDS: Final = 0.020
_FIRST: Final = 10
_MOST: Final = 50  # 100 took 4 ms with four clusters, 3 times as much with 100


class DecisionApi(QueryApi, Protocol):
    """OPA's query API, with evaluation times."""

    async def timed_query(self, path: str, body: bytes) -> tuple[bytes | None, float | None]:
        """Query a document; return also the evaluation time in seconds, None: unknown."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome for one resource: a decision, or a failure. Both None: undefined."""

    uid: str
    decision: Decision | None = None
    failure: str | None = None
    evidence: RecordedInput | None = field(default=None, compare=False)  # its input
    trace: str = field(default="", compare=False)  # the context that it was made in; "": none


class _Answer(msgspec.Struct):
    uid: str
    decision: msgspec.Raw = msgspec.Raw()  # empty when undefined


class _AnswerWithInputs(msgspec.Struct):
    decisions: dict[int, _Answer]
    inputs: dict[int, msgspec.Raw]
    data: dict[str, msgspec.Raw]
    fence: dict[str, bool]


_Evidence = dict[int, RecordedInput]


class BatchSize:
    """The number of decisions in the next query; it at most doubles, and shrinks at once."""

    def __init__(self) -> None:
        self.size = _FIRST

    def observe(self, number: int, seconds: float) -> None:
        """Record the time of a query with so many decisions."""
        fits = int(number * _TARGET_SECONDS / seconds) if seconds > 0 else _MOST
        # A fast small query says little about larger ones; a slow one says much.
        if number < self.size and fits >= number:
            return
        self.size = max(1, min(fits, 2 * number, _MOST))


class Evaluator:
    """Evaluates the placement decision in one OPA, by the generated module."""

    def __init__(
        self,
        opa: DecisionApi,
        epoch: str,
        *,
        lane: Lane | None = None,
        clock: Callable[[], float] = time.monotonic,
        input_reader: InputReader | None = None,
        read: ReadDecision = parse_decision,
    ) -> None:
        """Evaluate only on data that was loaded in `epoch`, by the policies in force or a lane.

        `read` parses a decision.
        """
        self._read = read
        self._input_reader = input_reader
        self.epoch = epoch
        self._package = "/".join(package_of(lane))
        self._opa = opa
        self._clock = clock
        self._batch_size = BatchSize()

    @property
    def batch_size(self) -> int:
        """The number of decisions for the next query."""
        return self._batch_size.size

    def policies_changing(self) -> None:
        """Record that OPA may hold another set of policies from now on."""
        if self._input_reader is not None:
            self._input_reader.policies_changing()

    def policies_changed(self, reads: Reads) -> None:
        """Record that OPA holds policies that read this."""
        if self._input_reader is not None:
            self._input_reader.policies_changed(reads)

    async def evaluate(
        self, collection: str, keys: Iterable[ObjectKey]
    ) -> dict[ObjectKey, Outcome]:
        """Evaluate all of `keys`; those that OPA does not hold are left out. Raises SyncError."""
        outcomes: dict[ObjectKey, Outcome] = {}
        rest = iter(keys)
        while part := list(islice(rest, self.batch_size)):
            outcomes |= await self._evaluate_batch(collection, part)
        return outcomes

    async def _evaluate_batch(
        self, collection: str, keys: Sequence[ObjectKey]
    ) -> dict[ObjectKey, Outcome]:
        try:
            answers, evidence = await self._query_outcomes(collection, keys)
        except Undecided as error:
            if len(keys) == 1:
                metrics.decision_evaluations.labels("failed").inc()
                # The uid is unknown, but nothing is ever written for a failure.
                return {keys[0]: Outcome("", failure=str(error))}
            # One failing decision fails the whole query: find out which.
            outcomes: dict[ObjectKey, Outcome] = {}
            for key in keys:
                outcomes |= await self._evaluate_batch(collection, [key])
            return outcomes
        parsed: dict[bytes, Decision] = {}  # one value for all equal decisions
        return {
            keys[index]: _outcome(answer, evidence.get(index), parsed, self._read)
            for index, answer in answers.items()
        }

    async def _query_outcomes(
        self, collection: str, keys: Sequence[ObjectKey]
    ) -> tuple[dict[int, _Answer], _Evidence]:
        request = (
            None if self._input_reader is None else self._input_reader.new_request(collection, keys)
        )
        if self._input_reader is None or request is None:
            return _answers(await self._query("decisions", collection, keys), len(keys)), {}
        try:
            return await self._query_with_inputs(self._input_reader, request, collection, keys)
        except Outdated:
            pass
        request = self._input_reader.new_request(collection, keys, full=True)
        if request is None:  # new policies
            return _answers(await self._query("decisions", collection, keys), len(keys)), {}
        return await self._query_with_inputs(self._input_reader, request, collection, keys)

    async def _query_with_inputs(
        self,
        input_reader: InputReader,
        request: InputRequest,
        collection: str,
        keys: Sequence[ObjectKey],
    ) -> tuple[dict[int, _Answer], _Evidence]:
        """Query decisions with their inputs. Raises Outdated."""
        answer = await self._query(
            "witnessed", collection, keys, data=request.names, inputs=request.missing_inputs
        )
        try:
            found = msgspec.json.decode(answer, type=_AnswerWithInputs)
            evidence = input_reader.read_answer(request, found.fence, found.data, found.inputs)
        except (*NO_JSON, ValueError) as error:
            raise _unreadable(error) from error
        _check(found.decisions, len(keys))
        return found.decisions, evidence

    async def _query(
        self,
        path: str,
        collection: str,
        keys: Sequence[ObjectKey],
        **more: Sequence[str] | Sequence[int],
    ) -> bytes:
        items = [[key.namespace, key.name] for key in keys]
        body = msgspec.json.encode(
            {"input": {"epoch": self.epoch, "collection": collection, "items": items, **more}}
        )
        started = self._clock()
        answer, evaluated = await self._opa.timed_query(f"{self._package}/{path}", body)
        seconds = self._clock() - started
        metrics.decision_evaluation_seconds.observe(seconds, tracing.exemplar())
        # Not the time until the answer: on a busy machine smaller queries wait as long.
        self._batch_size.observe(len(keys), seconds if evaluated is None else evaluated)
        if answer is None:
            msg = "OPA does not hold all that this replicator loaded"
            raise Retriable(msg)
        return answer


def _answers(answer: bytes, number: int) -> dict[int, _Answer]:
    """Return the answers by the number of the object. Raises Undecided."""
    try:
        found = msgspec.json.decode(answer, type=dict[int, _Answer])
    except NO_JSON as error:
        raise _unreadable(error) from error
    _check(found, number)
    return found


def _unreadable(error: Exception) -> Undecided:
    return Undecided(f"OPA's decisions cannot be read: {error}")


def _check(found: Iterable[int], number: int) -> None:
    if not all(0 <= index < number for index in found):
        msg = "OPA decided on something else than was asked"
        raise Undecided(msg)


def _outcome(
    answer: _Answer,
    evidence: RecordedInput | None,
    parsed: dict[bytes, Decision],
    read: ReadDecision,
) -> Outcome:
    """Return the outcome; equal answers are parsed once and kept in `parsed`."""
    if not (body := bytes(answer.decision)):
        metrics.decision_evaluations.labels("undefined").inc()
        return Outcome(answer.uid, evidence=evidence)
    if (decision := parsed.get(body)) is None:
        try:
            found = read(body)
        except Undecided as error:
            metrics.decision_evaluations.labels("failed").inc()
            return Outcome(answer.uid, failure=str(error), evidence=evidence)
        decision = parsed[body] = msgspec.structs.replace(found, warnings=())
    metrics.decision_evaluations.labels("refused" if decision.errors else "decided").inc()
    return Outcome(answer.uid, decision, evidence=evidence)
