"""The topology as one more collection of OPA's, made of the kinds that are followed for it.

Keeps true: OPA never holds half a topology. A kind that is there and may not be listed withholds it
from the first load, and is named; one that cannot be followed later leaves what was there, which is
not current then. A kind that is not there hinders nothing. It ends by cancellation alone.
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
from kube_sync.topology.configured import shaped
from kube_sync.topology.controller.following import FollowedKinds
from kube_sync.topology.controller.kind_selection import Chooser
from kube_sync.topology.controller.live import LiveTopology
from kube_sync.topology.controller.liverecords import Live, LiveRecords, News
from kube_sync.topology.controller.world import World
from kube_sync.topology.gateway import gateway_api


class Followed(Protocol):
    """Who follows the kinds that a topology is made of."""

    @property
    def unseen(self) -> Mapping[GroupKind, str]:
        """Why kinds that are there were never listed."""
        ...

    @property
    def troubles(self) -> Mapping[GroupKind, str]:
        """Why kinds that are there are not current."""
        ...

    async def run(self) -> None:
        """Follow them until cancelled."""
        ...


class Waiting(Live, Protocol):
    """A topology that may not be known yet."""

    @property
    def waiting(self) -> Collection[str]:
        """What has to be known before the first `advance`."""
        ...


@dataclass(frozen=True, slots=True)
class Source:
    """Who follows, and what comes of it."""

    followed: Followed
    live: Waiting


class TopologyFeed:
    """The topology, from the API server into a Store."""

    def __init__(
        self,
        follow: Callable[[Notes, Callable[[], None]], Source],
        readiness: Readiness,
        *,
        currency: Callable[[str, str | None], None] = lambda _source, _reason: None,
    ) -> None:
        """`follow` is given where each kind says how it does, and whom to wake.

        `currency` is told why the topology is not current; None: it is.
        """
        self._follow = follow
        self._readiness = readiness
        self._currency = currency
        self._notes = Notes(readiness)
        self._source: Source | None = None
        self._reason: str | None = None  # why the records are not those of what is followed

    async def run(self, store: Store) -> None:
        """Keep a Store current until cancelled."""
        news = News()
        self._source = source = self._follow(self._notes, news.wake)
        records = LiveRecords(source.live, news, partial(withheld, source), self._say)
        reflector = Reflector(TOPOLOGY, records, store, self._say, behind=self._say)
        # What a kind says may be what the first load has waited for.
        self._notes.heard = partial(self._heard, news)
        async with asyncio.TaskGroup() as group:
            group.create_task(source.followed.run())
            group.create_task(reflector.run())

    async def learn(self, store: Store) -> None:
        """Do nothing: no decision is about a topology, so there are no classes in it."""

    def forget(self) -> None:
        """Say nothing of it any more."""
        self._notes.heard = _nothing
        self._notes.clear()
        self._readiness.forget(TOPOLOGY)

    def release(self) -> None:
        """Let nobody wait for it to be current: it is not wanted any more."""
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
    """What each kind says of itself, for people; somebody listens whenever one does."""

    def __init__(self, readiness: Readiness) -> None:
        self._readiness = readiness
        self._said: set[str] = set()
        self.heard: Callable[[], None] = _nothing

    def noted(self, condition: str, detail: str) -> None:
        """Tell this of a condition."""
        self._said.add(condition)
        self._readiness.noted(condition, detail)
        self.heard()

    def forget(self, condition: str) -> None:
        """Tell nothing of it any more."""
        self._said.discard(condition)
        self._readiness.forget(condition)
        self.heard()

    def clear(self) -> None:
        """Tell nothing any more."""
        for condition in sorted(self._said):
            self.forget(condition)


def gateway_api_feed(
    client: KubeClient,
    settings: PolicyTopology,
    readiness: Readiness,
    currency: Callable[[str, str | None], None],
) -> TopologyFeed:
    """Return the feed of what is configured; `currency` is as in TopologyFeed."""
    return TopologyFeed(partial(follow_gateway_api, client, settings), readiness, currency=currency)


def follow_gateway_api(
    client: KubeClient, settings: PolicyTopology, notes: Notes, wake: Callable[[], None]
) -> Source:
    """Follow the Gateway API, what is configured beside it, and the declared kinds of policies."""
    shape, world = shaped(gateway_api(), settings), World(wake)
    followed = FollowedKinds(client, world, notes, wake, Chooser(shape.kinds))
    live = LiveTopology(world, followed, shape.kinds, shape.links, roots=shape.roots)
    return Source(followed, live)


def withheld(source: Source) -> list[str]:
    """Name what has to be known before anything is."""
    return [*source.live.waiting, *sorted(map(str, source.followed.unseen))]


def _shown(troubles: Mapping[GroupKind, str]) -> str:
    """Name all kinds and say what is the matter with one: each has a condition of its own."""
    kinds = sorted(troubles)
    return f"cannot follow {', '.join(map(str, kinds))}: {troubles[kinds[0]]}" if kinds else ""


def _nothing() -> None:
    return
