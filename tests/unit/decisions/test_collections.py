from __future__ import annotations

from kube_sync.decisions.collections import TrackedCollections
from kube_sync.decisions.decision import Decision
from kube_sync.decisions.evaluator import Outcome
from kube_sync.decisions.hub import DecisionHub
from kube_sync.decisions.records import Target
from kube_sync.objects import ObjectKey
from tests.unit.decisions.test_tracker import DAEMONSETS, REPLICASETS, Collection, turn


class World:
    """Decided `replicasets`, and `clusters` that decisions look at."""

    def __init__(self) -> None:
        self.hub = DecisionHub("me")
        self.replicasets = Collection("replicasets", "a", "b")
        self.clusters = Collection("clusters", "c1")
        self.collections = TrackedCollections(
            self.hub, {"replicasets": REPLICASETS}, [self.replicasets, self.clusters]
        )
        for name in ("a", "b"):
            target = Target.of(REPLICASETS, ObjectKey("ns", name))
            self.hub.publish(
                target.gvr, target.key, Outcome(f"uid-{name}", Decision({})), "load", "p1"
            )

    @property
    def decided(self) -> set[str]:
        return {target.name for target in self.hub.records}


def test_collection_that_is_expected_holds_until_opa_has_all_of_it() -> None:
    world = World()
    nodes = Collection("nodes")
    nodes.loaded, nodes.pending = False, 1
    assert not world.collections.expect(nodes, None)
    for loaded, pending in ((False, 1), (True, 1), (False, 0)):
        nodes.loaded, nodes.pending = loaded, pending
        world.collections.release_decided()
        assert world.hub.held == ("nodes: is being loaded",)
        assert world.collections.is_loading("nodes")
    nodes.loaded = True
    world.collections.release_decided()
    assert not world.hub.held
    assert not world.collections.is_loading("nodes")


def test_target_that_is_loaded_anew_loses_the_decisions_on_what_is_gone() -> None:
    world = World()
    assert not world.collections.expect(Collection("replicasets", "b"), REPLICASETS)
    assert world.decided == {"a", "b"}
    world.collections.release_decided()
    assert world.decided == {"b"}


def test_missing_kind_holds_until_it_is_known_and_written() -> None:
    world = World()
    world.clusters.known, world.clusters.pending = False, 1
    world.collections.hold_missing()
    for known in (False, True):
        world.clusters.known = known
        world.collections.release_decided()
        assert world.hub.held == ("clusters: the API server does not know this resource",)
    world.clusters.pending = 0
    world.collections.release_decided()
    assert not world.hub.held


def test_collection_that_is_forgotten_takes_holds_and_decisions_along() -> None:
    world = World()
    world.clusters.known = False
    world.collections.hold_missing()
    world.collections.expect(Collection("nodes"), None)
    assert [world.collections.forget(name) for name in ("replicasets", "clusters", "nodes")] == [
        True,
        False,
        False,
    ]
    assert not world.hub.held
    assert not world.decided
    assert not world.collections.by_name


def test_kind_that_another_collection_is_of_keeps_its_decisions() -> None:
    world = World()
    assert world.collections.expect(Collection("sets", "a"), REPLICASETS)
    assert world.collections.forget("replicasets")
    assert world.decided == {"a", "b"}
    world.collections.forget_deleted()
    assert world.decided == {"a"}


def test_retargeting_tells_whether_anything_is_new() -> None:
    world = World()
    assert [world.collections.retarget("clusters", gvr) for gvr in (None, DAEMONSETS)] == [
        False,
        True,
    ]
    assert not world.collections.retarget("clusters", DAEMONSETS)


def test_object_that_cannot_be_read_is_asked_about_in_a_target_and_late_elsewhere() -> None:
    world = World()
    turn(world.replicasets, "z", unreadable=True)
    turn(world.clusters, "c1", unreadable=True)
    unreadable = ObjectKey("ns", "z")
    assert dict(world.collections.take_readability_changes()) == {"replicasets": {unreadable}}
    assert [late.source for late in world.hub.freshness.sources] == ["clusters that cannot be read"]
    assert unreadable in world.collections.keys("replicasets")
    assert dict(world.collections.take_readability_changes()) == {"replicasets": set()}
    world.collections.retarget("clusters", DAEMONSETS)
    assert not world.hub.freshness.sources


def test_classes_are_awaited_of_targets_alone() -> None:
    world = World()
    world.clusters.learning = True
    assert not world.collections.learning
    world.replicasets.learning = True
    assert world.collections.learning
