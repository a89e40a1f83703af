"""Which kinds of policies are followed: those that classes list and that can be synced.

Keeps true: a kind that is listed but cannot be followed just now (its definition is gone, or a
permission) keeps what was known of it; only one that no class lists any more is forgotten.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import structlog

from kube_sync.errors import SyncError
from kube_sync.kube.following import Feed, Following
from kube_sync.kube.reflector import ListerWatcher
from kube_sync.objects import GroupVersionResource
from kube_sync.policysync.hubstate import HubState

log: structlog.stdlib.BoundLogger = structlog.get_logger()


class FollowedPolicies:
    """One Reflector for each kind of policies, as long as it is wanted."""

    def __init__(
        self,
        state: HubState,
        source: Callable[[GroupVersionResource], ListerWatcher],
        note: Callable[[str, str | None], None],
        failed: Callable[[GroupVersionResource, SyncError], None] = lambda _gvr, _error: None,
    ) -> None:
        """Tell `note` what stands in the way of which kind, or None; `failed`, as an error."""
        self._state = state
        self._note = note
        self._failed = failed
        self._following = Following(source, " for policy sync")
        self._feeds: dict[GroupVersionResource, Feed] = {}

    def update(self) -> None:
        """Follow what is to be followed by now; to be called when kinds change."""
        valid = self._state.valid
        for gvr in self._feeds.keys() - valid:
            del self._feeds[gvr]
            self._note(str(gvr), None)
            log.info("policies_not_followed", gvr=str(gvr))
        for gvr in valid - self._feeds.keys():
            report = partial(self._note, str(gvr))
            self._feeds[gvr] = Feed(self._state.policies(gvr), report, partial(self._failed, gvr))
            log.info("policies_followed", gvr=str(gvr))
        self._following.want(self._feeds)
        for gvr in self._state.held - self._state.together.kinds.keys():
            self._state.forget(gvr)

    async def run(self) -> None:
        """Follow them until cancelled."""
        await self._following.run()
