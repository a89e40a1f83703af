"""Build a lane: the set in force with the staged policies of one stage, below a package prefix.

Invariant: a lane compiles as if its policies were in force, and beside the set in force. It refers
only to itself, OPA's own modules and the data, and nothing refers to it. A staged policy at fault
is left out of its lane, and the reason is reported. If the set in force cannot be moved, or refers
to everything, nothing can be staged. Candidates are compiled in place of what they stand for too,
but have no lane. Pure but for the compiler and the parser.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from kube_sync.kube.policynames import called, named
from kube_sync.kube.staging import CANDIDATE
from kube_sync.objects import ObjectKey
from kube_sync.opa.analysis.moving import Ground, Trouble, leads_to, move
from kube_sync.opa.inspection import forbidden
from kube_sync.opa.lanes import LANES, ROOT, Lane, batch_id, lane_id, prefix
from kube_sync.opa.scratch import Cause, Modules
from kube_sync.policies.configmap_status import STAGE
from kube_sync.policies.delivery import Compiler
from kube_sync.policies.guard import Declared, Guard
from kube_sync.policies.placementpolicy_status import Policy, unreadable
from kube_sync.policies.quarantine import Quarantine
from kube_sync.policies.set_compiler import Candidate, Versions, choose
from kube_sync.policies.trial_run import Trial

_KNOWN: Final = "(but candidate, shadow, canary and active): it is not in force"
_BELOW: Final = Ground(frozenset({(ROOT,)}))  # the package of all lanes
_OPA: Final = ObjectKey("", "OPA")  # the key for OPA's own modules

Stage = Lane | Literal["candidate"]
Failures = Mapping[ObjectKey, Sequence[Cause]]
_Wanted = Mapping[ObjectKey, Policy]  # staged policies by what each stands for


@dataclass(frozen=True, slots=True)
class Beside:
    """What a lane is built beside: the set in force, OPA's own modules, reserved paths."""

    versions: Versions
    static: Modules
    opaque: bool  # some of OPA's own modules do not compile here
    guard: Guard


@dataclass(frozen=True, slots=True)
class Staged:
    """The modules of a lane, and why some staged policies are not in it."""

    modules: Modules = field(default_factory=dict[str, str])
    failures: Failures = field(default_factory=dict[ObjectKey, Sequence[Cause]])
    sources: Modules = field(default_factory=dict[str, str])  # of the lane, before it was moved


