"""The handlers of `kube-sync plan` and `kube-sync export`, from the request to the output.

Invariant: a cluster is only read, the serving OPA gets no query, and no partial result is printed.
Wired here and not in `processes`: it needs none of the long-running parts, and must start without
them.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Final

from kube_sync.config import CLUSTERS, TOPOLOGY, Settings
from kube_sync.decisions.evaluator import Outcome
from kube_sync.errors import Broken, SyncError, Undecided
from kube_sync.guard import Change, Fleet, Inventory, Placements, limits_of, read_history
from kube_sync.guard.history import History
from kube_sync.inspect.plan import sources
from kube_sync.inspect.plan.causes import causes
from kube_sync.inspect.plan.choosing import choose, narrowed, shown
from kube_sync.inspect.plan.effect_classes import Effects
from kube_sync.inspect.plan.effects import Effect, unknown_clusters
from kube_sync.inspect.plan.extra_documents import canary_note, in_effect
from kube_sync.inspect.plan.forecast import Forecast, Workload, forecast, tightening, workload
from kube_sync.inspect.plan.markdown import as_markdown
from kube_sync.inspect.plan.offline_decisions import Decided, Grouping, deciding
from kube_sync.inspect.plan.offline_opa import World, gather_both
from kube_sync.inspect.plan.plan import Plan, identity
from kube_sync.inspect.plan.report import as_json, as_names, as_table
from kube_sync.inspect.plan.request import Request
from kube_sync.inspect.plan.sarif import findings
from kube_sync.inspect.plan.snapshot import Objects, Snapshot, currents
from kube_sync.inspect.plan.worlds import Worlds, worlds
from kube_sync.inspect.sarif.report import of_error, write_sarif
from kube_sync.inspect.survey.progress import Progress
from kube_sync.kube.client import kube_client
from kube_sync.objects import ObjectKey
from kube_sync.opa.scratch import ScratchOpa
from kube_sync.policies.required_fields import Need
from kube_sync.policykinds.printing import Answer
from kube_sync.remediation.clusters import inventory, labels_of
from kube_sync.remediation.modes import Modes
from kube_sync.remediation.plan import Current

PrintLine = Callable[[str], None]
_WRITTEN: Final = ("enforce", "manual")  # modes
_Currents = Mapping[str, Mapping[ObjectKey, Current]]  # by collection


async def run(request: Request, settings: Settings, report: PrintLine) -> Answer:
    """Plan, and return the output and the exit status. Raises SyncError: there is no plan."""
    try:
        plan = await planned(request, settings, Progress(report), time.time())
    except SyncError as error:
        write_sarif(request.sarif, "plan", of_error(error))
        raise
    write_sarif(request.sarif, "plan", findings(plan, request.clusters))
    return Answer(_formatted(plan, request, settings), plan.status)


def _formatted(plan: Plan, request: Request, settings: Settings) -> str:
    match request.form:
        case "json" | "summary":
            return as_json(plan, whole=request.form == "json")
        case "markdown":
            return as_markdown(plan, every=request.every)
        case "name":
            places = {resource.name: resource.gvr for resource in settings.targets()}
            return as_names(plan, places, in_namespace=request.namespace is not None)
        case "text" | "wide":
            columns = shutil.get_terminal_size((120, 40)).columns
            width = columns if request.form == "text" else None
            return as_table(plan, width, every=request.every)


async def export(settings: Settings, report: PrintLine, write_line: PrintLine) -> None:
    """Pass each line of an export of the configured cluster to `write_line`. Raises SyncError."""
    async with kube_client(settings.kubernetes) as client:
        snapshot = await sources.of_cluster(client, settings, Progress(report))
    # Complete before the first line is written: half an export is useless.
    for line in [*sources.lines(snapshot, settings)]:
        write_line(line)


async def planned(request: Request, settings: Settings, progress: Progress, now: float) -> Plan:
    """Return the plan; moves start at `now` (Unix seconds). Raises SyncError."""
    scratch = ScratchOpa.of(settings)
    snapshot = await sources.snapshot_of(request, settings, progress)
    plan = await _planned(request, settings, snapshot, scratch, progress, now)
    if request.exported is None and plan.effects:
        await _check_objects_exist(settings, plan.effects)
    return plan


async def _planned(
    request: Request,
    settings: Settings,
    snapshot: Snapshot,
    scratch: ScratchOpa,
    progress: Progress,
    now: float,
) -> Plan:
    places = {resource.name: resource.gvr for resource in settings.targets()}
    chosen = choose(request, places, snapshot.objects)
    found = await worlds(request, settings, snapshot, scratch, progress)
    clusters = snapshot.objects.get(CLUSTERS, {})
    async with _both_decided(found, snapshot, settings, scratch, progress) as (is_now, then):
        has = {name: await currents(snapshot.objects[name]) for name in _targets(settings)}
        has = {**has, **_unannotated(settings, has, is_now)}
        fleet = _fleet(settings, len(clusters), found.clusters)
        every = _effects(settings, has, is_now, then, fleet.inventory)
        effects, left = shown(chosen, every)
        # The one waits for OPA, the other computes.
        causes_of_effects, (forecast_of_moves, notes) = await gather_both(
            causes(effects, is_now, then, progress),
            _forecast(settings, every, has, then, fleet, now),
        )
    number = sum(map(len, has.values()))
    if chosen is not None:
        number, forecast_of_moves = len(chosen), narrowed(forecast_of_moves, effects)
    notes = [*found.notes, *left, *notes, *_limitation_notes(settings, is_now, then)]
    notes += unknown_clusters(effects, fleet.inventory)
    notes += await _canary_notes(settings, snapshot, has)
    return Plan(
        number,
        then.classes,
        effects,
        causes_of_effects,
        forecast_of_moves,
        tuple(notes),
        found.staged,
        found.warnings,
        found.files,
    )


@asynccontextmanager
async def _both_decided(
    found: Worlds, snapshot: Snapshot, settings: Settings, scratch: ScratchOpa, progress: Progress
) -> AsyncGenerator[tuple[Decided, Decided]]:
    """Yield the decisions of both sides, whose OPAs run until the block ends."""
    sharing = Grouping(settings.placement.names)
    async with AsyncExitStack() as stack:

        async def enter(world: World) -> Decided:
            need = Need(found.reads[world.name], snapshot.places)
            groups = sharing.groups(world.bodies, need)
            context = deciding(world, need, groups, scratch, settings, progress)
            return await stack.enter_async_context(context)

        yield await gather_both(enter(found.now), enter(found.then))


async def _canary_notes(
    settings: Settings, snapshot: Snapshot, has: Mapping[str, Mapping[ObjectKey, Current]]
) -> list[str]:
    if (canary := await in_effect(snapshot.configmaps, settings.policies)) is None:
        return []
    return [canary_note(canary, (key for objects in has.values() for key in objects))]


def _fleet(settings: Settings, before: int, clusters: Objects) -> Fleet:
    """Return the fleet as the remediator would know it after the edit."""
    if all(resource.name != CLUSTERS for resource in settings.replicate.resources):
        return Fleet(0.0, 1, 1, epoch_matches=True)  # the remediator counts none either
    after, known = len(clusters), None
    if after and settings.remediate.guard.known_clusters:
        known = inventory({key: labels_of(item) for key, item in clusters.items()})
    return Fleet(0.0, after, max(before, after), epoch_matches=True, inventory=known)


def _limitation_notes(settings: Settings, now: Decided, then: Decided) -> Iterator[str]:
    """Yield notes on what the plan cannot know, or knows only of this moment."""
    if all(outcome == Outcome(outcome.uid) for outcome in now.outcomes.values()):
        yield "as things are nothing is decided of any workload: are all policies here?"
    if then.unshared_reason is not None:
        yield f"each workload was decided alone: {then.unshared_reason}"
    if settings.policies.static:
        yield "policies that OPA has from elsewhere (policies.static) are not part of the plan"
    if settings.replicate.topology and TOPOLOGY not in now.world.bodies:
        yield "the topology (replicate.topology) is not part of the plan: none was exported"


def _targets(settings: Settings) -> list[str]:
    return [resource.name for resource in settings.targets()]


def _unannotated(settings: Settings, has: _Currents, now: Decided) -> _Currents:
    """Return the objects that other sinks than annotations place, as they are decided on now.

    What these sinks have is not known here, so what is decided counts as carried out.
    """
    return {
        r.name: {
            key: _as_decided(current, now.outcomes[r.name, key])
            for key, current in has[r.name].items()
        }
        for r in settings.targets()
        if "annotations" not in settings.sinks_of(r)
    }


def _as_decided(current: Current, outcome: Outcome) -> Current:
    annotations = {} if outcome.decision is None else outcome.decision.annotations
    return replace(current, annotations=annotations, ours=frozenset(annotations))


def _effects(
    settings: Settings, has: _Currents, now: Decided, then: Decided, known: Inventory | None
) -> list[Effect]:
    effects = Effects(Placements(settings.remediate.guard.placements), known)
    found = (
        effects.of(name, key, current, now.outcomes[name, key], then.outcomes[name, key])
        for name, objects in has.items()
        for key, current in objects.items()
    )
    return [one for one in found if one is not None]


async def _forecast(
    settings: Settings,
    effects: Sequence[Effect],
    has: _Currents,
    then: Decided,
    fleet: Fleet,
    now: float,
) -> tuple[Forecast, list[str]]:
    """Return the forecast of the moves, and notes on it."""
    modes, notes = Modes(settings.remediate), list[str]()
    placed = [e for e in effects if e.change is not None]
    moving = [e for e in placed if modes.of(e.key.namespace) in _WRITTEN]
    if len(moving) < len(placed):
        left = len(placed) - len(moving)
        notes.append(f"{left} lie where the remediator does not write (remediate.mode, namespaces)")
    try:
        by = tightening(await then.opa.budget())
    except Undecided as error:
        notes.append(f"what policies limit cannot be used, so nothing would move: {error}")
        return Forecast({}, {}), notes
    found = await asyncio.to_thread(
        forecast,
        _moves(moving, has, now),
        _workloads(has, now),
        _numbers(has, modes),
        fleet,
        limits_of(settings.remediate.guard),
        by=by,
        not_before={
            identity(e): by.not_before[str(e.key)] for e in moving if str(e.key) in by.not_before
        },
        now=now,
    )
    return found, notes


def _moves(
    moving: Sequence[Effect], has: _Currents, now: float
) -> dict[str, tuple[Change, History]]:
    """Return the changes of the moves, each with the history of its object."""
    wanted = dict[str, tuple[Change, History]]()
    for one in moving:
        if one.change is not None:
            current = has[one.resource][one.key]
            change = replace(one.change, idle=current.idle)
            wanted[identity(one)] = change, read_history(current.annotations, now)
    return wanted


def _workloads(has: _Currents, now: float) -> dict[str, Workload]:
    return {
        f"{name}/{key}/{current.uid}": found
        for name, objects in has.items()
        for key, current in objects.items()
        if (found := workload(key.namespace, current.annotations, now)) is not None
    }


def _numbers(has: _Currents, modes: Modes) -> Counter[str]:
    """Return how many workloads the remediator may write, without idle ones, by namespace."""
    return Counter(
        key.namespace
        for objects in has.values()
        for key, current in objects.items()
        if not current.idle and modes.of(key.namespace) in _WRITTEN
    )


async def _check_objects_exist(settings: Settings, effects: Sequence[Effect]) -> None:
    """Check that the planned objects still exist. Raises Broken, SyncError."""
    async with kube_client(settings.kubernetes) as client:
        missing = await sources.deleted_uids(client, settings, {effect.uid for effect in effects})
    if missing:
        raise Broken(
            f"{e.resource} {e.key}: it vanished while it was planned"
            for e in effects
            if e.uid in missing
        )
