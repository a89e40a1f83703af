"""Follows the kinds of a topology, each in a version that the API server serves.

Invariant: a kind is followed as soon as its CustomResourceDefinition is established, and for a
while after that is deleted; a kind that is missing or forbidden blocks no other, and is reported by
name. A kind counts as empty only once it was listed, or its definition is missing, or the API
server denied it for a while: permissions of an account, and custom resources, are available a
moment after the API server is.

Without permission to read definitions, kinds are looked up in discovery, which is no proof of
absence: so a kind that was found is followed on, and only the configured kinds of policies are.
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
from kube_sync.objects import GroupVersionResource
from kube_sync.runtime.backoff import Backoff, Sleep
from kube_sync.topology.controller.kind_follower import FollowedKind
from kube_sync.topology.controller.kind_selection import Choice, Chooser, Chosen
from kube_sync.topology.controller.world import World
from kube_sync.topology.nodes import GroupKind
from kube_sync.topology.policies import PolicyKind

log: structlog.stdlib.BoundLogger = structlog.get_logger()

_PATIENCE: Final = 10.0  # seconds
_GONE_AFTER: Final = 30.0  # seconds
_LOOK_AGAIN: Final = 30.0  # seconds between two reads of discovery
_DEFINITIONS: Final = "topology by definitions"


class Notes(Protocol):
    """Reports state to people, condition by condition."""

    def noted(self, condition: str, detail: str) -> None:
        """Set the detail of a condition."""

    def forget(self, condition: str) -> None:
        """Remove a condition."""


class FollowedKinds:
    """Follows all kinds of a topology; runs until cancelled."""

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
        """Call `changed` when `policies` has changed.

        `patience`: the seconds for which a kind that was never listed may be denied before it
        counts as empty; `gone_after`: the seconds for which one is followed without its definition.
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
        self._missed: frozenset[GroupKind] = frozenset()  # in the last read of discovery
        self._looked = False  # definitions or discovery were read, so the existing kinds are known
        self._blind = asyncio.Event()  # set while definitions may not be read
        self._definitions = Definitions(self._defined, chooser.matters)
        self._feed = Feed(self._definitions, self._reported, self._failed)
        self._following = Following(
            lambda gvr: KubeCollection(client, gvr), " for topology", backoff=backoff
        )
        self._await()

    @property
    def policies(self) -> tuple[PolicyKind, ...]:
        """The kinds of policies that are followed, sorted."""
        return tuple(self._policies[id_] for id_ in sorted(self._policies))

    @property
    def waiting(self) -> tuple[str, ...]:
        """What has to be read before the existing kinds are known, in words."""
        return () if self._looked else ("CustomResourceDefinitions",)

    @property
    def unseen(self) -> Mapping[GroupKind, str]:
        """The kinds that count as empty because they were denied, with the error."""
        return {id_: kind.unseen for id_, kind in self._kinds.items() if kind.unseen}

    @property
    def troubles(self) -> Mapping[GroupKind, str]:
        """Why existing kinds are stale, in words."""
        return {id_: kind.failure for id_, kind in self._kinds.items() if kind.failure}

    @property
    def choices(self) -> Mapping[GroupKind, Choice]:
        """How each existing kind is followed."""
        return {id_: kind.choice for id_, kind in self._kinds.items()}

    def version(self, gvr: GroupVersionResource) -> Version | None:
        """Return the definition of a resource's version, None if it is not known."""
        definition = self._definitions.of(gvr.group, gvr.resource)
        return None if definition is None else definition.version(gvr.version)

    def _await(self) -> None:
        """Wait for each wanted kind until it is known whether it exists."""
        chooser = self._chooser
        for id_ in sorted(chooser.looked_for):
            self._world.store(chooser.kinds.get(id_) or chooser.named[id_].node_kind)
            self._report(id_, "looked for")

    async def run(self) -> None:
        """Follow the existing kinds until cancelled."""
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
        """Report declarations that are invalid, and clear those that are valid again."""
        for id_ in sorted(self._wrong | wrong.keys()):
            if id_ in self._kinds:
                self._remark(id_, wrong.get(id_, ""))
            elif id_ in wrong:
                self._report(id_, wrong[id_])
            else:
                self._notes.forget(_condition(id_))
        self._wrong = frozenset(wrong)

    def _remark(self, id_: GroupKind, remark: str) -> None:
        self._kinds[id_].remark = remark
        self._kinds[id_].tell()

    def _reported(self, reason: str | None) -> None:
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
        """Look up kinds in discovery while definitions may not be read."""
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
        """Return the served resources, and the kinds whose groups could not be read."""
        found: list[Resource] = []
        silent: set[GroupKind] = set()
        for group in sorted(self._chooser.groups):
            try:
                found += await served(self._client, group)
            except SyncError as error:
                kinds = {id_ for id_ in self._chooser.looked_for if id_.group == group}
                for id_ in kinds - self._kinds.keys():
                    self._report(id_, f"looked for: {error}")
                silent |= kinds
        return found, frozenset(silent)

    # By both

    def _take(self, chosen: Chosen) -> None:
        """Follow the chosen kinds in addition to those that are followed."""
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
                # With a definition all its objects are deleted, whatever the new one has.
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
            lambda detail: self._report(id_, detail),
            lambda: id_ in self._world.waiting,
            self._blind.is_set,
            self._patience,
        )

    def _lack(self, kinds: Iterable[GroupKind]) -> None:
        for id_ in sorted(kinds):
            self._world.forget(id_)
            self._report(id_, "not there: the API server does not serve it")

    def _want(self) -> None:
        feeds = {kind.choice.gvr: kind.feed for kind in self._kinds.values()}
        self._following.want({DEFINITIONS: self._feed, **feeds})

    def _hold(self, policies: dict[GroupKind, PolicyKind]) -> None:
        if policies != self._policies:
            self._policies = policies
            self._changed()

    def _report(self, id_: GroupKind, detail: str) -> None:
        self._notes.noted(_condition(id_), detail)


def _condition(id_: GroupKind) -> str:
    return f"topology of {id_}"
