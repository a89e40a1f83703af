"""Whether what is known of a kind is current, for who holds something that was made of it."""

from __future__ import annotations

import pytest

from kube_sync.errors import NotFound, Retriable, SyncError
from kube_sync.objects import GroupVersionResource
from kube_sync.topology.controller.kind_follower import FollowedKind
from kube_sync.topology.controller.kind_selection import Choice
from kube_sync.topology.controller.world import World
from kube_sync.topology.nodes import GroupKind, Kind

THING = Kind(GroupKind("g.io", "Thing"))


def followed(*, may_be_absent: bool) -> FollowedKind:
    choice = Choice(THING, GroupVersionResource("g.io", "v1", "things"))
    return FollowedKind(
        choice,
        World().store(THING),
        lambda _note: None,
        lambda: False,
        lambda: may_be_absent,
        10.0,
    )


def fail(kind: FollowedKind, error: SyncError) -> None:
    """Fail as a Reflector does."""
    kind.feed.failed(error)
    kind.feed.report(str(error))


def test_a_kind_that_nobody_asked_for_yet_has_not_failed() -> None:
    assert followed(may_be_absent=False).failure == ""


@pytest.mark.parametrize("may_be_absent", [True, False])
def test_a_kind_that_cannot_be_followed_is_not_current_until_it_can(may_be_absent: bool) -> None:  # noqa: FBT001
    kind = followed(may_be_absent=may_be_absent)
    fail(kind, Retriable("away"))
    assert kind.failure == "away"
    kind.feed.report(None)
    assert kind.failure == ""


def test_a_kind_that_is_missing_is_current_only_where_that_may_be_true() -> None:
    """Its definition is gone, or nobody may see definitions; else it is a server that starts."""
    gone, starting = followed(may_be_absent=True), followed(may_be_absent=False)
    for kind in (gone, starting):
        fail(kind, NotFound("404"))
    assert (gone.failure, starting.failure) == ("", "404")
