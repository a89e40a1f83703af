"""Replicates the topology into OPA as one more collection, from the kinds that are followed for it.

Invariant: OPA never has half a topology. A kind that exists but may not be listed blocks the first
load, and is named; if one cannot be followed later, its objects are kept and the topology is
reported stale. A kind that does not exist blocks nothing. It runs until cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from kube_sync.config import TOPOLOGY, PolicyTopology
from kube_sync.kube.client import KubeClient
from kube_sync.kube.reflector import Reflector, Store
from kube_sync.observability.readiness import Readiness
from kube_sync.topology import GroupKind
from kube_sync.topology.controller.followed_kinds import FollowedKinds
from kube_sync.topology.controller.kind_selection import Chooser
from kube_sync.topology.controller.live_topology import LiveTopology
from kube_sync.topology.controller.record_source import Live, LiveRecords, News
from kube_sync.topology.controller.world import World
from kube_sync.topology.gateway import gateway_api
from kube_sync.topology.shape import topology_shape


class Followed(Protocol):
    """Follows the kinds of a topology."""

    @property
    def unseen(self) -> Mapping[GroupKind, str]:
        """Why existing kinds were never listed."""

    @property
    def troubles(self) -> Mapping[GroupKind, str]:
        """Why existing kinds are stale."""

    async def run(self) -> None:
        """Follow the kinds until cancelled."""


class Waiting(Live, Protocol):
    """A live topology that may not be complete yet."""

    @property
    def waiting(self) -> Collection[str]:
        """What has to be listed before the first `advance`."""


@dataclass(frozen=True, slots=True)
class Source:
    """The followed kinds, and the live topology made of them."""

    followed: Followed
    live: Waiting


class TopologyFeed:
    """Feeds the topology from the API server into a Store."""

    def __init__(
        self,
        follow: Callable[[Notes, Callable[[], None]], Source],
        readiness: Readiness,
        *,
        currency: Callable[[str, str | None], None] = lambda _source, _reason: None,
    ) -> None:
        """`follow` gets the notes of each kind, and the function that wakes the feed.

        `currency` is called with why the topology is stale; None: it is current.
        """
        self._follow = follow
        self._readiness = readiness
        self._currency = currency
        self._notes = Notes(readiness)
        self._source: Source | None = None
        self._reason: str | None = None  # why the records are older than the followed kinds

    async def run(self, store: Store) -> None:
        """Keep a Store current until cancelled."""
        news = News()
        self._source = source = self._follow(self._notes, news.wake)
        records = LiveRecords(source.live, news, partial(withheld, source), self._say)
        reflector = Reflector(TOPOLOGY, records, store, self._say, behind=self._say)
        # The state of a kind may be what the first load waits for.
        self._notes.heard = partial(self._heard, news)
        async with asyncio.TaskGroup() as group:
            group.create_task(source.followed.run())
            group.create_task(reflector.run())

    async def list_classes(self, store: Store) -> None:
        """Do nothing: no decision is about a topology, so it has no decision classes."""

    def forget(self) -> None:
        """Remove the topology from the readiness page."""
        self._notes.heard = _nothing
        self._notes.clear()
        self._readiness.forget(TOPOLOGY)

    def release(self) -> None:
        """Report it as current, so that nothing waits for it: it is not wanted any more."""
        self._currency(TOPOLOGY, None)

    def _heard(self, news: News) -> None:
        news.wake()
        self._tell()

    def _say(self, reason: str | None) -> None:
        self._reason = reason
        self._tell()

    def _tell(self) -> None:
        troubles = self._source.followed.troubles if self._source is not None else {}
        reason = "; ".join(part for part in (self._reason, _shown(troubles)) if part) or None
        self._readiness.reporter(TOPOLOGY)(reason)
        self._currency(TOPOLOGY, reason)


class Notes:
    """The state of each kind on the readiness page, with a callback on each change."""

    def __init__(self, readiness: Readiness) -> None:
        self._readiness = readiness
        self._said: set[str] = set()
        self.heard: Callable[[], None] = _nothing

    def noted(self, condition: str, detail: str) -> None:
        """Set the detail of a condition."""
        self._said.add(condition)
        self._readiness.noted(condition, detail)
        self.heard()

    def forget(self, condition: str) -> None:
        """Remove a condition."""
        self._said.discard(condition)
        self._readiness.forget(condition)
        self.heard()

    def clear(self) -> None:
        """Remove all conditions."""
        for condition in sorted(self._said):
            self.forget(condition)


def gateway_api_feed(
    client: KubeClient,
    settings: PolicyTopology,
    readiness: Readiness,
    currency: Callable[[str, str | None], None],
) -> TopologyFeed:
    """Return the feed of the configuration; `currency` is as in TopologyFeed."""
    return TopologyFeed(partial(follow_gateway_api, client, settings), readiness, currency=currency)


def follow_gateway_api(
    client: KubeClient, settings: PolicyTopology, notes: Notes, wake: Callable[[], None]
) -> Source:
    """Follow the Gateway API, configured kinds, and the declared kinds of policies."""
    shape, world = topology_shape(gateway_api(), settings), World(wake)
    followed = FollowedKinds(client, world, notes, wake, Chooser(shape.kinds))
    live = LiveTopology(world, followed, shape.kinds, shape.links, roots=shape.roots)
    return Source(followed, live)


def withheld(source: Source) -> list[str]:
    """Return what has to be listed before the first load."""
    return [*source.live.waiting, *sorted(map(str, source.followed.unseen))]


def _shown(troubles: Mapping[GroupKind, str]) -> str:
    """Name all stale kinds and the reason of the first: each has a condition of its own."""
    kinds = sorted(troubles)
    return f"cannot follow {', '.join(map(str, kinds))}: {troubles[kinds[0]]}" if kinds else ""


def _nothing() -> None:
    return
