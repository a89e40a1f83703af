"""From plans to what is done of them: what brings copies goes on, what takes them away may wait."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_sync.guard import Limits
from kube_sync.objects import GroupVersionResource, ObjectKey
from kube_sync.policysync.copies import Copy, CopyKey, Placed, PolicyId
from kube_sync.policysync.desired import Desired
from kube_sync.policysync.plan import (
    Apply,
    Braked,
    MarkForRemoval,
    Remove,
    braked,
    copy_states,
    plan,
)
from kube_sync.policysync.removal_guard import Brakes, CopyState

NOW, GRACE = 1_800_000_000.0, 600.0
POLICY = PolicyId(GroupVersionResource("kuadrant.io", "v1", "authpolicies"), "shop", "p")
EDGE = ObjectKey("infra", "edge")
GATEWAY = frozenset(["Gateway infra/edge"])
MANAGED = frozenset(["ManagedClusters"])
CLUSTERS = [f"c{n}" for n in range(8)]


def key(cluster: str, policy: PolicyId = POLICY) -> CopyKey:
    return CopyKey(policy, cluster)


def copy(cluster: str, digest: str = "a") -> Copy:
    return Copy(key(cluster), "AuthPolicy", {}, (), digest)


def placed(cluster: str, *gateways: ObjectKey, remove_after: float | None = None) -> Placed:
    return Placed(key(cluster), "a", None, remove_after, frozenset(gateways or [EDGE]))


def wanted(
    *clusters: str,
    uncertain: frozenset[str] = frozenset(),
    abandoned: frozenset[str] = frozenset(),
) -> Desired:
    return Desired({cluster: copy(cluster) for cluster in clusters}, uncertain, abandoned)


@dataclass
class Spokes:
    """What a policy has on spokes, and brakes that let it be changed."""

    at: dict[str, Placed]
    now: float = NOW
    vanished: str = ""
    approved: set[str] = field(default_factory=set)
    brakes: Brakes = field(
        default_factory=lambda: Brakes(
            Limits(stale=60, shrink=0.3, mass_share=0.2, mass_floor=10), grace=GRACE, window=3600
        )
    )

    def look(self, want: Desired | None) -> Braked:
        told = copy_states(want, self.at, vanished=self.vanished)
        self.brakes.set_copies(POLICY, told, self.now)
        self.brakes.weigh((), self.approved, self.now)
        planned = plan(want, self.at, now=self.now, grace=GRACE)
        return braked(planned, self.at, self.brakes, self.now)

    def do(self, want: Desired | None) -> Braked:
        """Do what may be done."""
        found = self.look(want)
        for step in found.plan.steps:
            match step:
                case Apply():
                    self.at[step.key.cluster] = placed(step.key.cluster)
                case MarkForRemoval():
                    one = self.at[step.key.cluster]
                    self.at[step.key.cluster] = replace(one, remove_after=step.at)
                case Remove():
                    del self.at[step.key.cluster]
        return found


def on(*clusters: str) -> Spokes:
    return Spokes({cluster: placed(cluster) for cluster in clusters})


def test_a_cluster_that_is_given_up_is_marked_and_left_after_the_grace() -> None:
    spokes = on("c0", "c1", "c2", "c3")
    assert spokes.do(wanted("c0", "c1", "c2")).plan.steps == (
        MarkForRemoval(key("c3"), NOW + GRACE),
    )
    assert spokes.do(wanted("c0", "c1", "c2")).plan.steps == ()
    spokes.now += GRACE
    assert spokes.do(wanted("c0", "c1", "c2")).plan.steps == (Remove(key("c3")),)


def test_a_placement_that_names_no_cluster_any_more_takes_nothing_away() -> None:
    spokes = on("c0", "c1")
    for _ in range(3):
        found = spokes.do(wanted())
        assert found.plan.steps == ()
        assert {one.reason for one in found.held.values()} == {
            "Gateway infra/edge: 0 of 2 clusters are left"
        }
        spokes.now += GRACE


def test_what_brings_copies_does_not_wait_for_what_takes_some_away() -> None:
    spokes = on("c0", "c1")
    found = spokes.do(wanted("c5"))
    assert [type(step) for step in found.plan.steps] == [Apply]
    assert found.held.keys() == {"c0", "c1"}


def test_what_waited_for_longer_than_the_grace_goes_at_once_when_it_is_approved() -> None:
    spokes = on("c0", "c1")
    spokes.do(wanted())
    spokes.now += GRACE
    (hold,) = spokes.brakes.weigh((), (), spokes.now).holds
    assert hold.approve is not None
    spokes.approved.add(hold.approve)
    assert spokes.do(wanted()).plan.steps == (Remove(key("c0")), Remove(key("c1")))


def test_a_policy_that_was_deleted_leaves_at_once() -> None:
    spokes = on("c0", "c1", "c2")
    spokes.do(None)
    assert spokes.at == {}


def test_a_policy_whose_kind_is_gone_is_left_like_one_that_is_placed_no_more() -> None:
    """One copy goes, and only after the grace: the kind may be back by then."""
    spokes = on("c0")
    spokes.vanished = "kind AuthPolicy"
    assert spokes.do(None).plan.steps == (MarkForRemoval(key("c0"), NOW + GRACE),)
    found = spokes.do(None)
    assert (found.plan.steps, found.plan.plan_again_at) == ((), NOW + GRACE)
    spokes.now += GRACE
    assert spokes.do(None).plan.steps == (Remove(key("c0")),)
    spokes = on("c0", "c1", "c2")
    spokes.vanished = "kind AuthPolicy"
    assert spokes.do(None).held.keys() == {"c0", "c1", "c2"}


def test_a_mark_that_is_years_away_is_made_anew_and_once() -> None:
    spokes = Spokes({c: placed(c, remove_after=NOW + 1e8) for c in ("c0",)} | on("c1", "c2").at)
    assert spokes.do(wanted("c1", "c2")).plan.steps == (MarkForRemoval(key("c0"), NOW + GRACE),)
    assert spokes.do(wanted("c1", "c2")).plan.steps == ()


def test_what_is_not_weighed_yet_is_looked_at_again_soon() -> None:
    spokes = on("c0")
    planned = plan(None, spokes.at, now=NOW, grace=GRACE)
    found = braked(planned, spokes.at, spokes.brakes, NOW)
    assert (found.plan.steps, found.plan.plan_again_at) == ((), NOW + 1)


def test_a_mark_that_is_due_by_itself_is_not_put_off() -> None:
    """As where the grace is longer now than when the copy was marked."""
    spokes = Spokes({c: placed(c, remove_after=NOW - 1) for c in ("c0",)} | on("c1", "c2", "c3").at)
    assert spokes.do(wanted("c1", "c2", "c3")).plan.steps == (Remove(key("c0")),)


@pytest.mark.parametrize(
    ("want", "more", "standing"),
    [
        (wanted("c0"), {}, CopyState(GATEWAY)),
        (wanted(uncertain=frozenset(["c0"])), {}, CopyState(GATEWAY)),
        (wanted(), {}, CopyState(GATEWAY, wanted=False)),
        (wanted("c0"), {"gone": {"c0"}}, CopyState(GATEWAY, wanted=False, at_once=True)),
        (wanted("c0"), {"managed": {"c0"}}, CopyState(GATEWAY | MANAGED)),
        (wanted(), {"managed": {"c0"}}, CopyState(GATEWAY, wanted=False)),
        (
            wanted("c0"),
            {"gone": {"c0"}, "managed": {"c0"}},
            CopyState(GATEWAY | MANAGED, wanted=False, at_once=True),
        ),
        (
            wanted(abandoned=frozenset(["c0"])),
            {"gone": {"c0"}, "managed": {"c0"}},
            CopyState(frozenset(), wanted=False, at_once=True),
        ),
        (
            wanted(abandoned=frozenset(["c0"])),
            {},
            CopyState(frozenset(), wanted=False, at_once=True),
        ),
        (None, {}, CopyState(frozenset(), wanted=False, at_once=True)),
        (
            None,
            {"vanished": "kind AuthPolicy"},
            CopyState(frozenset(["kind AuthPolicy"]), wanted=False),
        ),
    ],
)
def test_how_a_copy_stands(want: Desired | None, more: dict[str, str], standing: CopyState) -> None:
    assert copy_states(want, {"c0": placed("c0")}, **more) == {"c0": standing}  # type: ignore[arg-type]


def test_copies_that_name_no_gateway_stand_together() -> None:
    nameless = Placed(key("c0"), "a", None, None)
    assert copy_states(wanted(), {"c0": nameless})["c0"].sources == {"copies that name no Gateway"}


_world = st.lists(
    st.tuples(st.frozensets(st.sampled_from(CLUSTERS)), st.integers(0, 900)), max_size=12
)


@given(_world)
def test_soon_nothing_is_left_to_do_and_in_the_end_nothing_is_there_that_may_go(
    worlds: list[tuple[frozenset[str], int]],
) -> None:
    spokes = Spokes({})
    for clusters, seconds in worlds:
        want = wanted(*sorted(clusters))
        for _ in range(2):  # where there are more copies now, more of them may go
            spokes.do(want)
        assert spokes.do(want).plan.steps == ()
        assert clusters <= spokes.at.keys()
        spokes.now += seconds
    spokes.now += GRACE
    last = wanted(*sorted(worlds[-1][0])) if worlds else wanted()
    held = spokes.do(last).held
    assert spokes.at.keys() == last.copies.keys() | held.keys()


@given(_world)
def test_no_cluster_loses_its_copy_before_it_was_unwanted_for_the_grace(
    worlds: list[tuple[frozenset[str], int]],
) -> None:
    spokes, since = Spokes({}), dict[str, float]()
    for clusters, seconds in worlds:
        for cluster in CLUSTERS:
            if cluster in clusters:
                since.pop(cluster, None)
            else:
                since.setdefault(cluster, spokes.now)
        before = set(spokes.at)
        spokes.do(wanted(*sorted(clusters)))
        assert all(spokes.now - since[c] >= GRACE for c in before - spokes.at.keys())
        spokes.now += seconds
