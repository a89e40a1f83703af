"""The two sides of a comparison: policies and objects as they are, and after the edit.

Invariant: both are made from one snapshot, and a side without an edit equals the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from kube_sync.config import CLUSTERS, Settings
from kube_sync.errors import Broken
from kube_sync.inspect.plan.candidatefiles import clusters_of, only, read_candidates
from kube_sync.inspect.plan.candidates import Candidates, Staged, Wanted, put
from kube_sync.inspect.plan.cluster_changes import Facts, applied
from kube_sync.inspect.plan.extra_documents import InEffect, beside, last_good
from kube_sync.inspect.plan.offline import World, analysis, common_modules
from kube_sync.inspect.plan.policies import Chooser, Policies
from kube_sync.inspect.plan.request import Request
from kube_sync.inspect.plan.snapshot import Bodies, Objects, Snapshot, policies_of, projected
from kube_sync.inspect.survey.progress import Progress
from kube_sync.kube.placementpolicies import PlacementPolicy
from kube_sync.kube.policymaps import PolicyMap
from kube_sync.objects import ObjectKey
from kube_sync.opa.analysis.reads import Reads, withheld
from kube_sync.opa.scratch import Modules, ScratchOpa
from kube_sync.policies.choice import Versions

_EDITED: Final = "this is told by what would be in force"
_UNKNOWN: Final = "its set cannot be made now, so this is told by what is in force"


_Known = Mapping[ObjectKey, PolicyMap | PlacementPolicy]


@dataclass(frozen=True, slots=True)
class _Chosen:
    """The policies of both sides."""

    before: Policies
    after: Policies
    wanted: Wanted | None = None
    canary: InEffect | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Worlds:
    """Both sides, and what the policies of each read."""

    now: World
    then: World
    reads: Mapping[str, Reads]  # by the name of the side
    snapshot: Snapshot  # after the cluster changes
    notes: tuple[str, ...] = ()
    staged: tuple[Staged, ...] = ()
    canary: InEffect | None = None  # the canary whose policies the second side has

    @property
    def clusters(self) -> Objects:
        """The fleet after the edit."""
        return self.snapshot.objects.get(CLUSTERS, {})


async def worlds(
    request: Request,
    settings: Settings,
    snapshot: Snapshot,
    scratch: ScratchOpa,
    progress: Progress,
    on: InEffect | None = None,
) -> Worlds:
    """Return the worlds to compare. Raises Broken, SyncError.

    With a canary (`on`), the second side has the canary's policies, unless the request has
    others.
    """
    facts = _facts(request, snapshot)
    data = await beside(snapshot.configmaps, settings)
    known = await policies_of(snapshot.configmaps, settings.policies)
    candidates = await _candidates(request, settings, snapshot)
    born = {key: policy.born for key, policy in known.items()}
    chooser = Chooser.of(settings, scratch, data.places, born)
    good = last_good(snapshot.configmaps, settings)
    with progress.during("compiling the policies"):
        chosen = await _chosen(chooser, known, good, candidates, on)
    bodies = projected(settings, snapshot)
    moved, then_bodies = _moved(facts, settings, snapshot, bodies)
    added = common_modules(settings)
    now = World("now", {**chosen.before.modules, **added}, bodies, data.documents)
    names = chosen.wanted.names if chosen.wanted else {}
    then = World("then", {**chosen.after.modules, **added}, then_bodies, data.documents, names)
    # One for both: equal policies are analysed once.
    reading = analysis(scratch, settings.placement.path, snapshot.places)
    with progress.during("finding out what the policies read"):
        reads = {side.name: (await reading.need(side.modules)).reads for side in (now, then)}
    staged = chosen.wanted.staged if chosen.wanted else ()
    kept_out = _kept_out(reads[then.name], settings)
    notes = (*snapshot.notes, *chosen.before.notes, *data.notes, *chosen.notes, *kept_out)
    return Worlds(now, then, reads, moved, notes, staged, chosen.canary)


def _kept_out(reads: Reads, settings: Settings) -> list[str]:
    return [
        f"{module}: {text}" for module, texts in withheld(reads, settings).items() for text in texts
    ]


def _facts(request: Request, snapshot: Snapshot) -> Facts:
    facts = Facts((), request.fields, request.removed)
    if not request.clusters and not facts:
        return facts
    place, _ = snapshot.fleet()
    return replace(facts, brought=clusters_of(request.clusters, namespaced=place.namespaced))


def _moved(
    facts: Facts, settings: Settings, snapshot: Snapshot, bodies: Bodies
) -> tuple[Snapshot, Bodies]:
    """Apply the cluster changes to a snapshot and its bodies."""
    if not facts:
        return snapshot, bodies
    moved = snapshot.with_objects(CLUSTERS, applied(facts, snapshot.objects[CLUSTERS]))
    # The other collections stay the same objects, so that their classes do too.
    return moved, {**bodies, **projected(settings, moved, only=CLUSTERS)}


async def _candidates(request: Request, settings: Settings, snapshot: Snapshot) -> Candidates:
    candidates = Candidates()
    if request.files or request.staged:
        stages, items = request.stages, snapshot.configmaps
        staged = only(items, request.candidates, stages) if request.staged else ()
        candidates = await read_candidates(
            request.files, staged, settings.policies, instead=request.instead, stages=stages
        )
    return replace(candidates, removed=request.unloaded)


async def _chosen(
    chooser: Chooser,
    known: _Known,
    good: Versions,
    candidates: Candidates,
    on: InEffect | None,
) -> _Chosen:
    modules: dict[ObjectKey, Modules] = {key: policy.modules for key, policy in known.items()}
    before, choice = await chooser.as_is(modules, good)
    if candidates:
        wanted = put(candidates, modules)
        after = await chooser.tried(wanted, choice)
        notes = () if on is None else (f"{on}, decides on it now, and {_EDITED}",)
        return _Chosen(before, after, wanted, notes=notes)
    if on is None:
        return _Chosen(before, before)
    try:
        # With the file names of its author.
        as_canary = replace(put(on.candidates, modules), names={})
        after = await chooser.tried(as_canary, choice)
    except Broken as error:  # the replicator may still run it from before an edit
        return _Chosen(before, before, notes=(f"{on}, decides on it, but {_UNKNOWN}: {error}",))
    return _Chosen(before, after, canary=on)
