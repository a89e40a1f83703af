"""Follows the kinds that a topology is made of, each in the version that is served.

Keeps true: a kind comes as soon as its CustomResourceDefinition is established, and stays for a
while after that is gone; a kind that is missing, or that may not be listed, hinders no other, and
is told of by name. No kind counts as empty before it was listed, unless its definition is not there
or the API server denied it for a while: the permissions of an account, and custom resources, come
a moment after the API server does.

Where definitions may not be read, kinds are looked for in discovery, which is no proof of absence:
so what was found is followed on, and of policies there are those alone that were named.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NoReturn, Protocol

import structlog

from kube_sync.errors import NotFound, Refused, SyncError, Unconfirmed
from kube_sync.kube.client import KubeClient
from kube_sync.kube.collection import KubeCollection
from kube_sync.kube.definitions import DEFINITIONS, Definitions, Version
from kube_sync.kube.discovery import Resource, served
from kube_sync.kube.following import Feed, Following
from kube_sync.kube.reflector import Store
from kube_sync.objects import GroupVersionResource
from kube_sync.runtime.backoff import Backoff, Sleep
from kube_sync.topology.controller.kind_selection import Choice, Chooser, Chosen
from kube_sync.topology.controller.onekind import FollowedKind
from kube_sync.topology.identity import GroupKind
from kube_sync.topology.nodes import Kind
from kube_sync.topology.policies import PolicyKind

log: structlog.stdlib.BoundLogger = structlog.get_logger()

_PATIENCE: Final = 10.0  # seconds
_GONE_AFTER: Final = 30.0  # seconds
_LOOK_AGAIN: Final = 30.0  # seconds between two looks at discovery
_DEFINITIONS: Final = "topology by definitions"


class World(Protocol):
    """Where the objects go."""

    def store(self, kind: Kind) -> Store:
        """Return a new Store for a kind, and wait for its first LIST if there was none."""
        ...

    def forget(self, kind: GroupKind) -> None:
        """Let go of the objects of a kind, and wait for none."""
        ...

    @property
    def waiting(self) -> frozenset[GroupKind]:
        """The kinds of which nothing was listed yet."""
        ...


class Notes(Protocol):
    """Who tells people how it goes, condition by condition."""

    def noted(self, condition: str, detail: str) -> None:
        """Tell this of a condition."""
        ...

    def forget(self, condition: str) -> None:
        """Tell nothing of it any more."""
        ...


class FollowedKinds:
    """Everything that a topology is made of, followed; runs until cancelled."""

    def __init__(
        self,
        client: KubeClient,
        world: World,
        notes: Notes,
        changed: Callable[[], None],
        chooser: Chooser,
        *,
        patience: float = _PATIENCE,
        gone_after: float = _GONE_AFTER,
        sleep: Sleep = asyncio.sleep,
        backoff: Callable[[], Backoff] = Backoff,
    ) -> None:
        """Take whom to tell: `changed` is called when `policies` are others than before.

        `patience` is how long, in seconds, a kind that was never listed may be denied before it
        counts as one without objects, and `gone_after` how long one is followed on without its
        definition.
        """
        self._client = client
        self._world = world
        self._notes = notes
        self._changed = changed
        self._chooser = chooser
        self._patience = patience
        self._gone_after = gone_after
        self._sleep = sleep
        self._policies: dict[GroupKind, PolicyKind] = {}
        self._kinds: dict[GroupKind, FollowedKind] = {}
        self._leaving: dict[GroupKind, asyncio.TimerHandle] = {}
        self._wrong: frozenset[GroupKind] = frozenset()
        self._missed: frozenset[GroupKind] = frozenset()  # by the last look at discovery
        self._looked = False  # at definitions or discovery, so that it is known what there is
        self._blind = asyncio.Event()  # set while definitions may not be read
        self._definitions = Definitions(self._defined, chooser.matters)
        self._feed = Feed(self._definitions, self._told, self._failed)
        self._following = Following(
            lambda gvr: KubeCollection(client, gvr), " for topology", backoff=backoff
        )
        self._await()

    @property
    def policies(self) -> tuple[PolicyKind, ...]:
        """The kinds of policies that are followed, in order."""
        return tuple(self._policies[id_] for id_ in sorted(self._policies))

    @property
    def waiting(self) -> tuple[str, ...]:
        """What has to be known before it is known which kinds there are, in words."""
        return () if self._looked else ("CustomResourceDefinitions",)

    @property
    def unseen(self) -> Mapping[GroupKind, str]:
        """The kinds that count as empty because they were denied, with what was said."""
        return {id_: kind.unseen for id_, kind in self._kinds.items() if kind.unseen}

    @property
    def troubles(self) -> Mapping[GroupKind, str]:
        """Why what is known of kinds that are there is not current, in words."""
        return {id_: kind.failure for id_, kind in self._kinds.items() if kind.failure}

    @property
    def choices(self) -> Mapping[GroupKind, Choice]:
        """How each kind is followed that there is."""
        return {id_: kind.choice for id_, kind in self._kinds.items()}

    def version(self, gvr: GroupVersionResource) -> Version | None:
        """Return what is defined of a resource, None where that is not known."""
        definition = self._definitions.of(gvr.group, gvr.resource)
        return None if definition is None else definition.version(gvr.version)

    def _await(self) -> None:
        """Wait for each kind that is looked for until it is known whether it is there."""
        chooser = self._chooser
        for id_ in sorted(chooser.looked_for):
            self._world.store(chooser.kinds.get(id_) or chooser.named[id_].node_kind)
            self._tell(id_, "looked for")

    async def run(self) -> None:
        """Follow what there is until cancelled."""
        self._take(Chosen(self._chooser.builtin))
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._following.run())
                group.create_task(self._search())
        finally:
            for timer in self._leaving.values():
                timer.cancel()
            for kind in self._kinds.values():
                kind.close()

    # By definitions

    def _defined(self) -> None:
        self._blind.clear()
        chosen = self._chooser.by_definitions(self._definitions, self._policies)
        self._looked = True
        self._take(chosen)
        self._complain(chosen.wrong)
        for id_ in sorted(self._kinds.keys() - chosen.choices.keys() - self._leaving.keys()):
            self._leave(id_)
        self._lack(self._chooser.looked_for - self._kinds.keys())

    def _leave(self, id_: GroupKind) -> None:
        self._remark(id_, "its CustomResourceDefinition is gone")
        loop = asyncio.get_running_loop()
        self._leaving[id_] = loop.call_later(self._gone_after, self._left, id_)

    def _left(self, id_: GroupKind) -> None:
        del self._leaving[id_]
        self._kinds.pop(id_).close()
        self._want()
        log.info("kind_not_followed", gvk=str(id_))
        if id_ in self._chooser.looked_for:
            self._lack([id_])
        else:
            self._world.forget(id_)
            self._notes.forget(_condition(id_))
        self._hold({known: policy for known, policy in self._policies.items() if known != id_})

    def _complain(self, wrong: Mapping[GroupKind, str]) -> None:
        """Tell of declarations that mean nothing, and no more of those that do again."""
        for id_ in sorted(self._wrong | wrong.keys()):
            if id_ in self._kinds:
                self._remark(id_, wrong.get(id_, ""))
            elif id_ in wrong:
                self._tell(id_, wrong[id_])
            else:
                self._notes.forget(_condition(id_))
        self._wrong = frozenset(wrong)

    def _remark(self, id_: GroupKind, remark: str) -> None:
        self._kinds[id_].remark = remark
        self._kinds[id_].tell()

    def _told(self, reason: str | None) -> None:
        if reason is None:
            self._notes.noted(_DEFINITIONS, "ok")
        elif not self._blind.is_set():
            self._notes.noted(_DEFINITIONS, f"{reason}; what was known of them stands")

    def _failed(self, error: SyncError) -> None:
        if isinstance(error, Refused | NotFound | Unconfirmed) and not self._definitions.listed:
            self._blind.set()
            named = ", ".join(map(str, sorted(self._chooser.named))) or "none is"
            self._notes.noted(
                _DEFINITIONS, f"{error}; so of policies there are those that are named: {named}"
            )

    # By discovery

    async def _search(self) -> NoReturn:
        """Look for kinds in discovery as long as definitions may not be read."""
        while True:
            await self._blind.wait()
            found, silent = await self._discovered()
            if self._blind.is_set():  # still
                self._looked = True
                self._take(self._chooser.by_discovery(found))
                missed = self._chooser.looked_for - self._kinds.keys() - silent
                self._lack(missed & self._missed)  # twice
                self._missed = missed
            unsure = self._world.waiting - self._kinds.keys()
            await self._sleep(self._patience if unsure else _LOOK_AGAIN)

    async def _discovered(self) -> tuple[list[Resource], frozenset[GroupKind]]:
        """Return what is served, and the kinds of which nobody said whether they are."""
        found: list[Resource] = []
        silent: set[GroupKind] = set()
        for group in sorted(self._chooser.groups):
            try:
                found += await served(self._client, group)
            except SyncError as error:
                kinds = {id_ for id_ in self._chooser.looked_for if id_.group == group}
                for id_ in kinds - self._kinds.keys():
                    self._tell(id_, f"looked for: {error}")
                silent |= kinds
        return found, frozenset(silent)

    # By both

    def _take(self, chosen: Chosen) -> None:
        """Follow what was chosen beside what is followed already."""
        for id_ in sorted(chosen.choices):
            self._come(id_, chosen.choices[id_])
        self._want()
        self._hold({**self._policies, **chosen.policies})

    def _come(self, id_: GroupKind, choice: Choice) -> None:
        before = self._kinds.get(id_)
        if (timer := self._leaving.pop(id_, None)) is not None:
            timer.cancel()
        if before is not None and before.choice == choice:
            if timer is not None:
                self._remark(id_, "")
            return
        if before is not None:
            before.close()
            if before.choice.uid and before.choice.uid != choice.uid:
                # With a definition go all objects, whatever the new one has.
                self._world.forget(id_)
        self._kinds[id_] = kind = self._followed(id_, choice)
        if before is not None and before.choice.uid == choice.uid:
            kind.unseen = before.unseen  # another version of it is as little known
        log.info("kind_followed", gvk=str(id_), resource=str(choice.gvr))
        kind.tell()

    def _followed(self, id_: GroupKind, choice: Choice) -> FollowedKind:
        return FollowedKind(
            choice,
            self._world.store(choice.kind),
            lambda detail: self._tell(id_, detail),
            lambda: id_ in self._world.waiting,
            self._blind.is_set,
            self._patience,
        )

    def _lack(self, kinds: Iterable[GroupKind]) -> None:
        for id_ in sorted(kinds):
            self._world.forget(id_)
            self._tell(id_, "not there: the API server does not serve it")

    def _want(self) -> None:
        feeds = {kind.choice.gvr: kind.feed for kind in self._kinds.values()}
        self._following.want({DEFINITIONS: self._feed, **feeds})

    def _hold(self, policies: dict[GroupKind, PolicyKind]) -> None:
        if policies != self._policies:
            self._policies = policies
            self._changed()

    def _tell(self, id_: GroupKind, detail: str) -> None:
        self._notes.noted(_condition(id_), detail)


def _condition(id_: GroupKind) -> str:
    return f"topology of {id_}"
