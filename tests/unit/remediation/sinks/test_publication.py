from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_sync.decisions.decision import PLACEMENT, Decision
from kube_sync.guard import ADDITION, HISTORY
from kube_sync.guard.additions import Addition, write_addition
from kube_sync.kube.meta import OwnerReference
from kube_sync.kube.ocmdecisions import OCM_PLACEMENT
from kube_sync.kube.placementdecisions import DECISION_INDEX, DECISION_KEY, PLACEMENT_KEY
from kube_sync.kube.slices import Published, Slice
from kube_sync.objects import GroupVersionResource, ObjectKey
from kube_sync.remediation.plan import Current, Nothing, Publish, Step, Unusable, Wanted
from kube_sync.remediation.sinks import publication as slices
from kube_sync.remediation.sinks.forms import Form, OcmForm, SigForm
from kube_sync.remediation.sinks.placement import let_through, named
from kube_sync.remediation.sinks.publication import Slices, Subject, carried_out

WEB = Subject(GroupVersionResource("apps", "v1", "replicasets"), ObjectKey("shop", "web"))


@dataclass(frozen=True)
class Placed:
    """The placement of the resource, as its annotations have it."""

    uid: str
    placement: str | None
    decided: bool = False  # only a decision put it there
    placement_key: str | None = None

    @property
    def current(self) -> Current:
        annotations = {} if self.placement is None else {PLACEMENT: self.placement}
        labels = {} if self.placement_key is None else {PLACEMENT_KEY: self.placement_key}
        ours = frozenset(annotations) if self.decided else frozenset[str]()
        return Current(self.uid, annotations, labels, ours=ours)


@dataclass(frozen=True)
class Publication:
    write: tuple[Slice, ...] = ()
    remove: tuple[Published, ...] = ()
    held: Unusable | None = None


def publish(
    subject: Subject,
    wanted: Wanted | None,
    placed: Placed | None,
    found: Sequence[Published],
    form: Form,
) -> Publication:
    """Publish what the annotations of a resource let through."""
    if placed is None:
        return seen(slices.publish(subject, wanted, None, found, form))
    current = carried_out(placed.current, found)
    passed = let_through(wanted, placed.current, current)
    return seen(slices.publish(subject, passed, current, found, form))


def seen(step: Step) -> Publication:
    if isinstance(step, Unusable):
        return Publication(held=step)
    if isinstance(step, Nothing):
        return Publication()
    assert isinstance(step, Publish)
    assert isinstance(step.content, Slices)
    return Publication(tuple(step.content.write), tuple(step.content.remove))


def preferences(clusters: Iterable[str]) -> str:
    return json.dumps({"clusters": {name: {"weight": 1} for name in clusters}})


def decided(
    text: str | None, reasons: Mapping[str, str] | None = None, policy: str = "p1"
) -> Wanted:
    annotations = {} if text is None else {PLACEMENT: text}
    return Wanted("u", Decision(annotations, reasons=reasons or {}), None, policy)


FLEET = SigForm("fleet")
TOGETHER = OcmForm("argocd")


class Partly(SigForm):
    """There is a ClusterProfile of one cluster only."""

    def locate(self, cluster: str, before: str | None) -> str | None:
        return super().locate(cluster, before) if cluster == "eu" else None


def held_as(slices: Iterable[Slice]) -> list[Published]:
    """Return slices as the API server holds them once they are written."""
    return [
        Published(
            s.key,
            "p",
            "1",
            s.placed,
            s.labels,
            (s.owner,),
            s.choices,
            s.source,
            records=s.records,
        )
        for s in slices
    ]


def published(clusters: Sequence[str], policy: str = "p1") -> list[Published]:
    text = preferences(clusters)
    return held_as(publish(WEB, decided(text, None, policy), Placed("u", text), [], FLEET).write)


def clusters_in(publication: Publication) -> list[str]:
    return [choice.cluster for one in publication.write for choice in one.choices]


def test_a_placement_is_published_for_its_resource() -> None:
    text = preferences(["eu", "us"])
    (only,) = publish(WEB, decided(text, {"eu": "near"}), Placed("u", text), [], FLEET).write
    assert only.placed == "replicasets.apps/web"
    assert only.owner == OwnerReference("apps/v1", "", "web", "u")
    assert (only.key.namespace, only.labels[DECISION_INDEX]) == ("shop", "0")
    assert only.key.name == f"{only.labels[DECISION_KEY]}-0"
    assert only.labels[PLACEMENT_KEY] == only.labels[DECISION_KEY]
    assert [(c.cluster, c.namespace, c.reason) for c in only.choices] == [
        ("eu", "fleet", "near"),
        ("us", "fleet", "selected by p1"),
    ]


