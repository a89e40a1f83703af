"""The two sides of a comparison: policies and objects as they are, and after the edit.

Invariant: both are made from one snapshot, and a side without an edit equals the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from kube_sync.config import CLUSTERS, Settings
from kube_sync.errors import Broken
from kube_sync.inspect.plan.candidate_files import clusters_of, read_candidates, select_staged
from kube_sync.inspect.plan.candidates import (
    Candidates,
    EditedPolicies,
    Staged,
    put,
    put_data,
)
from kube_sync.inspect.plan.cluster_changes import Facts, applied
from kube_sync.inspect.plan.extra_documents import (
    CanaryInEffect,
    ExtraDocuments,
    extra_documents,
    last_good,
)
from kube_sync.inspect.plan.offline_opa import World, analysis, common_modules
from kube_sync.inspect.plan.policy_selection import Policies, PolicySelector
from kube_sync.inspect.plan.request import Request
from kube_sync.inspect.plan.snapshot import Bodies, Objects, Snapshot, policies_of, projected
from kube_sync.inspect.plan.warned import warned
from kube_sync.inspect.survey.progress import Progress
from kube_sync.kube.placementpolicies import PlacementPolicy
from kube_sync.kube.policymaps import PolicyMap
from kube_sync.objects import ObjectKey
from kube_sync.opa.analysis.result import Reads, withheld
from kube_sync.opa.scratch import Modules, ScratchOpa
from kube_sync.policies.policywarning import PolicyWarning
from kube_sync.policies.set_compiler import Versions

_EDITED: Final = "this is told by what would be in force"
_UNKNOWN: Final = "its set cannot be made now, so this is told by what is in force"


_Known = Mapping[ObjectKey, PolicyMap | PlacementPolicy]


@dataclass(frozen=True, slots=True)
class _Selected:
    """The policies of both sides."""

    before: Policies
    after: Policies
    edited: EditedPolicies | None = None
    canary: CanaryInEffect | None = None
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
    canary: CanaryInEffect | None = None  # the canary whose policies the second side has
    warnings: tuple[PolicyWarning, ...] = ()  # on the policies of the second side
    files: Mapping[str, str] = field(default_factory=dict)  # as a plan has them

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
    canary: CanaryInEffect | None = None,
) -> Worlds:
    """Return the worlds to compare. Raises Broken, SyncError.

    With a `canary`, the second side has its policies, unless the request has others.
    """
    changes = _cluster_changes(request, snapshot)
    known = await policies_of(snapshot.configmaps, settings.policies)
    candidates = await _candidates(request, settings, snapshot)
    data, then_data = await _documents(candidates, settings, snapshot)
    created = {key: policy.born for key, policy in known.items()}
    places = [*data.places, *then_data.places]
    selector = PolicySelector.of(settings, scratch, places, created)
    good = last_good(snapshot.configmaps, settings)
    with progress.during("compiling the policies"):
        selected = await _select(selector, known, good, candidates, canary)
    bodies = projected(settings, snapshot)
    changed, then_bodies = _apply_cluster_changes(changes, settings, snapshot, bodies)
    added = common_modules(settings)
    now = World("now", {**selected.before.modules, **added}, bodies, data.documents)
    names = selected.edited.names if selected.edited else {}
    then_modules = {**selected.after.modules, **added}
    then = World("then", then_modules, then_bodies, then_data.documents, names)
    # One for both: equal policies are analysed once.
    reading = analysis(scratch, settings.placement.path, snapshot.places)
    with progress.during("finding out what the policies read"):
        reads = {side.name: (await reading.need(side.modules)).reads for side in (now, then)}
        warnings = await warned(then.modules, names, settings, snapshot.places, scratch, reading)
    staged = selected.edited.staged if selected.edited else ()
    withheld_notes = _withheld_notes(reads[then.name], settings)
    notes = (*snapshot.notes, *selected.before.notes, *data.notes, *then_data.notes)
    notes = (*dict.fromkeys(notes), *candidates.notes, *selected.notes, *withheld_notes)
    files = {**names, **{str(item.key): file for file, item in candidates.data}}
    return Worlds(now, then, reads, changed, notes, staged, selected.canary, warnings, files)


def _withheld_notes(reads: Reads, settings: Settings) -> list[str]:
    return [
        f"{module}: {text}" for module, texts in withheld(reads, settings).items() for text in texts
    ]


def _cluster_changes(request: Request, snapshot: Snapshot) -> Facts:
    changes = Facts((), request.fields, request.removed)
    if not request.clusters and not changes:
        return changes
    place, _ = snapshot.fleet()
    return replace(changes, added=clusters_of(request.clusters, namespaced=place.namespaced))


def _apply_cluster_changes(
    changes: Facts, settings: Settings, snapshot: Snapshot, bodies: Bodies
) -> tuple[Snapshot, Bodies]:
    """Apply the cluster changes to a snapshot and its bodies."""
    if not changes:
        return snapshot, bodies
    changed = snapshot.with_objects(CLUSTERS, applied(changes, snapshot.objects[CLUSTERS]))
    # The other collections stay the same objects, so that their classes do too.
    return changed, {**bodies, **projected(settings, changed, only=CLUSTERS)}


async def _candidates(request: Request, settings: Settings, snapshot: Snapshot) -> Candidates:
    candidates = Candidates()
    if request.files or request.staged:
        stages, items = request.stages, snapshot.configmaps
        staged = select_staged(items, request.candidates, stages) if request.staged else ()
        candidates = await read_candidates(
            request.files,
            staged,
            settings.policies,
            instead=request.instead,
            stages=stages,
            with_data=True,
        )
    return replace(candidates, removed=request.unloaded)


async def _documents(
    candidates: Candidates, settings: Settings, snapshot: Snapshot
) -> tuple[ExtraDocuments, ExtraDocuments]:
    """Return the documents of both sides. Raises Broken."""
    now = await extra_documents(snapshot.configmaps, settings)
    if not candidates.data:
        return now, now
    return now, await extra_documents(put_data(candidates, snapshot.configmaps), settings)


async def _select(
    selector: PolicySelector,
    known: _Known,
    good: Versions,
    candidates: Candidates,
    canary: CanaryInEffect | None,
) -> _Selected:
    modules: dict[ObjectKey, Modules] = {key: policy.modules for key, policy in known.items()}
    before, choice = await selector.select_current(modules, good)
    if candidates:
        edited = put(candidates, modules)
        after = await selector.select_with(edited, choice)
        notes = () if canary is None else (f"{canary}, decides on it now, and {_EDITED}",)
        return _Selected(before, after, edited, notes=notes)
    if canary is None:
        return _Selected(before, before)
    try:
        # With the file names of its author.
        edited = replace(put(canary.candidates, modules), names={})
        after = await selector.select_with(edited, choice)
    except Broken as error:  # the replicator may still run it from before an edit
        return _Selected(
            before, before, notes=(f"{canary}, decides on it, but {_UNKNOWN}: {error}",)
        )
    return _Selected(before, after, canary=canary)
