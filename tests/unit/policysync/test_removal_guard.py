"""Whatever vanishes on the hub: policies leave few spokes at once, or somebody said so."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_sync.config import PolicySync, SyncBrakes
from kube_sync.guard import Limits, Withheld
from kube_sync.objects import GroupVersionResource
from kube_sync.policysync.copies import CopyKey, PolicyId
from kube_sync.policysync.recent_removals import decode, encode
from kube_sync.policysync.removal_guard import Brakes, CopyState, HoldReport, brakes_of
from kube_sync.runtime.freshness import Stale

NOW = 1_800_000_000.0
GRACE, WINDOW = 600.0, 3600.0
LIMITS = Limits(stale=60.0, shrink=0.3, mass_share=0.2, mass_floor=10)
GVR = GroupVersionResource("kuadrant.io", "v1", "authpolicies")
EDGE, LAB = "Gateway infra/edge", "Gateway infra/lab"


def policy(name: str) -> PolicyId:
    return PolicyId(GVR, "shop", name)


def kept(*sources: str) -> CopyState:
    return CopyState(frozenset(sources or [EDGE]))


def lost(*sources: str, at_once: bool = False, remove_after: float | None = None) -> CopyState:
    return CopyState(
        frozenset(sources or [EDGE]), wanted=False, at_once=at_once, remove_after=remove_after
    )


DELETED = CopyState(wanted=False, at_once=True)


@dataclass
class Hub:
    """What a hub wants, by policy and cluster, and what its brakes say of it."""

    limits: Limits = LIMITS
    grace: float = GRACE
    now: float = NOW
    approved: frozenset[str] = frozenset()
    copies: dict[str, dict[str, CopyState]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Begin as after a restart."""
        self.brakes = Brakes(self.limits, grace=self.grace, window=WINDOW)
        for name in self.copies:
            self.tell(name)

    def hand_over(self) -> None:
        """Begin as one that takes over from another."""
        said = encode(self.brakes.recent_removals)
        self.begin()
        self.brakes.add_recent(decode(said, self.now))

    def tell(self, name: str) -> None:
        self.brakes.set_copies(policy(name), self.copies[name], self.now)

    def place(self, policies: Iterable[str], clusters: Iterable[str], *sources: str) -> None:
        for name in policies:
            self.copies[name] = dict.fromkeys(clusters, kept(*sources))
            self.tell(name)

    def change(self, name: str, clusters: Iterable[str], to: CopyState | None) -> None:
        for cluster in clusters:
            if to is None:
                del self.copies[name][cluster]
            else:
                self.copies[name][cluster] = to
        self.tell(name)

    def weigh(self, *stale: Stale) -> HoldReport:
        return self.brakes.weigh(stale, self.approved, self.now)

    def take(self, name: str, cluster: str) -> Withheld | float:
        return self.brakes.permit(CopyKey(policy(name), cluster), self.now)

    def taken(self, *stale: Stale) -> dict[tuple[str, str], Withheld | float]:
        """Weigh, and take all that is not wanted."""
        self.weigh(*stale)
        return {
            (name, cluster): self.take(name, cluster)
            for name, of in self.copies.items()
            for cluster, standing in of.items()
            if not standing.wanted
        }

    def approve(self) -> str:
        """Approve whatever is asked for."""
        (name,) = {hold.approve for hold in self.weigh().holds}
        assert name is not None
        self.approved |= {name}
        return name


def clusters(number: int) -> list[str]:
    return [f"c{n:03}" for n in range(number)]


def reasons(taken: Mapping[tuple[str, str], Withheld | float]) -> set[str]:
    assert taken
    assert all(isinstance(one, Withheld) for one in taken.values())
    return {one.reason for one in taken.values() if isinstance(one, Withheld)}


def gone(taken: Mapping[tuple[str, str], Withheld | float]) -> set[tuple[str, str]]:
    return {key for key, one in taken.items() if not isinstance(one, Withheld)}


def fleet(policies: int = 5, spokes: int = 10, **more: float) -> Hub:
    hub = Hub(**more)  # type: ignore[arg-type]
    hub.place([f"p{n}" for n in range(policies)], clusters(spokes))
    return hub


def test_a_single_removal_passes_after_the_grace() -> None:
    hub = fleet()
    hub.change("p0", ["c000"], lost())
    hub.weigh()
    assert hub.take("p0", "c000") == NOW + GRACE
    hub.now += 100
    hub.weigh()
    assert hub.take("p0", "c000") == NOW + GRACE
    assert hub.brakes.held == {}


