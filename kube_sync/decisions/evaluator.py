"""Ask OPA for the decisions of many resources at once, over the data that it holds.

A generated module, `kube_sync.batch`, evaluates the placement decision `with input as` each
replicated object, so no object body travels, and the answer belongs to one state of the data.
Slices are small, because one long query followed by one write stalls every client of OPA: as many
as OPA was seen to decide in 20 ms.

The input is the object as it was asked for (`requested`), put back in Rego, which has the objects.
Warnings are for whoever writes an object, so they are left out here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

import msgspec

from kube_sync.decisions.decision import REQUESTED, Decision, parse_decision
from kube_sync.decisions.pace import Pace
from kube_sync.errors import NO_JSON, Retriable, Undecided
from kube_sync.objects import ObjectKey
from kube_sync.observability import metrics

BATCH_MODULE = "kube_sync/replicator/batch"  # its id
_DECISIONS = "kube_sync/batch/decisions"


class DecisionApi(Protocol):
    """The part of OPA that decides."""

    async def query(self, path: str, body: bytes) -> bytes | None:
        """Ask for a document."""
        ...


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was decided of one resource: a decision, or why there is none. Both None: undefined."""

    uid: str
    decision: Decision | None = None
    failure: str | None = None


class _Answer(msgspec.Struct):
    uid: str
    decision: msgspec.Raw = msgspec.Raw()  # empty when undefined


class Evaluator:
    """The placement decision of one OPA, which holds the generated module."""

    def __init__(
        self, opa: DecisionApi, epoch: str, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Decide only on data that was loaded whole in `epoch`."""
        self._epoch = epoch
        self._opa = opa
        self._clock = clock
        self._pace = Pace()

    @property
    def room(self) -> int:
        """How many decisions fit into the next query."""
        return self._pace.size

    async def evaluate(
        self, collection: str, keys: Iterable[ObjectKey]
    ) -> dict[ObjectKey, Outcome]:
        """Decide all of `keys`; those that OPA does not hold are left out. Raises SyncError."""
        outcomes: dict[ObjectKey, Outcome] = {}
        rest = iter(keys)
        while part := list(islice(rest, self.room)):
            outcomes |= await self._slice(collection, part)
        return outcomes

    async def _slice(self, collection: str, keys: Sequence[ObjectKey]) -> dict[ObjectKey, Outcome]:
        try:
            answers = await self._ask(collection, keys)
        except Undecided as error:
            if len(keys) == 1:
                metrics.decision_evaluations.labels("failed").inc()
                # The uid is unknown, but nothing is ever written for a failure.
                return {keys[0]: Outcome("", failure=str(error))}
            # One failing decision fails the whole query: find out which.
            outcomes: dict[ObjectKey, Outcome] = {}
            for key in keys:
                outcomes |= await self._slice(collection, [key])
            return outcomes
        return {keys[index]: _outcome(answer) for index, answer in answers.items()}

    async def _ask(self, collection: str, keys: Sequence[ObjectKey]) -> dict[int, _Answer]:
        items = [[key.namespace, key.name] for key in keys]
        body = msgspec.json.encode(
            {"input": {"epoch": self._epoch, "collection": collection, "items": items}}
        )
        begun = self._clock()
        answer = await self._opa.query(_DECISIONS, body)
        seconds = self._clock() - begun
        metrics.decision_evaluation_seconds.observe(seconds)
        self._pace.took(len(keys), seconds)
        if answer is None:
            msg = "OPA does not hold all that this replicator loaded"
            raise Retriable(msg)
        return _answers(answer, len(keys))


def batch_module(root: str, path: str) -> str:
    """Return the Rego module that evaluates `path` for many objects below `root`."""
    decision = "data" + "".join(
        f"[{msgspec.json.encode(part).decode()}]" for part in path.split("/")
    )
    data = f"data[{msgspec.json.encode(root).decode()}]"
    return f"""package kube_sync.batch

# No answer at all unless everything is loaded. Undefined is an answer: what is present without a
# decision keeps its uid alone.
decisions := object.union(_present, _decided) if data.kube_sync.epoch[input.epoch] == "loaded"

_present[index] := {{"uid": object.metadata.uid}} if some index, object in _objects

# What policies say of how much may move; {{}} where they say nothing.
budget := {{"document": _shown(document) | document := data.kube_sync_budget}} if {{
	data.kube_sync.epoch[input.epoch] == "loaded"
}}

# OPA counts helpers among what a package says.
_shown(document) := {{name: value | some name, value in document; not startswith(name, "_")}} if {{
	is_object(document)
}} else := document

_decided[index] := {{"uid": object.metadata.uid, "decision": decision}} if {{
	some index, object in _objects
	decision := {decision} with input as _asked(object)
}}

# Each object as it was asked for; most have nothing to put back, and cost one look-up.
_asked(found) := found if not found.metadata.annotations["{REQUESTED}"]

_asked(found) := object.union(object.remove(found, ["metadata"]), {{"metadata": metadata}}) if {{
	annotations := found.metadata.annotations
	requests := _requests(annotations["{REQUESTED}"])
	others := object.remove(annotations, object.union(requests, {{"{REQUESTED}": null}}))
	values := {{key: value | some key, value in requests; value != null}}
	metadata := object.union(
		object.remove(found.metadata, ["annotations"]),
		{{"annotations": object.union(others, values)}},
	)
}}

_requests(text) := object.remove(requests, ["{REQUESTED}"]) if {{
	requests := json.unmarshal(text)
	_are_requests(requests)
}} else := {{}}

_are_requests(requests) if {{
	is_object(requests)
	every value in requests {{
		type_name(value) in {{"null", "string"}}
	}}
}}

_objects[index] := {data}[input.collection][namespace][name] if {{
	some index, [namespace, name] in input.items
	namespace != ""
}}

_objects[index] := {data}[input.collection][name] if {{
	some index, ["", name] in input.items
}}
"""


def _answers(answer: bytes, number: int) -> dict[int, _Answer]:
    """Return what was said, by the number of its object. Raises Undecided."""
    try:
        found = msgspec.json.decode(answer, type=dict[int, _Answer])
    except NO_JSON as error:
        msg = f"OPA's decisions cannot be read: {error}"
        raise Undecided(msg) from error
    if not all(0 <= index < number for index in found):
        msg = "OPA decided on something else than was asked"
        raise Undecided(msg)
    return found


def _outcome(answer: _Answer) -> Outcome:
    if not bytes(answer.decision):
        metrics.decision_evaluations.labels("undefined").inc()
        return Outcome(answer.uid)
    try:
        decision = parse_decision(bytes(answer.decision))
    except Undecided as error:
        metrics.decision_evaluations.labels("failed").inc()
        return Outcome(answer.uid, failure=str(error))
    metrics.decision_evaluations.labels("refused" if decision.errors else "decided").inc()
    decision = msgspec.structs.replace(decision, warnings=())
    return Outcome(answer.uid, decision)
