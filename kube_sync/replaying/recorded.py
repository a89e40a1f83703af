"""Recorded decisions with what they were made on, as far as that is recorded.

Keeps true: nothing is put in place of what is missing; who asks is told what it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from kube_sync.decisions.decision import Decision
from kube_sync.errors import NO_JSON
from kube_sync.ledger.bases import State, collection_of, state_of
from kube_sync.ledger.entries import Row
from kube_sync.ledger.reading import Reading
from kube_sync.opa.scratch import Modules
from kube_sync.replicator.policies.bundle import digest

NO_INPUT = "what it was made on is not recorded (ledger.inputs, or OPA failed)"
GONE = "what it was made on is not in the ledger any more"
NO_POLICIES = "the policies of then are not in the ledger"

_decisions = msgspec.json.Decoder(Decision)


@dataclass(frozen=True, slots=True)
class Case:
    """One decision, and what it was made on; `decision` is None where there was none."""

    row: Row
    input: bytes
    state: State
    decision: Decision | None


class Unknown(Exception):
    """Something that a decision was made on is not recorded."""


class Recorded:
    """What one ledger has of decisions."""

    def __init__(self, ledger: Reading) -> None:
        self._ledger = ledger
        self._states: dict[str, State] = {}
        self._policies: dict[str, Modules] = {}

    def case(self, row: Row) -> Case:
        """Return what a decision was made on. Raises Unknown."""
        entry = row.entry
        if not entry.input or not entry.data:
            raise Unknown(NO_INPUT)
        decision = None
        if entry.new:
            try:
                decision = _decisions.decode(self._text(entry.new))
            except NO_JSON as error:
                msg = f"what was decided cannot be read: {error}"
                raise Unknown(msg) from error
        return Case(row, self._text(entry.input), self._state(entry.data), decision)

    def modules(self, policy: str) -> Modules:
        """Return the policies of a digest. Raises Unknown where one of them is not known."""
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
            try:
                self._states[data] = state_of(self._text(data))
            except NO_JSON as error:
                msg = f"the data beside it cannot be read: {error}"
                raise Unknown(msg) from error
        return self._states[data]

    def _text(self, named: str) -> bytes:
        found = self._ledger.text(named)
        if found is None:
            raise Unknown(GONE)
        return found
