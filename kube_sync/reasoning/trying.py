"""Changes tried on one decision, many in one query of a scratch OPA.

Keeps true: a change counts as one that turns the decision only once the changed object lay in OPA's
data in place of its own and the replicator's own question was answered so. What is only decided
`with` it is a hint of where to look.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import msgspec

from kube_sync.decisions.evaluator import Outcome
from kube_sync.decisions.reading import ReadDecision
from kube_sync.decisions.requested import as_asked
from kube_sync.errors import NO_JSON, Retriable, Undecided
from kube_sync.kube.collection import Item
from kube_sync.objects import ObjectKey
from kube_sync.opa.paths import DataPath
from kube_sync.planning.snapshot import reducing
from kube_sync.planning.worlds import CLUSTERS
from kube_sync.reasoning.case import Case
from kube_sync.reasoning.change import Change, applied
from kube_sync.survey.progress import Progress

MODULE: Final = "kube_sync/reasoning/trying"  # its id
_ANSWERS: Final = "kube_sync/trying/answers"
_MOST: Final = 50  # tries in one query
_SECONDS: Final = 1.0  # that one query is to take, far less than it may


@dataclass(frozen=True, slots=True)
class Tried:
    """A change, the object that has it, and what is decided then."""

    change: Change
    item: Item
    outcome: Outcome


class _Answer(msgspec.Struct):
    decision: msgspec.Raw


def module(path: str, places: Iterable[DataPath]) -> str:
    """Return the Rego module that evaluates `path` with other objects at two places of the data."""
    decision = "data" + "".join(f"[{_text(part)}]" for part in path.split("/"))
    instead = "".join(
        f" with data{''.join(f'[{_text(part)}]' for part in place)} as changed.objects[{number}]"
        for number, place in enumerate(places)
    )
    return f"""package kube_sync.trying

answers[index] := {{"decision": decision}} if {{
	some index, changed in input.tries
	decision := {decision} with input as changed.asked{instead}
}}
"""


class Trying:
    """Tries changes of the object of a case, and of one cluster."""

    def __init__(
        self, case: Case, cluster: Item, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock = clock
        self._case = case
        self._items = {"object": case.subject.item, "cluster": cluster}
        self._names = {"object": case.subject.resource.name, "cluster": CLUSTERS}
        self._reduce = {of: reducing(case.resource(name)) for of, name in self._names.items()}

    async def outcomes(self, changes: Iterable[Change], progress: Progress) -> list[Tried]:
        """Return what each change would make of the decision. Raises SyncError."""
        made = ((c, item) for c in changes if (item := applied(c, self._items[c.of])) is not None)
        found: list[Tried] = []
        room = 1
        while part := list(islice(made, room)):
            begun = self._clock()
            outcomes = await self._asked([self._question(*one) for one in part])
            each = (self._clock() - begun) / len(part)
            room = max(1, min(_MOST, int(_SECONDS / max(each, _SECONDS / _MOST))))
            found += [Tried(*one, outcome) for one, outcome in zip(part, outcomes, strict=True)]
            progress.reached(f"{len(found)} changes tried …")
        return found

    async def verified(self, tried: Tried) -> Outcome:
        """Return what is decided once OPA's data has the change. Raises SyncError."""
        return await self._case.with_item(self._names[tried.change.of], tried.item)

    def _question(self, change: Change, item: Item) -> dict[str, Any]:
        items = {**self._items, change.of: item}
        bodies = {of: reduce(items[of]) for of, reduce in self._reduce.items()}
        objects = [msgspec.Raw(bodies["object"]), msgspec.Raw(bodies["cluster"])]
        return {"asked": msgspec.Raw(as_asked(bodies["object"])), "objects": objects}

    async def _asked(self, tries: Sequence[Mapping[str, Any]]) -> list[Outcome]:
        body = msgspec.json.encode({"input": {"tries": tries}})
        try:
            answer = await self._case.opa.query(_ANSWERS, body)
        except Undecided as error:
            if len(tries) == 1:
                return [Outcome("", failure=str(error))]
            # One that fails fails all: find out which.
            return [outcome for one in tries for outcome in await self._asked([one])]
        return [*_outcomes(answer or b"{}", len(tries), self._case.read)]


def places(
    root: str, of_object: tuple[str, ObjectKey], cluster: ObjectKey
) -> tuple[DataPath, DataPath]:
    """Return where the two that may change lie in OPA's data."""
    return _place(root, *of_object), _place(root, CLUSTERS, cluster)


def _place(root: str, name: str, key: ObjectKey) -> DataPath:
    inside = (key.namespace, key.name) if key.namespace else (key.name,)
    return (root, name, *inside)


def _outcomes(answer: bytes, number: int, read: ReadDecision) -> Iterator[Outcome]:
    try:
        found = msgspec.json.decode(answer, type=dict[int, _Answer])
    except NO_JSON as error:
        msg = f"OPA's decisions cannot be read: {error}"
        raise Retriable(msg) from error
    for index in range(number):
        if index not in found:
            yield Outcome("")
            continue
        try:
            yield Outcome("", read(bytes(found[index].decision)))
        except Undecided as error:
            yield Outcome("", failure=str(error))


def _text(part: str) -> str:
    return msgspec.json.encode(part).decode()