def test_an_owner_of_the_core_group_has_the_bare_version() -> None:
    text = preferences(["eu"])
    pods = replace(WEB, gvr=GroupVersionResource("", "v1", "pods"))
    (only,) = publish(pods, decided(text), Placed("u", text), [], FLEET).write
    assert only.owner.api_version == "v1"


def test_a_placement_key_of_the_workload_is_kept() -> None:
    text = preferences(["eu"])
    placed = Placed("u", text, placement_key="job-42")
    (only,) = publish(WEB, decided(text), placed, [], FLEET).write
    assert only.labels[PLACEMENT_KEY] == "job-42"


def test_what_is_as_it_should_be_is_not_written() -> None:
    found = published(["eu"])
    text = preferences(["eu"])
    assert publish(WEB, decided(text), Placed("u", text), found, FLEET) == Publication()


def test_another_policy_that_chooses_the_same_is_no_reason_to_write() -> None:
    found = published(["eu"], policy="p1")
    text = preferences(["eu", "us"])
    (only,) = publish(WEB, decided(text, None, "p2"), Placed("u", text), found, FLEET).write
    assert [c.reason for c in only.choices] == ["selected by p1", "selected by p2"]


def test_a_stream_without_a_digest_still_gives_a_reason() -> None:
    text = preferences(["eu"])
    (only,) = publish(WEB, decided(text, None, ""), Placed("u", text), [], FLEET).write
    assert only.choices[0].reason == "selected by policy"


def test_a_reason_that_changes_or_goes_is_written() -> None:
    text = preferences(["eu"])
    placed = Placed("u", text)
    found = held_as(publish(WEB, decided(text, {"eu": "near"}), placed, [], FLEET).write)
    for reasons, expected in (({"eu": "cheap"}, "cheap"), ({}, "selected by p1")):
        (only,) = publish(WEB, decided(text, reasons), placed, found, FLEET).write
        assert only.choices[0].reason == expected


def test_a_long_reason_is_cut() -> None:
    """A hundred of them are in one object."""
    text = preferences(["eu"])
    (only,) = publish(WEB, decided(text, {"eu": "ü" * 5000}), Placed("u", text), [], FLEET).write
    assert len(only.choices[0].reason.encode()) <= 1024


@pytest.mark.parametrize("has", [None, preferences(["us"])])
def test_what_the_resource_does_not_have_yet_is_not_published(has: str | None) -> None:
    """Or readers would move what a brake holds."""
    found = published(["us"])
    publication = publish(WEB, decided(preferences(["eu"])), Placed("u", has), found, FLEET)
    assert (publication.write, publication.remove) == ((), ())
    assert publication.held == Unusable(
        "not_applied", "the resource does not have what was decided"
    )


@pytest.mark.parametrize(
    "unusable",
    [
        Wanted("u", None, "evaluation error", "p1"),
        Wanted("u", Decision({PLACEMENT: preferences(["us"])}, ("no",)), None, "p1"),
    ],
)
def test_a_failed_decision_leaves_what_is_published(unusable: Wanted) -> None:
    publication = publish(WEB, unusable, Placed("u", preferences(["us"])), published(["eu"]), FLEET)
    assert (publication.write, publication.remove) == ((), ())
    assert publication.held is not None
    assert publication.held.kind == "undecided"


@pytest.mark.parametrize(
    "undecided", [None, Wanted("u", None, None, "p1"), replace(decided(None), uid="earlier")]
)
def test_an_undefined_decision_leaves_what_is_published(undecided: Wanted | None) -> None:
    placed = Placed("u", None)
    assert publish(WEB, undecided, placed, published(["eu"]), FLEET) == Publication()


def test_a_resource_that_is_gone_takes_its_placement_along() -> None:
    found = published(["eu"])
    assert publish(WEB, None, None, found, FLEET) == Publication(remove=tuple(found))


def test_what_was_published_of_an_earlier_resource_of_that_name_goes() -> None:
    found = published(["eu"])
    assert publish(WEB, None, Placed("new", None), found, FLEET) == Publication(remove=tuple(found))


