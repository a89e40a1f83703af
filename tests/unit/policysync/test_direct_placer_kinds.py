from __future__ import annotations

import pytest

from kube_sync.objects import GroupVersionResource, ObjectKey
from kube_sync.policysync.direct_placer import spoke_kinds
from kube_sync.policysync.feedback_fields import FIELDS
from kube_sync.policysync.hubstate import ChangeHandlers, HubState
from kube_sync.policysync.validation import syncable_kind
from tests.fakes.copies import AUTH, policy
from tests.unit.policysync.test_hubstate import DEFINITION, World, put

BETA = GroupVersionResource("kuadrant.io", "v1beta1", "authpolicies")


def test_a_kind_that_could_have_been_synced_is_read_though_nobody_wants_it() -> None:
    assert spoke_kinds({}, {}, (), [AUTH]) == {AUTH: ()}


def test_a_kind_that_is_synced_is_read_in_its_own_version_alone() -> None:
    assert spoke_kinds({AUTH: FIELDS}, {BETA: ()}, (), [BETA]) == {AUTH: FIELDS}


def test_a_kind_that_left_the_list_keeps_what_is_read_of_it_while_there_are_copies() -> None:
    assert spoke_kinds({}, {AUTH: FIELDS}, [policy()], ()) == {AUTH: FIELDS}
    assert spoke_kinds({}, {AUTH: FIELDS}, (), ()) == {}


def test_definitions_that_were_listed_are_told_of_though_no_kind_is_wanted() -> None:
    """They may be the last that was listed, and there may be copies from before."""
    told: list[str] = []
    listeners = ChangeHandlers(
        lambda _policy: None, lambda _name: None, lambda: told.append("kinds")
    )
    HubState(listeners).definitions.finish(known=True)
    assert told == ["kinds"]


def test_the_hub_knows_a_kind_with_targets_that_no_class_wants() -> None:
    world = World()
    assert list(world.state.syncable_kinds) == [AUTH]
    put(world.state.definitions, ObjectKey("", "x.y"), spec={"group": "y"})
    assert list(world.state.syncable_kinds) == [AUTH]


@pytest.mark.parametrize("versions", [7, [7], [{"name": 7}], [{"name": "v1", "served": False}]])
def test_a_definition_that_cannot_be_read_or_has_no_targets_is_none(versions: object) -> None:
    body = World().state.definitions.objects[DEFINITION]
    assert syncable_kind({**body, "spec": {**body["spec"], "versions": versions}}) is None