def test_a_removal_that_nobody_can_want_back_has_no_grace() -> None:
    hub = fleet()
    hub.change("p0", ["c000"], lost(at_once=True))
    hub.weigh()
    assert hub.take("p0", "c000") == NOW


def test_a_copy_that_is_wanted_again_and_is_lost_again_has_its_whole_grace() -> None:
    hub = fleet()
    hub.change("p0", ["c000"], lost())
    hub.now += 300
    hub.change("p0", ["c000"], kept())
    hub.now += 300
    hub.change("p0", ["c000"], lost())
    hub.weigh()
    assert hub.take("p0", "c000") == NOW + 600 + GRACE


def test_a_placement_that_vanished_empties_no_spoke() -> None:
    hub = fleet()
    for name in hub.copies:
        hub.change(name, clusters(10), lost())
    assert reasons(hub.taken()) == {f"{EDGE}: 0 of 10 clusters are left"}
    hub.now += 10 * GRACE  # time alone changes nothing
    assert reasons(hub.taken()) == {f"{EDGE}: 0 of 10 clusters are left"}
    assert {hold.since for hold in hub.brakes.held.values()} == {NOW}


@pytest.mark.parametrize("spokes", [1, 2, 3])
def test_small_fleets_are_not_emptied_either(spokes: int) -> None:
    hub = fleet(policies=2, spokes=spokes)
    for name in hub.copies:
        hub.change(name, clusters(spokes), lost())
    assert reasons(hub.taken()) == {f"{EDGE}: 0 of {spokes} clusters are left"}


@pytest.mark.parametrize(("left", "goes"), [(9, True), (7, True), (6, False), (1, False)])
def test_a_placement_that_shrank_by_more_than_a_share_waits(left: int, goes: bool) -> None:  # noqa: FBT001 - a table
    hub = fleet(policies=1)
    hub.change("p0", clusters(10)[left:], lost())
    taken = hub.taken()
    assert bool(gone(taken)) is goes
    assert goes or reasons(taken) == {f"{EDGE}: {left} of 10 clusters are left"}


def test_a_cluster_that_leaves_a_fleet_of_two_takes_all_its_policies() -> None:
    hub = fleet(policies=20, spokes=2)
    for name in hub.copies:
        hub.change(name, ["c000"], lost(at_once=True))
    assert len(gone(hub.taken())) == 20


def test_a_source_that_shrank_holds_nothing_of_others() -> None:
    hub = fleet(policies=2, spokes=4)
    hub.place(["lab"], clusters(40), LAB)
    for name in ("p0", "p1"):
        hub.change(name, clusters(2), lost())
    hub.change("lab", ["c000"], lost(LAB))
    taken = hub.taken()
    assert gone(taken) == {("lab", "c000")}
    held = {key: one for key, one in taken.items() if key not in gone(taken)}
    assert reasons(held) == {f"{EDGE}: 2 of 4 clusters are left"}


def test_a_parameters_list_that_is_empty_removes_nothing_without_an_approval() -> None:
    hub = fleet()
    for name in hub.copies:
        hub.change(name, clusters(10), lost("GatewayClass edge"))
    assert reasons(hub.taken()) == {"GatewayClass edge: 0 of 10 clusters are left"}


def test_a_policy_that_was_deleted_leaves_all_its_clusters_at_once() -> None:
    hub = fleet(policies=2, spokes=100)
    hub.change("p0", clusters(100), DELETED)
    assert set(hub.taken().values()) == {NOW}


def test_many_policies_that_were_deleted_wait() -> None:
    hub = fleet(policies=10, spokes=100)
    for name in ("p0", "p1"):
        hub.change(name, clusters(100), DELETED)
    assert len(gone(hub.taken())) == 200
    hub.change("p2", clusters(100), DELETED)
    assert reasons(hub.taken()) == {"300 of 1000 copies would be removed"}


def test_few_copies_are_no_mass_in_any_fleet() -> None:
    hub = fleet(policies=6, spokes=2)
    for name in ("p0", "p1", "p2", "p3", "p4"):
        hub.change(name, clusters(2), DELETED)
    assert len(gone(hub.taken())) == 10
    hub.change("p5", clusters(2), DELETED)
    assert reasons(hub.taken()) == {"12 of 12 copies would be removed"}


