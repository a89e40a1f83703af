"""Keeps one Topology up to date with a World, in slices between which the event loop runs.

Invariant: between two calls of `advance` the topology is of one moment. An invalid batch, such as
one that closes a loop, changes nothing; it is retried together with the next one. A large batch is
applied in slices.
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
from kube_sync.topology.links import Link
from kube_sync.topology.nodes import Body, GroupKind, Kind, Locator
from kube_sync.topology.policies import PolicyKind
from kube_sync.topology.topology import Topology

_Changes = Mapping[Locator, Body | None]  # None: it is deleted

# Nodes that are applied before the loop yields; but at most so many slices, since each searches for
# loops from every edge that it has added.
_SLICE = 100
_SLICES = 20


class Followed(Protocol):
    """Knows which kinds are followed into the World."""

    @property
    def policies(self) -> Collection[PolicyKind]:
        """The kinds of policies that are followed now."""

    @property
    def waiting(self) -> Collection[str]:
        """What has to be read before the existing kinds are known, in words."""


@dataclass(frozen=True, slots=True)
class Step:
    """The result of `advance`."""

    events: Sequence[ResourceEvent]
    affected: frozenset[Locator] = frozenset()  # nodes whose effective policies may differ
    anew: bool = False  # the Topology was rebuilt, as the kinds of policies have changed
    error: Terminal | None = None  # why the topology is the one from before


class LiveTopology:
    """The topology of the objects in a World."""

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
        self._behind: dict[Locator, Body | None] = {}  # changes that the topology does not have yet

    @property
    def topology(self) -> Topology:
        """The topology as of the last `advance`."""
        return self._topology

    @property
    def waiting(self) -> Sequence[str]:
        """What has to be listed before the first `advance`: no partial topology is used."""
        if self._begun:
            return ()
        return *sorted(self._followed.waiting), *sorted(map(str, self._world.waiting))

    @property
    def due(self) -> float | None:
        """When to call `advance` without further news, on the World's clock."""
        return None if self.waiting else self._world.due

    async def advance(self) -> Step:
        """Apply the changes since the last call; one call at a time."""
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
        """Return the listed kinds of policies, without those whose LIST is not complete."""
        waiting = self._world.waiting
        return [kind for kind in self._followed.policies if kind.id not in waiting]

    async def _build(self, kinds: Sequence[PolicyKind]) -> frozenset[Locator]:
        """Rebuild the topology, since other kinds have other nodes."""
        topology = self._make(policies=kinds)
        # A snapshot as of the last `take`: the World may change during the build.
        await _update(topology, self._world.snapshot())
        before, self._topology = self._topology, topology
        return frozenset(node.locator for one in (before, topology) for node in one.nodes())


async def _update(topology: Topology, changes: _Changes) -> frozenset[Locator]:
    """Update a topology in slices. Raises Terminal; then it is unchanged."""
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
        for before in reversed(undo):  # through states that were all valid
            _put(topology, before)
        if len(slices) == 1:
            raise
        # A part may be invalid, and the whole valid.
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
