"""Evaluates the decisions over a snapshot, once for each class of equivalent workloads.

Invariant: objects of one class are decided once, and every object has an outcome in the end. A
decision over the loaded data equals the decision over all objects, by the analysis of what the
policies read (`analysis`); without a result of it everything is loaded, and decided one by one.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from itertools import islice

from kube_sync.config import Settings
from kube_sync.decisions.classes import Classify, may_share
from kube_sync.decisions.classifier import classifier
from kube_sync.decisions.evaluator import Outcome
from kube_sync.errors import NO_JSON, Broken
from kube_sync.inspect.plan.offline_opa import OfflineOpa, Scratch, World, serving_world
from kube_sync.inspect.plan.snapshot import Bodies
from kube_sync.inspect.survey.progress import Progress
from kube_sync.objects import ObjectKey
from kube_sync.opa.analysis.result import Reads
from kube_sync.policies.required_fields import WHOLE, Form, Need
from kube_sync.replicator.path_projection import narrowing

_PART = 200  # classes between two progress messages

Group = Sequence[ObjectKey]  # the first one is evaluated
Key = tuple[str, ObjectKey]  # a collection's name, and the key of an object


@dataclass(frozen=True, slots=True)
class Decided:
    """The decisions of one world on each target, the number of classes, and the OPA behind them."""

    world: World
    opa: OfflineOpa
    outcomes: Mapping[Key, Outcome]
    classes: int
    unshared_reason: str | None = None  # why no two objects share a decision


@asynccontextmanager
async def deciding(
    world: World,
    need: Need,
    groups: Mapping[str, Sequence[Group]],
    scratch: Scratch,
    settings: Settings,
    progress: Progress,
) -> AsyncGenerator[Decided]:
    """Yield all decisions of a world, whose policies read `need`, one for each group.

    Raises SyncError.
    """
    configured = {
        resource.name for resource in settings.replicate.resources if resource.paths is not None
    }
    loaded = replace(world, bodies=needed(world.bodies, need, groups, configured))
    async with serving_world(scratch, settings, loaded) as opa:
        outcomes = dict[Key, Outcome]()
        for name, shared in groups.items():
            outcomes |= await _decide(world, name, shared, opa, progress)
        yield Decided(
            world, opa, outcomes, sum(map(len, groups.values())), _unshared_reason(need.reads)
        )


class Grouping:
    """Computes classes, once for worlds that read the same of the same objects."""

    def __init__(self, targets: Collection[str]) -> None:
        """`targets` are the collections with decisions."""
        self._targets = targets
        self._known: list[tuple[Mapping[ObjectKey, bytes], object, list[Group]]] = []

    def groups(self, bodies: Bodies, need: Need) -> dict[str, list[Group]]:
        """Return the classes of each target collection."""
        return {name: self._groups(bodies.get(name, {}), need) for name in self._targets}

    def _groups(self, objects: Mapping[ObjectKey, bytes], need: Need) -> list[Group]:
        paths = need.reads.input.paths if may_share(need.reads) else None
        for loaded, paths_of_groups, groups in self._known:
            if loaded is objects and paths_of_groups == paths:
                return groups
        groups = grouped(objects, None if paths is None else classifier(paths))
        self._known.append((objects, paths, groups))
        return groups


def grouped(objects: Mapping[ObjectKey, bytes], classify: Classify | None) -> list[Group]:
    """Group the objects by class; without `classify`, each is a class of its own."""
    if classify is None:
        return [(key,) for key in objects]
    found: dict[bytes | ObjectKey, list[ObjectKey]] = {}
    for key, body in objects.items():
        found.setdefault(_class(classify, body) or key, []).append(key)
    return [*found.values()]


def needed(
    bodies: Bodies,
    need: Need,
    groups: Mapping[str, Sequence[Group]],
    configured: Collection[str] = (),
) -> Bodies:
    """Return the parts of all objects that the decisions over one of each group read.

    Of workloads that policies read only as input, that is one of each group. In collections
    with `configured` fields the objects stay as they are.
    """
    return {
        name: _narrowed(
            objects,
            _keys(objects, groups.get(name, ()), read=_is_read(name, need)),
            WHOLE if name in configured else need.of(name, target=name in groups),
        )
        for name, objects in bodies.items()
    }


def _keys(
    objects: Mapping[ObjectKey, bytes], groups: Sequence[Group], *, read: bool
) -> Iterable[ObjectKey]:
    return objects if read else (group[0] for group in groups)


def _is_read(name: str, need: Need) -> bool:
    """Return whether policies read a collection as data, whatever the input is."""
    sides = (need.reads, need.reads.beside)
    return any(
        reads.gave_up is not None or name not in reads.resources or reads.resources[name].used
        for reads in sides
        if reads is not None
    )


def _narrowed(
    objects: Mapping[ObjectKey, bytes], keys: Iterable[ObjectKey], form: Form
) -> Mapping[ObjectKey, bytes]:
    if form == WHOLE:
        return {key: objects[key] for key in keys}
    narrow = narrowing(form.paths, values=True)  # the configured projection is applied already
    # Paths begin at an object's place: other data is kept whole.
    inside = form.namespaced
    return {k: narrow(objects[k]) if bool(k.namespace) == inside else objects[k] for k in keys}


def _class(classify: Classify, body: bytes) -> bytes | None:
    try:
        return classify(body)
    except NO_JSON:
        return None


def _unshared_reason(reads: Reads) -> str | None:
    if reads.gave_up is not None:
        return f"the policies could not be analysed: {reads.gave_up}"
    if reads.impure:
        return f"decided by {', '.join(reads.impure)}, which may answer otherwise another time"
    return "the policies read all of each" if () in reads.input.paths else None


async def _decide(
    world: World,
    name: str,
    groups: Sequence[Group],
    opa: OfflineOpa,
    progress: Progress,
) -> dict[Key, Outcome]:
    found: dict[Key, Outcome] = {}
    rest, done = iter(groups), 0
    while part := list(islice(rest, _PART)):
        answers = await opa.evaluate(name, [group[0] for group in part])
        for group in part:
            outcome = answers.get(group[0])
            if outcome is None:
                raise Broken([f"{name} {group[0]}: it vanished while it was planned"])
            found |= {(name, key): outcome for key in group}
        done += len(part)
        progress.report(f"{world.name}: {_progress_text(done, len(groups))} {name} …")
    return found


def _progress_text(done: int, of: int) -> str:
    full = 20 * done // max(of, 1)
    return f"[{'#' * full}{'.' * (20 - full)}] {done} of {of} classes of"
