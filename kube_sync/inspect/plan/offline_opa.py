"""Offline OPAs that hold a world (policies and data), apart from the OPA that serves.

`plan`, `why`, `test` and `replay` use them. Invariant: the query is the replicator's own, by the
same generated module, or is about an input that comes with it; an OPA ends with the block that
started it.
"""

from __future__ import annotations

import asyncio
from collections.abc import (
    AsyncGenerator,
    Collection,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol, TypeVar

import msgspec
from msgspec import structs

from kube_sync.config import Settings
from kube_sync.decisions.batch_module import BATCH_MODULE, batch_module
from kube_sync.decisions.decision import parse_decision
from kube_sync.decisions.decision_reader import DecisionReader, ReadDecision
from kube_sync.decisions.evaluator import Evaluator, Outcome
from kube_sync.decisions.explaining import Explaining, Explanation
from kube_sync.decisions.requested import as_requested
from kube_sync.errors import NO_JSON, Retriable, SyncError, Undecided, first_of
from kube_sync.guard import Placements
from kube_sync.inspect.plan.snapshot import EPOCH, Bodies, collection, document
from kube_sync.objects import ObjectKey
from kube_sync.opa.analysis.result import Collection as Place
from kube_sync.opa.client import OpaClient
from kube_sync.opa.modules import file_of
from kube_sync.opa.paths import DataPath, reference
from kube_sync.opa.scratch import Modules
from kube_sync.policies.builtin import built_in
from kube_sync.policies.reading import Reading, TreeCompiler

INPUTS_MODULE: Final = "kube_sync/inspect/plan/inputs"  # its id
_ANSWERS: Final = "kube_sync/inputs/answers"

A = TypeVar("A")
B = TypeVar("B")


class Scratch(Protocol):
    """The scratch OPA."""

    def serving(
        self, modules: Modules, data: bytes, given: Collection[str] = ()
    ) -> AbstractAsyncContextManager[OpaClient]:
        """Yield a client of an OPA with these modules and data."""
        ...


@dataclass(frozen=True, slots=True)
class World:
    """Policies, and all objects and other documents in the form that OPA gets."""

    name: str  # for people
    modules: Modules
    bodies: Bodies = field(default_factory=dict)
    documents: Mapping[ObjectKey, bytes] = field(default_factory=dict)  # other documents
    names: Mapping[str, str] = field(default_factory=dict)  # of modules that people call otherwise

    def file_name(self, policy_id: str) -> str:
        """Return a module's name for people."""
        return self.names.get(policy_id, policy_id)

    def input_of(self, name: str, key: ObjectKey) -> bytes:
        """Return an object of a collection as a decision's input."""
        return as_requested(self.bodies[name][key])


class OfflineOpa:
    """An OPA that holds a world."""

    def __init__(
        self,
        client: OpaClient,
        modules: Modules,
        root: str,
        path: str,
        read: ReadDecision = parse_decision,
    ) -> None:
        """`root` is the path of collections, `path` that of the decision, which `read` parses."""
        self.client = client
        self._root = root
        self._read = read
        self._evaluator = Evaluator(client, EPOCH, read=read)
        self._explaining = Explaining(client, path)
        self._ids = {file_of(policy_id): policy_id for policy_id in modules}
        self._sources = {file: modules[policy_id] for file, policy_id in self._ids.items()}

    async def evaluate(self, name: str, keys: Iterable[ObjectKey]) -> dict[ObjectKey, Outcome]:
        """Evaluate the decisions on objects of a collection, if the OPA holds them.

        Raises SyncError.
        """
        return await self._evaluator.evaluate(name, keys)

    async def evaluate_inputs(self, inputs: Sequence[Mapping[str, Any]]) -> list[Outcome]:
        """Evaluate the decision on each of `inputs`: `asked`, with `objects` at their places.

        The world must include `inputs_module`. Raises SyncError.
        """
        body = msgspec.json.encode({"input": {"inputs": inputs}})
        try:
            answer = await self.client.query(_ANSWERS, body)
        except Undecided as error:
            if len(inputs) == 1:
                return [Outcome("", failure=str(error))]
            # One evaluation error fails the whole query: find the input at fault.
            return [outcome for one in inputs for outcome in await self.evaluate_inputs([one])]
        return [*_outcomes(answer or b"{}", len(inputs), self._read)]

    async def explain(self, body: bytes) -> Explanation:
        """Explain the decision on an object's input; files are ids of modules."""
        found = await self._explaining.explain(body, self._sources)
        rules = (structs.replace(r, file=self._ids.get(r.file, r.file)) for r in found.rules)
        return replace(found, rules=tuple(rules))

    async def budget(self) -> Any:  # noqa: ANN401 - any JSON
        """Return the policies' budget of moves, None if there is none. Raises SyncError."""
        body = msgspec.json.encode({"input": {"epoch": EPOCH}})
        answer = await self.client.query("kube_sync/batch/budget", body)
        found = msgspec.json.decode(answer or b"{}")
        return found.get("document") if isinstance(found, dict) else None

    async def put_collection(self, name: str, objects: Mapping[ObjectKey, bytes]) -> None:
        """Replace a whole collection. Raises SyncError."""
        await self.client.put_data((self._root, name), msgspec.json.encode(collection(objects)))


@asynccontextmanager
async def serving_world(
    scratch: Scratch,
    settings: Settings,
    world: World,
    more: Modules | None = None,
    given: Collection[str] = (),
) -> AsyncGenerator[OfflineOpa]:
    """Yield an OPA with a world, and `more` modules. Raises SyncError.

    Any module may call builtins that are `given`.
    """
    root, path = settings.replicate.root, settings.placement.path
    data = document(root, world.bodies, world.documents)
    async with scratch.serving({**world.modules, **(more or {})}, data, given) as client:
        read = reader(settings, world.modules, world.names)
        yield OfflineOpa(client, world.modules, root, path, read)


def common_modules(settings: Settings) -> dict[str, str]:
    """Return the modules that are part of every set: generated ones, and built-in ones."""
    batch = batch_module(settings.replicate.root, settings.placement.path)
    return {BATCH_MODULE: batch, **built_in(settings)}


def authored(settings: Settings, modules: Modules) -> dict[str, str]:
    """Return the modules of authors, without those that are part of every set."""
    without = common_modules(settings)
    return {i: source for i, source in modules.items() if i not in without}


def reader(
    settings: Settings, modules: Modules, names: Mapping[str, str] | None = None
) -> DecisionReader:
    """Return the parser of decisions by these modules, as the replicator has it."""
    check = Placements(settings.remediate.guard.placements).unreadable
    written = authored(settings, modules)
    return DecisionReader(check, lambda: written, names)


def analysis(scratch: TreeCompiler, path: str, places: Mapping[str, Place]) -> Reading:
    """Return the analysis of what the decision at `path` reads of collections at these places."""

    async def known() -> Mapping[str, Place]:
        return places

    return Reading(scratch, path, known)


def inputs_module(path: str, places: Iterable[DataPath] = ()) -> dict[str, str]:
    """Return the module that decides on inputs, with other objects at these places of the data."""
    instead = "".join(
        f" with {reference(place)} as one.objects[{number}]" for number, place in enumerate(places)
    )
    source = f"""package kube_sync.inputs

answers[index] := decision if {{
	some index, one in input.inputs
	decision := {reference(path.split("/"))} with input as one.asked{instead}
}}
"""
    return {INPUTS_MODULE: source}


async def gather_both(one: Coroutine[Any, Any, A], other: Coroutine[Any, Any, B]) -> tuple[A, B]:
    """Return the results of both worlds. Raises the SyncError of the first that fails."""
    try:
        async with asyncio.TaskGroup() as group:
            first, second = group.create_task(one), group.create_task(other)
    except* SyncError as errors:
        raise first_of(errors) from errors
    return first.result(), second.result()


def _outcomes(answer: bytes, number: int, read: ReadDecision) -> Iterator[Outcome]:
    try:
        found = msgspec.json.decode(answer, type=dict[int, msgspec.Raw])
    except NO_JSON as error:
        msg = f"OPA's decisions cannot be read: {error}"
        raise Retriable(msg) from error
    for index in range(number):
        if index not in found:
            yield Outcome("")
            continue
        try:
            decision = read(bytes(found[index]))
        except Undecided as error:
            yield Outcome("", failure=str(error))
        else:
            # As written and recorded: warnings are for the sender of an admission request.
            yield Outcome("", structs.replace(decision, warnings=()))
