"""Runs a Reflector for each kind of policy that classes list, and checks its permissions.

Invariant: a listed kind that cannot be watched just now (its definition is gone, or a
permission) keeps its cached policies; only a kind that no class lists any more is dropped. The API
server's last answer about a permission stays valid until it answers otherwise; a failed request
does not change it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, NoReturn

import structlog

from kube_sync.errors import Refused, SyncError
from kube_sync.kube.access import allowed
from kube_sync.kube.client import KubeClient
from kube_sync.kube.following import Feed, Following
from kube_sync.kube.reflector import ListerWatcher
from kube_sync.objects import GroupVersionResource
from kube_sync.policysync.hubstate import HubState
from kube_sync.policysync.validation import VERBS
from kube_sync.runtime.backoff import Backoff
from kube_sync.runtime.controller import Result, work
from kube_sync.runtime.workqueue import WorkQueue

log: structlog.stdlib.BoundLogger = structlog.get_logger()


class FollowedPolicies:
    """One Reflector for each kind of policies that is wanted."""

    def __init__(
        self,
        state: HubState,
        source: Callable[[GroupVersionResource], ListerWatcher],
        report: Callable[[str, str | None], None],
        on_error: Callable[[GroupVersionResource, SyncError], None] = lambda _gvr, _error: None,
    ) -> None:
        """Call `report` with the problem of a kind, or None; `on_error`, with an error."""
        self._state = state
        self._report = report
        self._on_error = on_error
        self._following = Following(source, " for policy sync")
        self._feeds: dict[GroupVersionResource, Feed] = {}

    def update(self) -> None:
        """Start and stop Reflectors; to be called when kinds change."""
        valid = self._state.valid_kinds
        for gvr in self._feeds.keys() - valid:
            del self._feeds[gvr]
            self._report(str(gvr), None)
            log.info("policies_not_followed", gvr=str(gvr))
        for gvr in valid - self._feeds.keys():
            report = partial(self._report, str(gvr))
            self._feeds[gvr] = Feed(self._state.policies(gvr), report, partial(self._on_error, gvr))
            log.info("policies_followed", gvr=str(gvr))
        self._following.want(self._feeds)
        for gvr in self._state.cached_kinds - self._state.merged_parameters.kinds.keys():
            self._state.forget(gvr)

    async def run(self) -> None:
        """Run the Reflectors until cancelled."""
        await self._following.run()


_RESYNC_SECONDS: Final = 180.0


class Permissions:
    """Queries the permissions for each kind: new ones, refused ones, and all every few minutes."""

    def __init__(
        self,
        client: KubeClient,
        state: HubState,
        *,
        resync_seconds: float = _RESYNC_SECONDS,
        backoff: Callable[[], Backoff] = lambda: Backoff(1.0, 30.0),
    ) -> None:
        """`resync_seconds`: seconds after which a kind is queried again."""
        self._client = client
        self._state = state
        self._resync_seconds = resync_seconds
        self._known: set[GroupVersionResource] = set()
        self._queue = WorkQueue[GroupVersionResource]("policy_sync_permissions", backoff)

    def update(self) -> None:
        """Enqueue the kinds that are new in the lists; to be called when kinds change."""
        listed = self._state.merged_parameters.kinds.keys()
        for gvr in listed - self._known:
            self._queue.add(gvr)
        self._known = set(listed)

    def enqueue_refused(self, gvr: GroupVersionResource, error: SyncError) -> None:
        """Enqueue a kind if the API server has refused to list it."""
        if isinstance(error, Refused) and gvr in self._known:
            self._queue.add(gvr)  # as often as its Reflector retries, which backs off

    async def run(self) -> NoReturn:
        """Query until cancelled."""
        await work(self._queue, self._check)

    async def _check(self, gvr: GroupVersionResource) -> Result:
        if gvr not in self._known:
            return Result()
        try:
            verbs = await allowed(self._client, gvr, VERBS)
        except SyncError as error:
            log.warning("permission_not_known", gvr=str(gvr), error=str(error))
            raise
        self._state.set_allowed_verbs(gvr, verbs)
        return Result(self._resync_seconds)