def test_small_steps_come_to_one_mass() -> None:
    hub, went = fleet(policies=10, spokes=10), 0
    for name in [*hub.copies][:5]:
        hub.change(name, clusters(10), DELETED)
        went += len(gone(hub.taken()))
        if not isinstance(hub.take(name, "c000"), Withheld):
            hub.change(name, clusters(10), None)
        hub.now += 60
    assert went == 20
    assert {hold.reason for hold in hub.weigh().holds} == {"50 of 100 copies would be removed"}


def test_small_steps_of_several_processes_come_to_one_shrinking_and_one_mass() -> None:
    for policies, spokes, step in ((1, 10, 3), (10, 10, 2)):
        hub, went = fleet(policies=policies, spokes=spokes, grace=0), 0
        for first in range(0, spokes, step):
            for name in hub.copies:
                hub.change(name, clusters(spokes)[first : first + step], lost())
            for name, cluster in gone(hub.taken()):
                hub.change(name, [cluster], None)
                went += 1
            hub.now += 60
            hub.hand_over()
        # Of ten clusters three; of a hundred copies twenty.
        assert went == {1: 3, 10: 20}[policies]
        assert hub.weigh().holds


def test_what_went_is_forgotten_after_the_window() -> None:
    hub = fleet(policies=20, spokes=10)
    for _ in range(2):
        for name in [*hub.copies][:3]:
            hub.change(name, clusters(10), DELETED)
        assert len(gone(hub.taken())) == 30
        for name in [*hub.copies][:3]:
            hub.change(name, clusters(10), None)
            del hub.copies[name]
        hub.now += WINDOW


def test_a_mass_goes_when_it_is_few_again() -> None:
    hub = fleet(policies=10, spokes=10)
    for name in ("p0", "p1", "p2"):
        hub.change(name, clusters(10), DELETED)
    assert gone(hub.taken()) == set()
    hub.change("p2", clusters(10), kept())
    assert len(gone(hub.taken())) == 20


def test_what_is_approved_goes_as_soon_as_it_was_unwanted_for_the_grace() -> None:
    hub = fleet()
    for name in hub.copies:
        hub.change(name, clusters(10), lost())
    hub.now += 60
    hub.approve()
    assert set(hub.taken().values()) == {NOW + GRACE}
    assert hub.brakes.held == {}


def test_one_approval_lets_all_go_that_waits_with_it() -> None:
    hub = fleet(policies=10)
    hub.place(["lab"], clusters(10), LAB)
    for name in hub.copies:
        hub.change(name, clusters(10), DELETED if name == "p0" else lost())
    hub.approve()
    assert len(gone(hub.taken())) == 110


def test_an_approval_lets_nothing_through_that_it_does_not_name() -> None:
    hub = fleet()
    for name in ("p0", "p1", "p2"):
        hub.change(name, clusters(10), lost())
    hub.approve()
    for name in ("p3", "p4"):
        hub.change(name, clusters(10), lost())
    taken = hub.taken()
    assert {name for name, _ in gone(taken)} == {"p0", "p1", "p2"}
    assert hub.weigh().holds[0].approve not in hub.approved


def test_an_approval_is_worth_nothing_for_the_same_another_time() -> None:
    hub = fleet()
    for name in hub.copies:
        hub.change(name, clusters(10), lost())
    hub.approve()
    for name in hub.copies:
        hub.change(name, clusters(10), kept())
    hub.weigh()
    hub.now += 60
    for name in hub.copies:
        hub.change(name, clusters(10), lost())
    assert gone(hub.taken()) == set()


def test_an_approval_that_is_taken_back_stops_what_has_not_gone() -> None:
    hub = fleet()
    for name in hub.copies:
        hub.change(name, clusters(10), lost())
    hub.approve()
    assert len(gone(hub.taken())) == 50
    hub.approved = frozenset()
    assert gone(hub.taken()) == set()


def test_what_was_approved_and_marked_goes_after_a_restart_too() -> None:
    hub = fleet()
    for name in hub.copies:
        hub.change(name, clusters(10), lost())
    hub.approve()
    for (name, cluster), at in hub.taken().items():
        assert not isinstance(at, Withheld)
        hub.copies[name][cluster] = lost(remove_after=at)
    hub.now += GRACE + 1
    hub.begin()
    assert set(hub.taken().values()) == {NOW + GRACE}


