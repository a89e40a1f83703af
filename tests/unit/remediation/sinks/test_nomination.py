from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_sync.decisions.decision import PLACEMENT, Decision
from kube_sync.kube.kueue import ClusterState, Workload
from kube_sync.remediation.plan import Unusable, Wanted
from kube_sync.remediation.sinks.nomination import (
    MOST,
    SECONDS_KEY,
    Fleet,
    Nomination,
    Permitted,
    check_of,
    nominate,
    order_of,
    permitted,
    seconds_of,
)
from kube_sync.remediation.sinks.placement import OWNER

UP, DOWN = ClusterState(active=True), ClusterState(active=False, message="timeout")
NAMES = ("a", "b", "c")
PENDING = Workload("u", reserved=True, checks=(("mk", "Pending"),))
ALL = Permitted(NAMES, 60.0)


def fleet(*listed: str, **states: ClusterState) -> Fleet:
    names = listed or NAMES
    return Fleet({"mk": "config"}, {"config": names}, dict.fromkeys(names, UP) | states)


def nominated(*names: str, at: float = 0.0) -> Workload:
    return replace(PENDING, nominated=names, nominated_at=at)


def asked(
    found: Workload,
    order: tuple[str, ...] = NAMES,
    of: Fleet | None = None,
    now: float = 0.0,
    leaving: frozenset[str] = frozenset(),
) -> Nomination:
    answer = nominate(found, Permitted(order, 60.0, leaving), of or fleet(), now)
    assert answer is not None
    return answer


@pytest.mark.parametrize(
    "other",
    [
        replace(PENDING, deleted=True),
        replace(PENDING, reserved=False),
        replace(PENDING, finished=True),
        replace(PENDING, cluster="a"),
        replace(PENDING, checks=()),
        replace(PENDING, checks=(("other", "Pending"),)),
        replace(PENDING, checks=(("mk", "Ready"),)),
        replace(PENDING, checks=(("mk", "Rejected"),)),
        replace(PENDING, checks=(("mk", "Retry"),)),
    ],
)
def test_what_kueues_dispatchers_leave_alone_is_left_alone(other: Workload) -> None:
    assert nominate(other, ALL, fleet(), 0.0) is None


def test_only_the_first_check_of_multikueue_counts() -> None:
    """As GetMultiKueueAdmissionCheck (pkg/util/admissioncheck) takes the first relevant one."""
    both = Fleet({"mk": "config", "second": "config"}, {"config": NAMES}, {})
    first = replace(PENDING, checks=(("other", "Pending"), ("mk", "Ready"), ("second", "Pending")))
    assert check_of(first, both) is None
    assert check_of(replace(first, checks=first.checks[::2]), both) == "second"


def test_the_policys_first_is_nominated_alone() -> None:
    answer = asked(PENDING, ("b", "a"))
    assert (answer.clusters, answer.reason) == (("b",), "b is the policy's first")


def test_the_next_one_is_nominated_too_when_the_time_is_up() -> None:
    found = nominated("a", at=100.0)
    assert asked(found, now=159.0) == Nomination(("a",), "", 1.0)
    answer = asked(found, now=160.0)
    assert answer.clusters == ("a", "b")
    assert answer.reason == "a did not admit it within 60 s: b is nominated too"
    assert asked(nominated("a", "b", at=160.0), now=160.0).clusters == ("a", "b")


def test_the_last_one_waits_for_ever() -> None:
    assert asked(nominated(*NAMES), now=1e6) == Nomination(NAMES)


def test_a_cluster_that_is_leaving_stays_and_the_policys_first_is_nominated_at_once() -> None:
    leaving = frozenset(["a", "x"])
    answer = asked(nominated("a"), ("b", "c"), leaving=leaving)
    assert (answer.clusters, answer.reason) == (("a", "b"), "b is the policy's first")
    found = nominated(*answer.clusters, at=100.0)
    assert asked(found, ("b", "c"), now=159.0, leaving=leaving).seconds == 1.0
    assert asked(found, ("b", "c"), now=160.0, leaving=leaving).clusters == ("a", "b", "c")
    assert asked(PENDING, ("b", "c"), leaving=leaving).clusters == ("b",), "it is not nominated"
    assert asked(nominated("a"), (), leaving=leaving) == Nomination(("a",))
    answer = asked(nominated("a"), ("b",), fleet(a=DOWN), leaving=leaving)
    assert answer.clusters == ("b",)
    assert answer.reason == "a is left: not active (timeout); b is the policy's first"


def test_an_inactive_cluster_is_passed_over_and_left() -> None:
    down = fleet(a=DOWN)
    answer = asked(PENDING, of=down)
    assert answer.clusters == ("b",)
    assert answer.reason == "b is the policy's first that is active"
    answer = asked(nominated("a"), of=down, now=1.0)
    assert answer.clusters == ("b",)
    assert answer.reason.startswith("a is left: not active (timeout); b is")
    answer = asked(nominated("a", "b"), of=down)
    assert (answer.clusters, answer.reason) == (("b",), "a is left: not active (timeout)")


def test_what_no_policy_permits_is_left() -> None:
    answer = asked(nominated("c", "b"), ("b",))
    assert (answer.clusters, answer.reason) == (("b",), "c is left: no policy permits it")
    answer = asked(nominated("b"), ("b", "a"), fleet("a"))
    assert answer.clusters == ("a",)
    assert answer.reason.startswith("b is left: the admission check does not list it; a is")