def test_a_recreated_resource_becomes_the_owner() -> None:
    text = preferences(["eu"])
    again = replace(decided(text), uid="new")
    publication = publish(WEB, again, Placed("new", text), published(["eu"]), FLEET)
    assert [one.owner.uid for one in publication.write] == ["new"]
    assert publication.remove == ()


def test_a_placement_that_is_not_decided_any_more_goes_with_the_annotation() -> None:
    found = published(["eu"])
    publication = publish(WEB, decided(None), Placed("u", None), found, FLEET)
    assert publication == Publication(remove=tuple(found))


def test_a_placement_that_its_owner_asks_for_outlives_the_decision() -> None:
    """The workload runs there as before: readers take a PlacementDecision that ends for its end."""
    found = published(["eu"])
    placed = Placed("u", preferences(["eu"]))
    assert publish(WEB, decided(None), placed, found, FLEET) == Publication()


def test_what_is_published_follows_a_placement_that_nobody_decides_any_more() -> None:
    found = published(["eu"])
    placed = Placed("u", preferences(["eu", "us"]))
    (only,) = publish(WEB, decided(None, {"us": "near"}), placed, found, FLEET).write
    assert [(c.cluster, c.reason) for c in only.choices] == [
        ("eu", "selected by p1"),
        ("us", "asked for by the resource itself"),
    ]
    again = decided(preferences(["eu", "us"]), None, "p2")
    (only,) = publish(WEB, again, placed, held_as([only]), FLEET).write
    assert [c.reason for c in only.choices] == ["selected by p1", "selected by p2"]


def test_a_placement_that_nobody_decides_and_that_names_no_clusters_leaves_what_is_published() -> (
    None
):
    placed = Placed("u", preferences(["*"]))
    publication = publish(WEB, decided(None), placed, published(["eu"]), FLEET)
    assert (publication.write, publication.remove) == ((), ())
    assert publication.held is not None
    assert publication.held.kind == "not_named"


def test_a_placement_that_nobody_ever_decided_is_not_published() -> None:
    placed = Placed("u", preferences(["eu"]))
    assert publish(WEB, decided(None), placed, [], FLEET) == Publication()


def test_what_an_earlier_resource_of_that_name_had_is_not_followed() -> None:
    found, placed = published(["eu"]), Placed("new", preferences(["eu"]))
    again = replace(decided(None), uid="new")
    assert publish(WEB, again, placed, found, FLEET) == Publication(remove=tuple(found))


def test_a_placement_of_an_earlier_decision_stays_published_until_the_resource_lacks_it() -> None:
    text = preferences(["eu"])
    placed = Placed("u", text, decided=True)
    publication = publish(WEB, decided(None), placed, published(["eu"]), FLEET)
    assert publication.remove == ()
    assert publication.held is not None


def test_a_cluster_that_may_hold_no_replica_is_not_published() -> None:
    text = json.dumps({"clusters": {"eu": {}, "us": {"maxReplicas": 0}, "asia": {"weight": 0}}})
    publication = publish(WEB, decided(text), Placed("u", text), published(["eu", "us"]), FLEET)
    assert clusters_in(publication) == ["eu"]


def test_an_empty_placement_that_the_resource_has_is_an_empty_slice() -> None:
    text = preferences([])
    (only,) = publish(WEB, decided(text), Placed("u", text), published(["eu"]), FLEET).write
    assert only.choices == ()


def test_clusters_that_are_not_named_one_by_one_are_not_published() -> None:
    text = preferences(["*"])
    publication = publish(WEB, decided(text), Placed("u", text), published(["eu"]), FLEET)
    assert (publication.write, publication.remove) == ((), ())
    assert publication.held is not None
    assert publication.held.kind == "not_named"


def test_a_cluster_without_a_profile_holds_the_whole_placement() -> None:
    text = preferences(["eu", "gone"])
    found = published(["eu", "us"])
    publication = publish(WEB, decided(text), Placed("u", text), found, Partly("fleet"))
    assert publication == Publication(
        held=Unusable("no_profile", "there is no ClusterProfile gone")
    )


def test_a_resource_in_no_namespace_is_not_published() -> None:
    text = preferences(["eu"])
    node = replace(WEB, key=ObjectKey("", "web"))
    publication = publish(node, decided(text), Placed("u", text), [], FLEET)
    assert publication.write == ()
    assert publication.held is not None
    assert publication.held.kind == "no_namespace"