def test_after_a_restart_a_vanished_placement_is_held_as_before() -> None:
    hub = fleet()
    for name in hub.copies:
        hub.change(name, clusters(10), lost())
    hub.begin()
    assert gone(hub.taken()) == set()


@pytest.mark.parametrize("remove_after", [NOW + 10 * GRACE, NOW + GRACE])
def test_a_mark_that_no_clock_of_here_made_is_at_most_a_grace_away(remove_after: float) -> None:
    hub = fleet()
    hub.change("p0", ["c000"], lost(remove_after=remove_after))
    hub.weigh()
    assert hub.take("p0", "c000") == NOW + GRACE


def test_a_mark_of_a_shorter_grace_is_kept_to() -> None:
    """As where another replica, of another configuration, made it."""
    hub = fleet()
    hub.change("p0", ["c000"], lost())
    hub.change("p0", ["c000"], lost(remove_after=NOW + 100))
    hub.weigh()
    assert hub.take("p0", "c000") == NOW + 100


@pytest.mark.parametrize(
    ("stale", "reason"),
    [
        (
            [Stale("policies", 61, "the watch was cut"), Stale("gateways", 5, "no")],
            "policies: not current for more than 60 s: the watch was cut",
        ),
        (
            [Stale("policies", 61, "cut"), Stale("placementdecisions", inf, "may not be listed")],
            "placementdecisions: not known yet: may not be listed",
        ),
    ],
)
def test_nothing_goes_while_a_store_is_not_current(stale: list[Stale], reason: str) -> None:
    hub = fleet()
    hub.change("p0", ["c000"], lost())
    assert reasons(hub.taken(*stale)) == {reason}
    assert [hold.reason for hold in hub.weigh(*stale).holds] == [reason]
    assert gone(hub.taken()) == {("p0", "c000")}


def test_an_approval_is_no_way_around_a_store_that_is_not_current() -> None:
    hub = fleet()
    for name in hub.copies:
        hub.change(name, clusters(10), lost())
    hub.approve()
    assert gone(hub.taken(Stale("gateways", inf, "not listed"))) == set()


def test_a_store_that_is_not_current_for_a_moment_holds_nothing() -> None:
    hub = fleet()
    hub.change("p0", ["c000"], lost())
    assert gone(hub.taken(Stale("gateways", 60, "cut"))) == {("p0", "c000")}


def test_a_store_that_is_not_current_holds_nothing_where_nothing_is_to_go() -> None:
    assert fleet().weigh(Stale("gateways", inf, "not listed")) == HoldReport((), 0, 50)


def test_nothing_goes_before_it_was_weighed_with_all_others() -> None:
    hub = fleet()
    hub.change("p0", ["c000"], lost())
    held = hub.take("p0", "c000")
    assert isinstance(held, Withheld)
    assert (held.kind, held.until) == ("unseen", NOW + 1)
    hub.weigh()
    hub.change("p1", ["c001"], lost())
    assert isinstance(hub.take("p1", "c001"), Withheld)
    assert not isinstance(hub.take("p0", "c000"), Withheld)


def test_what_was_weighed_a_while_ago_is_weighed_again() -> None:
    hub = fleet()
    hub.change("p0", ["c000"], lost())
    hub.weigh()
    hub.now += 6
    assert isinstance(hub.take("p0", "c000"), Withheld)


def test_what_is_wanted_is_not_let_go() -> None:
    hub = fleet()
    hub.weigh()
    assert isinstance(hub.take("p0", "c000"), Withheld)
    assert isinstance(hub.take("p9", "c000"), Withheld)


def test_what_is_gone_or_wanted_again_is_held_no_more() -> None:
    hub = fleet()
    for name in hub.copies:
        hub.change(name, clusters(10), lost())
    hub.taken()
    assert len(hub.brakes.held) == 50
    hub.change("p0", clusters(10), kept())
    hub.copies["p1"] = {}
    hub.tell("p1")
    assert len(hub.brakes.held) == 30


def test_a_share_of_one_is_no_limit() -> None:
    hub = fleet(limits=Limits(shrink=1, mass_share=1))  # type: ignore[arg-type]
    for name in hub.copies:
        hub.change(name, clusters(10), lost())
    assert len(gone(hub.taken())) == 50


