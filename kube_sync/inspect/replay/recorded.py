"""Recorded decisions with their data, and whether other policies can decide on that data.

Invariant: missing data is never replaced; it is reported by name. Other policies can decide only
if everything that they read is certainly there. Of objects that shared a decision one was
recorded; it equals the others in what the recorded policies read, and in no more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import msgspec

from kube_sync.decisions.decision import Decision
from kube_sync.decisions.input_reader import Fields, is_decision
from kube_sync.decisions.requested import NOTE
from kube_sync.errors import NO_JSON, json_errors_as
from kube_sync.kube.meta import ObjectMeta, object_meta
from kube_sync.ledger.bases import State, collection_of, state_of
from kube_sync.ledger.entries import Row
from kube_sync.ledger.reading import Reading
from kube_sync.opa.analysis.paths import Path, covers
from kube_sync.opa.analysis.result import Collection, Reads, shown
from kube_sync.opa.scratch import Modules
from kube_sync.policies.bundle import digest
from kube_sync.replicator.projection import NAMED

NO_INPUT = "what it was made on is not recorded (ledger.inputs, or OPA failed)"
GONE = "what it was made on is not in the ledger any more"
NO_POLICIES = "the policies of then are not in the ledger"

_decisions = msgspec.json.Decoder(Decision)


@dataclass(frozen=True, slots=True)
class Case:
    """One decision and its data; `decision` is None if there was none."""

    row: Row
    input: bytes
    state: State
    decision: Decision | None


class Unknown(Exception):
    """Data of a decision is not recorded."""


class Recorded:
    """The recorded decisions of one ledger."""

    def __init__(self, ledger: Reading) -> None:
        self._ledger = ledger
        self._states: dict[str, State] = {}
        self._policies: dict[str, Modules] = {}

    def case(self, row: Row) -> Case:
        """Return a decision with its data. Raises Unknown."""
        entry = row.entry
        if not entry.input or not entry.data:
            raise Unknown(NO_INPUT)
        decision = None
        if entry.new:
            with json_errors_as(Unknown, "what was decided cannot be read"):
                decision = _decisions.decode(self._text(entry.new))
        return Case(row, self._text(entry.input), self._state(entry.data), decision)

    def modules(self, policy: str) -> Modules:
        """Return the policies of a digest. Raises Unknown if one of them is not recorded."""
        if policy not in self._policies:
            found = self._ledger.modules(policy)
            if found is None or digest(found) != policy:
                raise Unknown(NO_POLICIES)
            self._policies[policy] = found
        return self._policies[policy]

    def collections(self, state: State) -> Mapping[str, bytes]:
        """Return the data of a state, by collection. Raises Unknown."""
        return {
            name: collection_of([self._text(part) for part in parts])
            for name, parts in state.collections.items()
        }

    def _state(self, data: str) -> State:
        if data not in self._states:
            with json_errors_as(Unknown, "the data beside it cannot be read"):
                self._states[data] = state_of(self._text(data))
        return self._states[data]

    def _text(self, text_digest: str) -> bytes:
        found = self._ledger.text(text_digest)
        if found is None:
            raise Unknown(GONE)
        return found


def places(state: State, collections: Mapping[str, bytes]) -> Mapping[str, Collection]:
    """Return the places of the recorded collections."""
    return {
        name: Collection((state.root, name), namespaced=_namespaced(body))
        for name, body in collections.items()
    }


def missing_data(case: Case, reads: Reads | None) -> str | None:
    """Return why policies that read this cannot decide on a case, None: they can.

    Without `reads` they are the recorded policies.
    """
    if reads is None:
        return _all(f"{name}: {why}" for name, why in case.state.lacks.items())
    return _all([*_missing_in_state(case.state, reads), *_missing_of_object(case, reads)])


def _missing_in_state(state: State, reads: Reads) -> Iterator[str]:
    if reads.gave_up is not None:
        yield f"the policies could not be analysed: {reads.gave_up}"
    for name in reads.impure:
        yield f"{name}: what it answers changes without any data"
    for field in reads.others:
        if not is_decision(field.path, state.path):
            yield f"data.{shown(field.path)} is not recorded"
    for name, document in reads.resources.items():
        if not document.used:
            continue
        fields = state.kept.get(name)
        for path in document.paths:
            if not _covered(path, fields):
                yield f"{shown(path)} of {name} is not recorded"


def _missing_of_object(case: Case, reads: Reads) -> Iterator[str]:
    paths = [path for path in reads.input.paths if path != NOTE]
    if all(any(covers(kept, path) for kept in case.state.reads) for path in paths):
        return
    entry = case.row.entry
    found = _metadata(case.input)
    if (found.name, found.namespace, found.uid) != (entry.name, entry.namespace, entry.uid):
        yield f"it was decided as {found.namespace}/{found.name} was, whose other fields may differ"
        return
    fields = case.state.inputs.get(entry.collection)
    for path in paths:
        if not _covered(path, fields):
            yield f"{shown(path)} of the object is not recorded"


def _covered(path: Path, fields: Fields) -> bool:
    return fields is None or any(covers(one, path) for one in (*fields, *NAMED))


def _metadata(body: bytes) -> ObjectMeta:
    try:
        return object_meta(body)
    except NO_JSON:
        return ObjectMeta()


def _namespaced(body: bytes) -> bool:
    """Return whether objects lie one level down; for an empty collection either is right."""
    found = msgspec.json.decode(body, type=dict[str, msgspec.Raw]).values()
    return not any(_metadata(bytes(one)).name for one in found)


def _all(reasons: Iterable[str]) -> str | None:
    return "; ".join(dict.fromkeys(reasons)) or None