def test_slices_that_are_not_needed_any_more_go() -> None:
    names = [f"c{n:03}" for n in range(101)]
    found = published(names)
    assert len(found) == 2
    text = preferences(names[50:])
    publication = publish(WEB, decided(text), Placed("u", text), found, FLEET)
    assert clusters_in(publication) == names[50:]
    assert publication.remove == (found[1],)


def test_a_slice_that_somebody_deleted_is_written_again() -> None:
    names = [f"c{n:03}" for n in range(150)]
    found = published(names)
    text = preferences(names)
    publication = publish(WEB, decided(text), Placed("u", text), found[1:], FLEET)
    assert [one.key for one in publication.write] == [found[0].key]


def test_a_mark_of_ours_under_a_strange_name_goes() -> None:
    found = published(["eu"])
    strange = replace(found[0], key=ObjectKey("shop", "strange"))
    text = preferences(["eu"])
    publication = publish(WEB, decided(text), Placed("u", text), [*found, strange], FLEET)
    assert publication == Publication(remove=(strange,))


def test_for_ocm_a_cluster_is_its_name() -> None:
    text = preferences(["eu"])
    (only,) = publish(
        WEB, decided(text, {"eu": "near"}), Placed("u", text), [], OcmForm(None)
    ).write
    assert [(c.cluster, c.namespace, c.reason) for c in only.choices] == [("eu", "", "near")]
    assert (only.key.namespace, only.source) == ("shop", None)
    assert only.labels[OCM_PLACEMENT] == only.key.name.removesuffix("-0")


def test_in_one_namespace_the_same_name_of_two_namespaces_is_two_slices() -> None:
    text = preferences(["eu"])
    other = replace(WEB, key=ObjectKey("shop-2", "web"))
    first, second = (
        publish(one, decided(text), Placed("u", text), [], TOGETHER).write[0]
        for one in (WEB, other)
    )
    assert {first.key.namespace, second.key.namespace} == {"argocd"}
    assert (first.source, second.source) == ("shop", "shop-2")
    assert first.key != second.key
    assert first.labels[OCM_PLACEMENT] != second.labels[OCM_PLACEMENT]


def test_for_ocm_a_workload_cannot_join_anothers_placement_by_a_label() -> None:
    text = preferences(["eu"])
    placed = Placed("u", text, placement_key="of-another")
    (only,) = publish(WEB, decided(text), placed, [], TOGETHER).write
    assert "of-another" not in only.labels.values()


def test_in_one_namespace_what_has_no_namespace_is_published_too() -> None:
    text = preferences(["eu"])
    node = replace(WEB, key=ObjectKey("", "web"))
    (only,) = publish(node, decided(text), Placed("u", text), [], TOGETHER).write
    assert (only.key.namespace, only.source) == ("argocd", "")


@pytest.mark.parametrize("wanted", [None, Wanted("u", None, "evaluation error", "p1")])
def test_for_ocm_what_is_not_decided_is_never_an_empty_list(wanted: Wanted | None) -> None:
    """Argo CD would delete its Applications."""
    text = preferences(["eu"])
    found = held_as(publish(WEB, decided(text), Placed("u", text), [], TOGETHER).write)
    for has in (None, text, preferences(["us"])):
        publication = publish(WEB, wanted, Placed("u", has), found, TOGETHER)
        assert (publication.write, publication.remove) == ((), ())


_fleets = st.sets(st.integers(0, 250).map(lambda n: f"c{n:03}"), max_size=250)
_reasons = st.dictionaries(
    st.integers(0, 250).map(lambda n: f"c{n:03}"), st.text(min_size=1), max_size=5
)


@pytest.mark.parametrize("form", [FLEET, TOGETHER], ids=["sig", "ocm"])
@given(before=_fleets, after=_fleets, reasons=_reasons)
def test_publishing_twice_is_publishing_once(
    form: Form, before: set[str], after: set[str], reasons: dict[str, str]
) -> None:
    text = preferences(sorted(after))
    first = preferences(sorted(before))
    slices = publish(WEB, decided(first), Placed("u", first), [], form).write
    found = {one.key: one for one in held_as(slices)}
    decision, placed = decided(text, reasons, "p2"), Placed("u", text)
    publication = publish(WEB, decision, placed, list(found.values()), form)
    found |= {one.key: one for one in held_as(publication.write)}
    for one in publication.remove:
        del found[one.key]
    assert {c.cluster for one in found.values() for c in one.choices} == after
    assert publish(WEB, decision, placed, list(found.values()), form) == Publication()


