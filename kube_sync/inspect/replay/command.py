"""The handler of `kube-sync replay`, from the request to the output.

Invariant: a decision reported as the same was evaluated again, on all of its recorded data. Only
OPAs that it starts itself are queried. Wired here and not in `processes`, as planning is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Literal

import msgspec

from kube_sync.config import Settings
from kube_sync.decisions.evaluator import Outcome
from kube_sync.errors import NotFound
from kube_sync.inspect.plan.candidate_files import read_candidates
from kube_sync.inspect.plan.candidates import Candidates
from kube_sync.inspect.plan.offline_opa import OfflineOpa, analysis, inputs_module, reader
from kube_sync.inspect.replay.deciders import Deciders
from kube_sync.inspect.replay.recorded import Case, Recorded, Unknown, missing_data, places
from kube_sync.inspect.replay.result import (
    Difference,
    ReplayResult,
    as_json,
    as_names,
    as_text,
    is_same,
)
from kube_sync.ledger.entries import Row
from kube_sync.ledger.reading import reading
from kube_sync.opa.analysis.result import Reads
from kube_sync.opa.scratch import ScratchOpa
from kube_sync.policies.builtin import built_in
from kube_sync.policykinds.printing import Answer

_SLICE = 100  # inputs in one query

_Set = tuple[str, str, str]  # the digest of the policies, "" if all are replaced; root; path
Form = Literal["text", "json", "name"]
_FORMS: Mapping[Form, Callable[[ReplayResult], str]] = {
    "text": as_text,
    "json": as_json,
    "name": as_names,
}


@dataclass(frozen=True, slots=True)
class Request:
    """What to replay; `since` is Unix seconds, without `policies` those of then decide.

    `instead`: of all of then.
    """

    file: str
    since: float = 0.0
    policies: tuple[str, ...] = ()  # candidates: ConfigMaps, PlacementPolicies, Rego, folders
    instead: bool = False
    limit: int = 10_000
    form: Form = "text"


async def run(request: Request, settings: Settings, warn: Callable[[str], None]) -> Answer:
    """Replay, and return the output and the exit status. Raises SyncError."""
    candidates = Candidates()
    if request.policies:
        candidates = await read_candidates(
            request.policies, (), settings.policies, instead=request.instead
        )
    with reading(Path(request.file)) as ledger:
        rows = ledger.decisions(request.since, request.limit)
        if not rows:
            msg = "nothing that a policy decided is recorded of that time"
            raise NotFound(msg)
        if len(rows) == request.limit:
            warn(f"the newest {request.limit} only: --limit for more")
        scratch = ScratchOpa.of(settings)
        recorded = Recorded(ledger)
        deciders = Deciders(recorded, scratch, built_in(settings), candidates)
        if candidates:
            await deciders.check(dict.fromkeys(row.entry.policy for row in reversed(rows)))
        found = await _Replay(recorded, scratch, deciders, settings).run(rows)
    return Answer(_FORMS[request.form](found), found.status)


class _Replay:
    """One replay."""

    def __init__(
        self, recorded: Recorded, scratch: ScratchOpa, deciders: Deciders, settings: Settings
    ) -> None:
        self._recorded = recorded
        self._settings = settings
        self._scratch = scratch
        self._deciders = deciders
        self._collections: dict[str, Mapping[str, bytes]] = {}  # by the digest of the state
        self._reads: dict[tuple[object, ...], Reads] = {}
        self._unknown: list[tuple[Row, str]] = []

    async def run(self, rows: Iterable[Row]) -> ReplayResult:
        """Replay all rows. Raises SyncError."""
        sets: dict[_Set, dict[str, list[Case]]] = {}
        for row in rows:
            try:
                case = await self._case(row)
            except Unknown as error:
                self._unknown.append((row, str(error)))
                continue
            policy = self._deciders.name_of(row.entry.policy)
            policy_set = (policy, case.state.root, case.state.path)
            sets.setdefault(policy_set, {}).setdefault(row.entry.data, []).append(case)
        same, different = 0, list[Difference]()
        for policy_set, states in sets.items():
            for case, now in await self._decide(policy_set, states):
                if is_same(case, now):
                    same += 1
                else:
                    different.append(Difference(case, now))
        different.sort(key=lambda one: one.case.row.seq)
        return ReplayResult(same, different, self._unknown)

    async def _case(self, row: Row) -> Case:
        """Return a decision that can be evaluated again. Raises Unknown."""
        case = self._recorded.case(row)
        if row.entry.data not in self._collections:
            self._collections[row.entry.data] = self._recorded.collections(case.state)
        await self._deciders.modules(row.entry.policy)
        if why := missing_data(case, await self._read(case)):
            raise Unknown(why)
        return case

    async def _read(self, case: Case) -> Reads | None:
        """Return what other policies read, None if the recorded policies decide."""
        if not self._deciders.has_candidates:
            return None
        entry = case.row.entry
        found = places(case.state, self._collections[entry.data])
        policy = self._deciders.name_of(entry.policy)
        key = (policy, case.state.path, *sorted(found.items(), key=lambda one: one[0]))
        if key not in self._reads:
            whole = await self._deciders.modules(entry.policy)
            need = await analysis(self._scratch, case.state.path, found).need(whole)
            self._reads[key] = need.reads
        return self._reads[key]

    async def _decide(
        self, policy_set: _Set, states: Mapping[str, list[Case]]
    ) -> list[tuple[Case, Outcome]]:
        """Evaluate a set of policies, in one OPA that is loaded with one state after another.

        Each input is evaluated once in each state. Raises SyncError.
        """
        policy, root, path = policy_set
        modules = await self._deciders.modules(policy)
        found: list[tuple[Case, Outcome]] = []
        async with self._scratch.serving({**modules, **inputs_module(path)}, b"{}") as client:
            opa = OfflineOpa(client, modules, root, path, reader(self._settings, modules))
            for data, cases in states.items():
                collections = self._collections[data]
                whole = {name: msgspec.Raw(body) for name, body in collections.items()}
                await client.put_data((root,), msgspec.json.encode(whole))
                answers = await _answers(opa, cases)
                found += [(case, answers[case.row.entry.input]) for case in cases]
        return found


async def _answers(opa: OfflineOpa, cases: Iterable[Case]) -> dict[str, Outcome]:
    """Return the outcomes for the inputs of cases, by their digests."""
    inputs = {case.row.entry.input: msgspec.Raw(case.input) for case in cases}
    rest, outcomes = iter(inputs.values()), list[Outcome]()
    while part := list(islice(rest, _SLICE)):
        outcomes += await opa.evaluate_inputs([{"asked": asked} for asked in part])
    return dict(zip(inputs, outcomes, strict=True))
