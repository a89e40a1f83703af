"""A copy says where it is from, and nothing that only the hub can know."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_sync.objects import GroupVersionResource, ObjectKey
from kube_sync.policysync.copies import DIGEST, PolicyId
from kube_sync.policysync.downstream import Downstream, Source, copied, digest
from kube_sync.policysync.feedback_fields import FIELDS
from kube_sync.policysync.naming import format_policy, parse_keys, parse_policy, shorten
from tests.fakes.syncing import (
    AUTH,
    CREATED,
    GATEWAY,
    NS,
    OTHER,
    POLICY,
    copies,
    policy,
    ref,
    source,
)


def body(hub: dict[str, Any] | None = None, *refs: int) -> dict[str, Any]:
    found = copied(source(hub), refs or [0], [GATEWAY], ["c1"], Downstream())
    return dict(found["c1"].body)


def test_a_copy_has_what_the_policy_says_and_where_it_is_from() -> None:
    found = body()
    name = found["metadata"]["annotations"].pop(DIGEST)
    assert found == {
        "apiVersion": "kuadrant.io/v1",
        "kind": "AuthPolicy",
        "metadata": {
            "name": "p",
            "namespace": "kuadrant-my-namespace",
            "labels": {"kube-sync.io/policy-synced": "true"},
            "annotations": {
                "kuadrant.io/policy-synced": "true",
                "kuadrant.io/origin-creation": CREATED,
                "kube-sync.io/policy": "kuadrant.io/v1/authpolicies:my-namespace/p",
                "kube-sync.io/gateways": "my-namespace/my-gateway",
            },
        },
        "spec": {"rules": {"a": 1}, "targetRef": ref()},
    }
    assert name == copies("c1")["c1"].digest


def test_a_copy_has_nothing_that_only_the_hub_knows() -> None:
    full = policy(
        managedFields=[{}],
        ownerReferences=[{}],
        finalizers=["x"],
        deletionTimestamp=CREATED,
        selfLink="/x",
        annotations={
            "kubectl.kubernetes.io/last-applied-configuration": "{}",
            "kuadrant.io/policies-synced": "[]",
            "kuadrant.io/grace-timeout": "1",
            "kube-sync.io/requested": "{}",
            "argocd.argoproj.io/tracking-id": "x",
            "odd": None,
        },
        labels={
            "app.kubernetes.io/managed-by": "Helm",
            "app.kubernetes.io/instance": "hub",
            "objectset.rio.cattle.io/hash": "x",
        },
    )
    assert body({**full, "status": {"conditions": []}}) == body()


def test_other_labels_and_annotations_and_fields_go_along() -> None:
    full = policy(labels={"team": "a"}, annotations={"note": "b"}) | {"data": {"x": 1}}
    found = body(full)
    assert found["metadata"]["labels"]["team"] == "a"
    assert found["metadata"]["annotations"]["note"] == "b"
    assert found["data"] == {"x": 1}


def test_the_section_survives_and_the_namespace_is_that_of_the_spoke() -> None:
    found = body(policy(ref(sectionName="http", namespace="infra")))
    assert found["spec"]["targetRef"] == ref(sectionName="http", namespace="kuadrant-infra")


def test_only_the_references_of_the_spoke_are_kept_in_their_order() -> None:
    hub = policy(ref("a"), ref("r", "HTTPRoute"), ref("b", sectionName="s"))
    assert body(hub, 2, 0)["spec"]["targetRefs"] == [ref("a"), ref("b", sectionName="s")]


def test_a_policy_of_no_namespace_and_of_no_age_has_a_copy_of_none() -> None:
    id_ = PolicyId(GroupVersionResource("", "v1", "authpolicies"), "", "p")
    plain = {"metadata": {"name": "p"}, "spec": {"targetRef": ref()}}
    found = copied(Source(id_, "AuthPolicy", plain, ()), [0], [GATEWAY], ["c1"], Downstream())
    metadata = found["c1"].body["metadata"]
    assert found["c1"].body["apiVersion"] == "v1"
    assert "namespace" not in metadata
    assert "kuadrant.io/origin-creation" not in metadata["annotations"]


def test_copies_of_one_policy_are_equal_on_all_clusters_and_in_every_order() -> None:
    found = copies("c2", "c1")
    assert list(found) == ["c1", "c2"]
    assert found["c1"].body == found["c2"].body
    assert found == copies("c1", "c2")


@pytest.mark.parametrize(
    "change",
    [
        {"spec": {"targetRef": ref(), "rules": {"a": 2}}},
        {"spec": {"targetRef": ref(sectionName="x"), "rules": {"a": 1}}},
        {"metadata": {"labels": {"team": "a"}, "creationTimestamp": CREATED}},
    ],
)
def test_another_policy_is_another_digest(change: dict[str, Any]) -> None:
    assert copies("c", body={**policy(), **change})["c"].digest != copies("c")["c"].digest


def test_what_the_hubs_api_server_notes_is_the_same_digest() -> None:
    later = policy(resourceVersion="99", generation=4, uid="u-2") | {"status": {"x": 1}}
    assert copies("c", body=later)["c"].digest == copies("c")["c"].digest


def test_another_feedback_or_gateway_is_another_digest() -> None:
    less = Source(POLICY, "AuthPolicy", policy(), FIELDS[1:])
    other = copied(source(), [0], [OTHER], ["c"], Downstream())["c"]
    fewer = copied(less, [0], [GATEWAY], ["c"], Downstream())["c"]
    assert len({other.digest, fewer.digest, copies("c")["c"].digest}) == 3


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=3), JSON))
def test_a_copy_read_back_has_the_digest_that_it_says(spec: dict[str, Any]) -> None:
    """An API server drops what is null, writes 1.0 as 1, and keeps no order of fields."""
    copy = copies("c", body={**policy(), "spec": {**spec, "targetRef": ref()}})["c"]

    def behind(value: Any) -> Any:
        if isinstance(value, dict):
            kept = {k: behind(v) for k, v in reversed(value.items())}
            return {k: v for k, v in kept.items() if v is not None}
        if isinstance(value, list):
            return [behind(one) for one in value]
        return float(value) if type(value) is int else value

    read = behind({**copy.body, "metadata": {**copy.body["metadata"], "creationTimestamp": None}})
    assert digest(read, copy.feedback) == copy.digest
    assert read["metadata"]["annotations"][DIGEST] == copy.digest


def test_a_digest_of_what_has_no_metadata_is_one_nevertheless() -> None:
    assert digest({"metadata": "x"}, ()) != digest({"metadata": {"annotations": 1}}, ())


@given(st.text("ab-", min_size=1, max_size=90), st.text("ab-", min_size=1, max_size=90))
def test_two_namespaces_never_become_one(one: str, other: str) -> None:
    there = Downstream()
    assert len(there.namespace(f"n{one}")) <= 63
    assert (there.namespace(one) == there.namespace(other)) == (one == other)


def test_a_name_that_is_long_ends_with_a_digest_of_all_of_it() -> None:
    long = "a" * 80
    assert len(shorten(long, 63)) == 63
    assert shorten(long, 63) != shorten(long + "b", 63)
    assert shorten("ab", 63) == "ab"
    assert shorten("ab", 63, always="x") != shorten("ab", 63, always="y")
    assert shorten("a." * 40, 19)[:3] == "a-" + shorten("a." * 40, 19)[2]


NAMES = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,9}[a-z0-9])?", fullmatch=True)


@given(st.just("") | NAMES, NAMES, NAMES, st.just("") | NAMES, NAMES)
def test_a_policy_is_read_as_it_was_spelt(g: str, v: str, r: str, ns: str, name: str) -> None:
    id_ = PolicyId(GroupVersionResource(g, v, r), ns, name)
    assert parse_policy(format_policy(id_)) == id_


@pytest.mark.parametrize(
    "text",
    [
        "",
        "p",
        "kuadrant.io/v1/authpolicies",
        "kuadrant.io/v1/authpolicies:p",
        "kuadrant.io/v1/authpolicies:a/b/c",
        "kuadrant.io/v1/authpolicies:a/..",
        "kuadrant.io/v1/authpolicies:../b",
        "kuadrant.io/v1/auth.policies:a/b",
        "kuadrant.io/V1/authpolicies:a/b",
        "../v1/authpolicies:a/b",
        "kuadrant.io/v1/authpolicies:a/b?x",
    ],
)
def test_what_could_lead_elsewhere_spells_no_policy(text: str) -> None:
    assert parse_policy(text) is None


def test_gateways_are_read_as_they_were_spelt_or_not_at_all() -> None:
    assert parse_keys(f"{GATEWAY},{OTHER}") == {GATEWAY, OTHER}
    assert parse_keys(f"{GATEWAY},x") == frozenset()
    assert parse_keys("") == frozenset()


def test_where_a_policy_lies_is_in_its_identity() -> None:
    assert PolicyId(AUTH, NS, "p") == POLICY
    assert ObjectKey(NS, "my-gateway") == GATEWAY


@given(st.from_regex(r"[a-z]{1,70}(-[0-9a-f]{16})?", fullmatch=True), st.integers(24, 63))
def test_no_name_is_that_of_another_that_was_cut(name: str, most: int) -> None:
    short = shorten(name, most)
    assert len(short) <= most
    assert shorten(short, most) != short or short == name


def test_a_namespace_that_looks_cut_is_not_that_of_one_that_was() -> None:
    below = Downstream()
    long = below.namespace("a" * 63)
    assert below.namespace(long.removeprefix("kuadrant-")) != long
    assert below.namespace("shop-20261122") == "kuadrant-shop-20261122"