def leading(wanted: Wanted, found: Sequence[Published], target: Current | None = None) -> Step:
    """Plan the slices of a resource whose annotations say nothing."""
    current = carried_out(target or Current("u", {"other": "x"}), found)
    return slices.publish(WEB, wanted, current, found, FLEET)


def test_what_is_published_is_read_back_as_the_placement_with_its_history() -> None:
    found = published(["us", "eu"])
    target = Current("u", {PLACEMENT: "the owner's"}, {"app": "web"}, "7", idle=True)
    with_history = [replace(found[0], records={HISTORY: "[]"})]
    assert carried_out(target, with_history) == Current(
        "u",
        {PLACEMENT: named(["eu", "us"]), HISTORY: "[]"},
        {"app": "web"},
        "1",
        ours=frozenset([PLACEMENT]),
        idle=True,
    )
    assert carried_out(replace(target, uid="new"), found).annotations == {}
    assert carried_out(target, []).annotations == {}


def test_a_sink_that_leads_changes_the_placement_that_is_published() -> None:
    step = leading(decided(preferences(["us"])), published(["eu"]))
    assert isinstance(step, Publish)
    assert step.annotations == {PLACEMENT: named(["us"])}
    assert clusters_in(seen(step)) == ["us"]


def test_other_weights_of_the_same_clusters_are_no_change() -> None:
    found, weights = published(["eu"]), json.dumps({"clusters": {"eu": {"weight": 7}}})
    assert leading(decided(weights), found) == Nothing()


def test_the_history_that_a_leading_sink_keeps_stays_with_the_first_slice() -> None:
    found = [replace(one, records={HISTORY: "[]"}) for one in published(["eu"])]
    step = leading(decided(preferences(["eu"]), {"eu": "near"}), found)
    assert isinstance(step, Publish)
    assert step.annotations == {PLACEMENT: named(["eu"])}
    assert [one.records for one in seen(step).write] == [{HISTORY: "[]"}]


@pytest.mark.parametrize(("step", "order"), [("added", ["0", "1"]), ("reverted", ["1", "0"])])
def test_an_addition_is_recorded_before_its_clusters_and_its_end_after_them(
    step: Any, order: list[str]
) -> None:
    record = write_addition(Addition("x", 1, ("eu",), step))
    wanted = replace(decided(preferences(map(str, range(101)))), addition=record)
    written = seen(leading(wanted, [])).write
    assert [one.key.name[-1] for one in written] == order
    assert [one.records for one in written if one.key.name.endswith("-0")] == [{ADDITION: record}]


def test_of_a_move_that_adds_first_the_cluster_that_is_gone_stays_in_its_place() -> None:
    gone = Partly("fleet")
    found = published(["us"])
    both = replace(decided(preferences(["eu", "us"])), addition="{}")
    current = carried_out(Current("u", {}), found)
    step = slices.publish(WEB, both, current, found, gone)
    assert clusters_in(seen(step)) == ["eu", "us"]
    held = slices.publish(WEB, replace(both, addition=None), current, found, gone)
    assert isinstance(held, Unusable)


@pytest.mark.parametrize(
    ("wanted", "kind"),
    [
        (Wanted("u", None, "evaluation error", "p1"), "failed"),
        (Wanted("u", None, None, "p1"), "undefined"),
        (Wanted("u", Decision({}, ("no",)), None, "p1"), "errors"),
        (Wanted("u", Decision({PLACEMENT: preferences(["*"])}), None, "p1"), "not_named"),
    ],
)
def test_a_leading_sink_leaves_what_is_published_without_a_usable_decision(
    wanted: Wanted, kind: str
) -> None:
    step = leading(wanted, published(["eu"]))
    assert isinstance(step, Unusable)
    assert step.kind == kind


def test_a_decision_without_a_placement_ends_what_a_leading_sink_published() -> None:
    found = published(["eu"])
    step = leading(decided(None), found)
    assert isinstance(step, Publish)
    assert (step.annotations, seen(step).remove) == ({PLACEMENT: None}, tuple(found))