@pytest.mark.parametrize(
    ("order", "of", "code", "said"),
    [
        ((), fleet(), "no_cluster", "the policy permits no cluster"),
        (("x",), fleet(), "no_cluster", "MultiKueueConfig config lists none of x, only a, b, c"),
        (("a",), fleet(a=DOWN), "inactive", "a (timeout)"),
        (
            ("a",),
            Fleet({"mk": "config"}, {"config": ["a"]}, {}),
            "inactive",
            "no MultiKueueCluster",
        ),
    ],
)
def test_no_cluster_at_all_is_said_and_nominates_none(
    order: tuple[str, ...], of: Fleet, code: str, said: str
) -> None:
    answer = asked(nominated("b"), order, of)
    assert answer.clusters == ()
    assert answer.hold is not None
    assert (answer.hold.kind, said in answer.hold.reason) == (code, True)


@pytest.mark.parametrize(
    ("of", "said"),
    [
        (Fleet({"mk": "gone"}, {}, {}), "AdmissionCheck mk names MultiKueueConfig gone"),
        (Fleet({"mk": ""}, {}, {}), "AdmissionCheck mk names no MultiKueueConfig"),
    ],
)
def test_a_check_without_clusters_changes_nothing(of: Fleet, said: str) -> None:
    answer = asked(nominated("b"), NAMES, of)
    assert answer.clusters == ("b",)
    assert answer.hold is not None
    assert said in answer.hold.reason


@pytest.mark.parametrize(
    ("clusters", "order"),
    [
        ({"a": {"weight": 1}, "b": {"weight": 3}, "c": {"weight": 2}}, ("b", "c", "a")),
        ({"b": {}, "a": {}, "c": {"weight": 2}}, ("c", "a", "b")),
        ({"a": {"weight": 0}, "b": {"weight": 0, "minReplicas": 1}, "c": {}}, ("c", "b")),
        ({"a": {"maxReplicas": 0}}, ()),
        ({"*": {"weight": 1}}, None),
    ],
)
def test_the_order_is_that_of_weights_and_names(
    clusters: Mapping[str, object], order: tuple[str, ...] | None
) -> None:
    assert order_of(json.dumps({"clusters": clusters})) == order


def test_what_cannot_be_read_has_no_order() -> None:
    assert order_of("eu") is None


@pytest.mark.parametrize(
    ("text", "seconds"), [("5", 5.0), ("0.5", 0.5), ("0", 9.0), ("inf", 9.0), ("soon", 9.0)]
)
def test_the_decision_may_say_the_time(text: str, seconds: float) -> None:
    assert seconds_of({SECONDS_KEY: text}, 9.0) == seconds
    assert seconds_of({}, 9.0) == 9.0


def placed(*names: str) -> str:
    return json.dumps({"clusters": {name: {"weight": 1} for name in names}})


def test_a_decision_permits_its_clusters_but_for_those_that_are_leaving() -> None:
    decision = Decision({PLACEMENT: placed("b", "a", "c"), SECONDS_KEY: "5"})
    assert permitted(Wanted("u", decision), 60.0) == Permitted(("a", "b", "c"), 5.0)
    leaving = frozenset(["b"])
    answer = permitted(Wanted("u", decision, leaving=leaving), 60.0)
    assert answer == Permitted(("a", "c"), 5.0, leaving)


@pytest.mark.parametrize(
    ("wanted", "kind"),
    [
        (Wanted("u", Decision({})), "undecided"),
        (Wanted("u", Decision({PLACEMENT: placed("a")}), policy=OWNER), "undecided"),
        (Wanted("u", Decision({PLACEMENT: placed("*")})), "not_named"),
    ],
)
def test_what_names_no_clusters_holds(wanted: Wanted, kind: str) -> None:
    answer = permitted(wanted, 60.0)
    assert isinstance(answer, Unusable)
    assert answer.kind == kind


_names = st.sampled_from([chr(ord("a") + n) for n in range(14)])
_orders = st.lists(_names, unique=True).map(tuple)
_states = st.dictionaries(_names, st.sampled_from([UP, DOWN]))


@given(
    order=_orders,
    listed=st.lists(_names, unique=True, min_size=1),
    states=_states,
    now=st.lists(_names, unique=True, max_size=MOST).map(tuple),
    since=st.floats(0, 200),
    leaving=st.frozensets(_names),
)
def test_whatever_there_is_only_what_is_permitted_listed_and_active_is_nominated(
    order: tuple[str, ...],
    listed: list[str],
    states: dict[str, ClusterState],
    now: tuple[str, ...],
    since: float,
    leaving: frozenset[str],
) -> None:
    of = Fleet({"mk": "config"}, {"config": listed}, states)
    leaving -= frozenset(order)
    answer = asked(nominated(*now, at=since), order, of, 200.0, leaving)
    usable = [name for name in order if name in listed and of.state(name).active]
    stays = [n for n in now if n in leaving and n in listed and of.state(n).active]
    assert set(answer.clusters) <= {*usable, *stays}
    assert len(answer.clusters) <= MOST
    assert bool(answer.clusters) == bool(usable or stays)
    assert (answer.hold is None) == bool(usable or stays)
    kept = [name for name in now if name in usable or name in stays]
    assert list(answer.clusters[: len(kept)]) == kept, "nobody leaves that may stay"
    assert len(answer.clusters) <= max(1, len(kept) + 1), "at most one comes at a time"
    assert bool(answer.reason) == (answer.clusters != now)
    again = asked(nominated(*answer.clusters, at=200.0), order, of, 200.0, leaving)
    assert again.clusters == answer.clusters, "nothing to do once it is done"


@given(order=_orders.filter(bool), steps=st.integers(0, 40))
def test_as_time_passes_the_order_is_followed(order: tuple[str, ...], steps: int) -> None:
    of, found = fleet(*order), PENDING
    for step in range(steps):
        answer = asked(found, order, of, step * 60.0)
        if answer.clusters != found.nominated:
            found = nominated(*answer.clusters, at=step * 60.0)
    assert found.nominated == order[: min(steps, MOST)]
