"""One Topology, kept in step with a World while others run.

Keeps true: what is read of the topology between two calls of `advance` is of one moment. A batch
that cannot be, such as one that closes a loop, changes nothing; it is tried again together with the
next one. A large batch is taken in by slices, between which others run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from kube_sync.errors import Terminal
from kube_sync.topology.controller.events import ResourceEvent
from kube_sync.topology.controller.world import World
from kube_sync.topology.identity import GroupKind, Locator
from kube_sync.topology.links import Link
from kube_sync.topology.nodes import Body, Kind
from kube_sync.topology.policies import PolicyKind
from kube_sync.topology.topology import Topology

_Changes = Mapping[Locator, Body | None]  # None: it is gone

# Nodes that are taken in before others may run; but no more than so many slices, since each looks
# for loops from wherever it has put an edge.
_SLICE = 100
_SLICES = 20


class Followed(Protocol):
    """Who knows which kinds are followed into the World."""

    @property
    def policies(self) -> Collection[PolicyKind]:
        """The kinds of policies that are followed now."""
        ...

    @property
    def waiting(self) -> Collection[str]:
        """What has to be known before it is known which kinds there are, in words."""
        ...


@dataclass(frozen=True, slots=True)
class Step:
    """What `advance` came to."""

    events: Sequence[ResourceEvent]
    affected: frozenset[Locator] = frozenset()  # nodes whose effective policies may differ
    anew: bool = False  # it is another Topology now, as the kinds of policies are others
    error: Terminal | None = None  # why the topology is the one from before


class LiveTopology:
    """The topology of what a World holds."""

    def __init__(
        self,
        world: World,
        followed: Followed,
        kinds: Iterable[Kind],
        links: Iterable[Link],
        *,
        allow_loops: bool = False,
        roots: Collection[GroupKind] = (),
    ) -> None:
        self._world = world
        self._followed = followed
        self._make = partial(
            Topology, tuple(kinds), tuple(links), allow_loops=allow_loops, roots=frozenset(roots)
        )
        self._topology = self._make()
        self._begun = False
        self._behind: dict[Locator, Body | None] = {}  # what the topology does not hold yet

    @property
    def topology(self) -> Topology:
        """The topology as of the last `advance`."""
        return self._topology

    @property
    def waiting(self) -> Sequence[str]:
        """What has to be known before the first `advance`: a half-known world is not a world."""
        if self._begun:
            return ()
        return *sorted(self._followed.waiting), *sorted(map(str, self._world.waiting))

    @property
    def due(self) -> float | None:
        """When there is something to take in without further news, on the World's clock."""
        return None if self.waiting else self._world.due

    async def advance(self) -> Step:
        """Take in what has changed since the last call; one call at a time."""
        self._begun = True
        events = self._world.take()
        self._behind.update({event.locator: event.new for event in events if event.meaning})
        kinds = self._kinds()
        anew = {kind.id: kind for kind in kinds} != self._topology.policy_kinds
        try:
            affected = await (self._build(kinds) if anew else _update(self._topology, self._behind))
        except Terminal as error:
            return Step(events, error=error)
        self._behind.clear()
        return Step(events, affected, anew)

    def _kinds(self) -> Sequence[PolicyKind]:
        """Return the kinds of policies that are known; one that has just come is not yet."""
        waiting = self._world.waiting
        return [kind for kind in self._followed.policies if kind.id not in waiting]

    async def _build(self, kinds: Sequence[PolicyKind]) -> frozenset[Locator]:
        """Build the topology anew, since its nodes are others where its kinds are."""
        topology = self._make(policies=kinds)
        # All of one moment, the one of the last `take`: others run while it is built.
        await _update(topology, self._world.snapshot())
        before, self._topology = self._topology, topology
        return frozenset(node.locator for one in (before, topology) for node in one.nodes())


async def _update(topology: Topology, changes: _Changes) -> frozenset[Locator]:
    """Update a topology by slices. Raises Terminal; then it is as it was."""
    slices, undo = list(_sliced(changes)), list[_Changes]()
    affected: frozenset[Locator] = frozenset()
    try:
        for slice_ in slices:
            if undo:
                await asyncio.sleep(0)
            before: _Changes = {name: _body(topology, name) for name in slice_}
            affected |= _put(topology, slice_)
            undo.append(before)
    except Terminal:
        for before in reversed(undo):  # through states that all have been
            _put(topology, before)
        if len(slices) == 1:
            raise
        # It may be a part of it that cannot be, and not the whole.
        return _put(topology, changes)
    return affected


def _put(topology: Topology, changes: _Changes) -> frozenset[Locator]:
    objects = [body for body in changes.values() if body is not None]
    return topology.update(objects, [name for name, body in changes.items() if body is None])


def _body(topology: Topology, name: Locator) -> Body | None:
    return topology[name].body if name in topology else None


def _sliced(changes: _Changes) -> Iterator[_Changes]:
    names = list(changes)
    size = max(_SLICE, -(-len(names) // _SLICES))
    for start in range(0, len(names), size):
        yield {name: changes[name] for name in names[start : start + size]}