def test_the_configuration_is_what_holds() -> None:
    """The defaults are those that the other tests say."""
    hub = fleet()
    hub.brakes = brakes_of(PolicySync())
    for name in hub.copies:
        hub.change(name, clusters(3), lost())
    assert reasons(hub.taken()) == {"15 of 50 copies would be removed"}
    own = SyncBrakes(window_seconds=0, stale_seconds=0, mass_floor=15, shrink_share=0.2)
    hub.brakes = brakes_of(PolicySync(grace_seconds=5, brakes=own))
    for name in hub.copies:
        hub.tell(name)
    old = Stale("gateways", 1e9, "cut")
    assert reasons(hub.taken(old)) == {f"{EDGE}: 7 of 10 clusters are left"}
    hub.change("p0", clusters(10), kept())
    for name in ("p1", "p2", "p3", "p4"):
        hub.change(name, clusters(10)[2:], kept())
    assert set(hub.taken(old).values()) == {NOW + 5}


_names, _clusters = st.sampled_from([f"p{n}" for n in range(5)]), st.sampled_from(clusters(6))
_to = st.sampled_from([kept(), kept(LAB), lost(), lost(LAB), lost(EDGE, LAB), DELETED, None])
_change = st.tuples(_names, _clusters, _to)


@given(st.lists(_change, max_size=60), st.randoms(use_true_random=False))
def test_what_is_held_does_not_depend_on_the_order(
    changes: list[tuple[str, str, CopyState | None]], rng: random.Random
) -> None:
    world: dict[str, dict[str, CopyState]] = {}
    for name, cluster, to in changes:
        if to is not None:
            world.setdefault(name, {})[cluster] = to
    one, other = (Hub(limits=Limits(shrink=0.3, mass_share=0.2, mass_floor=2)) for _ in range(2))
    one.copies = world
    order = [*world]
    rng.shuffle(order)
    for name in order:
        of = [*world[name].items()]
        rng.shuffle(of)
        other.copies[name] = dict(of)
    for hub in (one, other):
        hub.begin()
    assert one.taken() == other.taken()
    assert one.weigh() == other.weigh()


@given(
    st.lists(st.tuples(st.lists(_change, max_size=4), st.integers(0, 5400)), max_size=25),
    st.sampled_from([0.0, 0.2, 0.5]),
    st.integers(0, 4),
)
def test_no_small_steps_within_the_window_remove_more_than_the_limit(
    steps: list[tuple[list[tuple[str, str, CopyState | None]], int]], share: float, floor: int
) -> None:
    """But for what is of one policy, or of one cluster, and so one removal."""
    hub = Hub(limits=Limits(shrink=0.3, mass_share=share, mass_floor=floor))
    hub.place([f"p{n}" for n in range(5)], clusters(6))
    went: list[tuple[float, tuple[str, str], float]] = []
    for changes, seconds in steps:
        for name, cluster, to in changes:
            if to is not None or cluster in hub.copies[name]:
                hub.change(name, [cluster], to)
        copies = hub.weigh().copies
        limit = max(floor, share * copies)
        went += [(hub.now, key, limit) for key in gone(hub.taken())]
        recent = {key for at, key, _ in went if hub.now - at < WINDOW}
        allowed = max((limit for at, _, limit in went if hub.now - at < WINDOW), default=limit)
        alone = min(len({name for name, _ in recent}), len({cluster for _, cluster in recent}))
        assert len(recent) <= allowed or alone <= 1
        hub.now += seconds


@given(
    st.lists(st.tuples(_clusters, st.booleans(), st.integers(0, 5400), st.booleans()), max_size=30)
)
def test_no_small_steps_within_the_window_empty_a_gateway_whoever_does_them(
    steps: list[tuple[str, bool, int, bool]],
) -> None:
    """Of six clusters one is less than the share, and two are more."""
    hub = fleet(policies=3, spokes=6, grace=0)
    went: dict[str, float] = {}  # the clusters that have no copy, and since when
    for cluster, comes_back, seconds, another in steps:
        if another:
            hub.hand_over()
        for name in hub.copies:
            if comes_back:
                hub.change(name, [cluster], kept())
            elif cluster in hub.copies[name]:
                hub.change(name, [cluster], lost())
        if comes_back:
            went.pop(cluster, None)
        for name, at in gone(hub.taken()):
            hub.change(name, [at], None)
            went[at] = hub.now
        assert sum(hub.now - at < WINDOW for at in went.values()) <= 1
        hub.now += seconds