class LaneMaker:
    """Builds lanes of staged policies; it caches the syntax trees of the last ones."""

    def __init__(
        self,
        parser: Compiler,
        generated: Modules,
        batch: Callable[[Lane], str],
        *,
        quarantine: Quarantine | None = None,
        trial: Trial | None = None,
    ) -> None:
        """Add the `generated` modules to every set, and to a lane the module that `batch` returns.

        Versions that the `quarantine` refuses are left out; without `trial` sets are only compiled.
        """
        self._parser = parser
        self._quarantine = quarantine or Quarantine()
        self._compile = parser.check if trial is None else trial.check
        self._generated = generated
        self._batch = batch
        self._declared = Declared(parser)
        self._trees: dict[str, Any] = {}  # by source

    async def make(
        self, staged: Sequence[Policy], beside: Beside, stage: Stage = "shadow"
    ) -> Staged:
        """Build the lane of the policies of this stage. Raises SyncError.

        Candidates have no lane: only their errors are returned, and no module to deliver.
        """
        failures: dict[ObjectKey, Sequence[Cause]] = {**unknown(staged)}
        policies = sorted(
            (policy for policy in staged if policy.stage == stage),
            key=lambda policy: (policy.born, policy.key),
        )
        modules, sources = await self._lane(stage, policies, beside, failures)
        return Staged(modules, failures, sources)

    async def _lane(
        self,
        stage: Stage,
        policies: Sequence[Policy],
        beside: Beside,
        failures: dict[ObjectKey, Sequence[Cause]],
    ) -> tuple[Modules, Modules]:
        """Return the modules that compile, moved and unmoved, and add the others to `failures`.

        Each iteration leaves out at least one policy.
        """
        while True:
            wanted, doubles = _placed(p for p in policies if p.key not in failures)
            failures |= doubles
            if not wanted:
                return {}, {}
            modules, sources, faults = await self._try(stage, wanted, beside)
            if not faults:
                return modules, sources
            failures |= _blamed(wanted, faults)

    async def _try(
        self, stage: Stage, wanted: _Wanted, beside: Beside
    ) -> tuple[Modules, Modules, Failures]:
        """Return a lane's modules, moved and unmoved, or the errors.

        The errors are by policy, in force or stood for.
        """
        await self._declared.learn(
            [*beside.versions.values(), *(policy.modules for policy in wanted.values())]
        )

        async def check(modules: Modules) -> list[Cause]:
            return await self._compile(
                {**beside.static, **self._generated, **modules}, beside.guard.own_builtins
            )

        candidates = {key: Candidate(found, "") for key, found in beside.versions.items()}
        candidates |= {
            key: Candidate(policy.modules, policy.born, self._refusals(beside, policy))
            for key, policy in wanted.items()
        }
        choice = await choose(candidates, beside.versions, check)
        if choice.failures:
            own = {key: choice.failures[key] for key in choice.failures.keys() & wanted.keys()}
            by_policy = {wanted[key].key: causes for key, causes in own.items()}
            self._quarantine.judge(by_policy, {p.key: p.modules for p in wanted.values()})
            return {}, {}, choice.failures
        if stage == CANDIDATE:
            return {}, _together(choice.modules), {}
        modules, faults = await self._moved(stage, choice.modules, beside)
        if faults:
            return {}, {}, faults
        modules[batch_id(stage)] = self._batch(stage)
        causes = await check({**_together(beside.versions), **modules})
        return modules, _together(choice.modules), {_OPA: causes} if causes else {}

    async def _moved(
        self, lane: Lane, versions: Versions, beside: Beside
    ) -> tuple[dict[str, str], Failures]:
        sources = _together(versions)
        await self._parse({**beside.static, **_together(beside.versions), **sources})
        ground = self._ground([beside.versions, versions], beside.guard)
        owners = {i: key for key, modules in versions.items() for i in modules}
        moved: dict[str, str] = {}
        faults: dict[ObjectKey, list[Cause]] = {}
        for policy_id, trouble in self._reaching(ground, versions, beside):
            faults.setdefault(owners.get(policy_id, _OPA), []).append(
                stage_cause(trouble, policy_id)
            )
        for policy_id, source in sources.items():
            found = move(source, self._trees[source], ground, prefix(lane))
            for trouble in found.troubles:
                faults.setdefault(owners[policy_id], []).append(stage_cause(trouble, policy_id))
            moved[lane_id(lane, policy_id)] = found.source
        return moved, faults

    def _reaching(
        self, ground: Ground, versions: Versions, beside: Beside
    ) -> Iterator[tuple[str, Trouble]]:
        """Yield references into a lane from outside, or out of it, with their modules."""
        if beside.opaque:
            yield "", Trouble(0, "OPA has modules of its own that do not compile here")
        anywhere = Ground(ground.packages | _BELOW.packages)
        for policy_id, source in beside.static.items():
            for trouble in leads_to(self._trees[source], anywhere):
                yield policy_id, trouble
        for policy_id, source in {**_together(beside.versions), **_together(versions)}.items():
            for trouble in leads_to(self._trees[source], _BELOW):
                yield policy_id, trouble

    async def _parse(self, modules: Modules) -> None:
        sources = set(modules.values())
        self._trees = {source: tree for source, tree in self._trees.items() if source in sources}
        # Keyed by number: two versions of a module have one id.
        new = {str(number): s for number, s in enumerate(sorted(sources - self._trees.keys()))}
        found = await self._parser.parsed(new) if new else {}
        self._trees |= {source: found.get(number) for number, source in new.items()}

    def _ground(self, sets: Iterable[Versions], guard: Guard) -> Ground:
        declared = [self._declared[s] for found in sets for s in _together(found).values()]
        packages = frozenset(found.package for found in declared if found is not None)
        return Ground(packages, frozenset(map(tuple, (*guard.data, *guard.own, *guard.builtin))))

    def _refusals(self, beside: Beside, policy: Policy) -> tuple[Cause, ...]:
        refused = unreadable(policy) or self._quarantine.objection(policy.modules)
        return refused or tuple(
            forbidden(policy_id, finding)
            for policy_id, source in policy.modules.items()
            if (found := self._declared[source]) is not None
            for finding in beside.guard.findings(found)
        )


def unknown(staged: Iterable[Policy]) -> dict[ObjectKey, list[Cause]]:
    """Return the policies of an unknown stage, with the error to report."""
    return {
        policy.key: [
            stage_cause(Trouble(0, f"nobody knows the stage {policy.stage!r:.80} {_KNOWN}"))
        ]
        for policy in staged
        if policy.stage not in (*LANES, CANDIDATE)
    }


def _placed(
    policies: Iterable[Policy],
) -> tuple[dict[ObjectKey, Policy], dict[ObjectKey, list[Cause]]]:
    """Return policies by what they stand for, and errors of younger ones with the same place."""
    wanted: dict[ObjectKey, Policy] = {}
    doubles: dict[ObjectKey, list[Cause]] = {}
    for policy in policies:
        place = policy.stands_for or policy.key
        if wanted.setdefault(place, policy) is not policy:
            message = f"{called(wanted[place].key)}, which is older, stands for {named(place)} too"
            doubles[policy.key] = [stage_cause(Trouble(0, message))]
    return wanted, doubles


def _blamed(wanted: _Wanted, faults: Failures) -> dict[ObjectKey, Sequence[Cause]]:
    """Return the faulty staged policies; if the set in force is at fault, all staged ones."""
    if own := faults.keys() & wanted.keys():
        return {wanted[key].key: faults[key] for key in own}
    causes = [cause for found in faults.values() for cause in found]
    return {policy.key: causes for policy in wanted.values()}


def stage_cause(trouble: Trouble, policy_id: str = "") -> Cause:
    """Return why something cannot be staged, as a cause for its author."""
    location = {"file": policy_id} | ({"row": trouble.row} if trouble.row else {})
    return {"code": STAGE, "message": trouble.message} | (
        {"location": location} if policy_id else {}
    )


def _together(versions: Versions) -> dict[str, str]:
    return {i: source for modules in versions.values() for i, source in modules.items()}
