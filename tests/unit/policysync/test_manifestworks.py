"""A copy is one ManifestWork that OCM takes, and is found again by what it carries."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from kube_sync.errors import Terminal
from kube_sync.objects import GroupVersionResource, ObjectKey
from kube_sync.policysync.copies import Copy, CopyKey, PolicyId
from kube_sync.policysync.downstream import Downstream, Source, copied
from kube_sync.policysync.manifestworks import LEAVING, MOST, check, placed_of, work_key, work_of
from tests.fakes.syncing import AUTH, GATEWAY, NS, POLICY, copies, policy, ref

Work = dict[str, Any]


def copy() -> Copy:
    return copies("c1")["c1"]


def work() -> Work:
    """Return the work of the copy as it is read from an API server."""
    made: Work = msgspec.json.decode(msgspec.json.encode(work_of(copy())))
    return made


def test_a_work_brings_one_copy_and_asks_back_one_scalar_a_path() -> None:
    made, one = work_of(copy()), copy()
    name = work_key(one).name
    assert made["metadata"] == {
        "name": name,
        "namespace": "c1",
        "labels": {
            "kuadrant.io": "managed",
            "kuadrant.io/manifestKey": name,
            "kube-sync.io/policy-synced": "true",
        },
        "annotations": {
            "kuadrant.io/parent": "my-namespace/p",
            "kube-sync.io/policy": "kuadrant.io/v1/authpolicies:my-namespace/p",
            "kube-sync.io/gateways": "my-namespace/my-gateway",
            "kube-sync.io/digest": one.digest,
        },
    }
    assert made["spec"]["workload"] == {"manifests": [one.body]}
    (config,) = made["spec"]["manifestConfigs"]
    assert config["resourceIdentifier"] == {
        "group": "kuadrant.io",
        "resource": "authpolicies",
        "namespace": "kuadrant-my-namespace",
        "name": "p",
    }
    assert config["updateStrategy"] == {
        "type": "ServerSideApply",
        "serverSideApply": {"force": False, "fieldManager": "work-agent-kube-sync"},
    }
    (rule,) = config["feedbackRules"]
    assert rule["jsonPaths"] == [field._asdict() for field in one.feedback]


EXECUTOR = "kube-sync/kube-sync-policy-sync-spoke"


def test_a_work_names_the_account_that_it_is_carried_out_with() -> None:
    account = {"namespace": "kube-sync", "name": "kube-sync-policy-sync-spoke"}
    subject = {"type": "ServiceAccount", "serviceAccount": account}
    assert work_of(copy(), EXECUTOR)["spec"]["executor"] == {"subject": subject}
    assert "executor" not in work_of(copy())["spec"]


@pytest.mark.parametrize(
    ("made_with", "wanted"),
    [
        (EXECUTOR, EXECUTOR),
        (None, None),
        (None, EXECUTOR),
        (EXECUTOR, None),
        (EXECUTOR, "other/one"),
    ],
)
def test_a_work_with_another_executor_is_put_right(
    made_with: str | None, wanted: str | None
) -> None:
    found = placed_of(work_of(copy(), made_with), wanted)
    assert found is not None
    assert found.digest == (copy().digest if made_with == wanted else "")


def test_a_copy_of_no_namespace_is_identified_without_one() -> None:
    body = {**copy().body, "metadata": {"name": "p"}}
    made = work_of(replace(copy(), body=body))
    (config,) = made["spec"]["manifestConfigs"]
    assert "namespace" not in config["resourceIdentifier"]


def key(kind: str = "AuthPolicy", **policy: Any) -> ObjectKey:
    id_ = POLICY._replace(**policy)
    return work_key(replace(copy(), kind=kind, key=CopyKey(id_, "c1")))


def test_a_work_is_named_after_its_policy_in_the_namespace_of_the_cluster() -> None:
    assert key().namespace == "c1"
    assert key().name.startswith("authpolicy-my-namespace-p-")
    assert key(namespace="", name="a.b").name.startswith("authpolicy-a-b-")


def test_a_policy_in_another_version_keeps_its_work() -> None:
    assert key(gvr=structs.replace(AUTH, version="v2")) == key()


NAMES = st.text("ab-.", max_size=100).map("x{}x".format)


@given(NAMES, NAMES, NAMES, NAMES)
def test_two_policies_never_share_a_work(ns: str, name: str, ns2: str, name2: str) -> None:
    one, other = key(namespace=ns, name=name), key(namespace=ns2, name=name2)
    assert (one == other) == ((ns, name) == (ns2, name2))
    assert len(one.name) <= 63
    assert "." not in one.name
    assert one.name[-1].isalnum()


def test_policies_of_two_groups_never_share_a_work() -> None:
    assert key(gvr=structs.replace(AUTH, group="example.com")) != key()
    assert key(namespace="a-b", name="c") != key(namespace="a", name="b-c")


def of_size(text: str) -> Copy:
    body = {**policy(), "spec": {"targetRef": ref(), "x": text}}
    return copies("c1", body=body)["c1"]


def test_a_work_beyond_what_ocm_takes_is_refused_before_the_call() -> None:
    work_of(of_size("y" * (MOST - 2000)))
    with pytest.raises(Terminal, match=r"bytes of manifests: .* at most 512000"):
        work_of(of_size("y" * MOST))


def test_the_size_is_that_of_what_the_webhook_gets() -> None:
    """Go writes `<` as six bytes."""
    with pytest.raises(Terminal, match="bytes of manifests"):
        work_of(of_size("<" * (MOST // 6)))


@pytest.mark.parametrize(
    ("manifests", "why"),
    [
        ([], "0 bytes of manifests"),
        ([copy().body, copy().body], "AuthPolicy/kuadrant-my-namespace/p: the same object twice"),
        ([{"kind": "X", "metadata": {"generateName": "x"}}], "needs metadata.name"),
        ([{"kind": "X", "metadata": {"name": "x", "generateName": "x"}}], "no generateName"),
        ([{"kind": "X", "metadata": 1}], "cannot be read: metadata: expected a mapping"),
    ],
)
def test_what_the_webhook_of_ocm_refuses_is_refused_before_the_call(
    manifests: list[Work], why: str
) -> None:
    with pytest.raises(Terminal, match=why):
        check(manifests)


def test_several_manifests_are_taken_where_they_differ() -> None:
    check([copy().body, {**copy().body, "kind": "Other"}])


def test_a_work_is_found_again_with_all_that_is_to_be_known_of_it() -> None:
    found = placed_of(work())
    assert found is not None
    assert (found.key, found.digest) == (copy().key, copy().digest)
    assert (found.feedback, found.remove_after) == (None, None)
    assert found.gateways == {GATEWAY}


def test_what_the_api_server_fills_in_is_no_difference() -> None:
    read = work()
    read["metadata"] |= {"uid": "u", "generation": 1, "finalizers": ["x"], "managedFields": []}
    read["spec"]["workload"]["manifests"][0]["metadata"]["creationTimestamp"] = None
    read["spec"]["manifestConfigs"][0]["feedbackScrapeType"] = "Poll"
    assert placed_of(read) == placed_of(work())


@pytest.mark.parametrize(("mark", "at"), [("1700000600", 1700000600.0), ("soon", None), ("", None)])
def test_the_mark_that_it_leaves_is_read(mark: str, at: float | None) -> None:
    read = work()
    read["metadata"]["annotations"][LEAVING] = mark
    found = placed_of(read)
    assert found is not None
    assert found.remove_after == at


MANIFEST = ("spec", "workload", "manifests", 0)
CONFIG = ("spec", "manifestConfigs", 0)
STRATEGY = (*CONFIG, "updateStrategy")


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("spec",), 1),
        ((*MANIFEST, "spec", "rules"), {}),
        ((*MANIFEST, "metadata", "annotations", "kube-sync.io/digest"), "x"),
        (MANIFEST[:-1], [copy().body, {"kind": "X"}]),
        (CONFIG[:-1], []),
        ((*CONFIG, "feedbackRules", 0, "jsonPaths", 0, "path"), ".x"),
        (STRATEGY, {"type": "Update"}),
        ((*STRATEGY, "type"), "CreateOnly"),
        ((*STRATEGY, "serverSideApply", "fieldManager"), "x"),
        (("metadata", "annotations", "kube-sync.io/digest"), "x"),
    ],
)
def test_a_work_that_somebody_edited_carries_another_copy(path: Any, value: Any) -> None:
    read: Any = work()
    place = read
    for part in path[:-1]:
        place = place[part]
    place[path[-1]] = value
    found = placed_of(read)
    assert found is not None
    assert found.digest != copy().digest
    assert found.gateways == {GATEWAY}


@pytest.mark.parametrize(
    "change",
    [
        {"labels": {}},
        {"labels": 1},
        {"labels": {"kube-sync.io/policy-synced": "false"}},
        {"namespace": ""},
        {"namespace": "../x"},
    ],
)
def test_a_work_that_says_not_of_which_policy_is_none_of_ours(change: dict[str, Any]) -> None:
    read = work()
    read["metadata"] |= change
    assert placed_of(read) is None


@pytest.mark.parametrize("manifests", [[], 1, [{}], [{"metadata": {"annotations": 1}}]])
def test_a_work_that_says_nowhere_of_which_policy_is_none_of_ours(manifests: Any) -> None:
    read = work()
    read["metadata"]["annotations"] = {}
    read["spec"]["workload"]["manifests"] = manifests
    assert placed_of(read) is None


@pytest.mark.parametrize(
    "notes",
    [
        {"kube-sync.io/gateways": ""},
        {"kube-sync.io/gateways": "my-namespace/other"},
        {"kube-sync.io/gateways": "my-namespace/my-gateway,my-namespace/other"},
        {"kube-sync.io/policy": "x"},
        {"kube-sync.io/policy": "kuadrant.io/v1/authpolicies:my-namespace/other"},
        {"kube-sync.io/digest": ""},
    ],
)
def test_what_a_work_says_of_itself_is_not_believed_and_put_right(notes: dict[str, str]) -> None:
    """Brakes and placements stand on it: an edit must take no grace from a copy."""
    read = work()
    read["metadata"]["annotations"] |= notes
    found = placed_of(read)
    assert found is not None
    assert (found.key, found.gateways, found.digest) == (copy().key, frozenset([GATEWAY]), "")


@pytest.mark.parametrize("notes", [{}, "x", None])
def test_a_work_without_its_annotations_is_ours_by_its_manifest(notes: Any) -> None:
    read = work()
    read["metadata"]["annotations"] = notes
    found = placed_of(read)
    assert found is not None
    assert (found.key, found.gateways, found.digest) == (copy().key, frozenset([GATEWAY]), "")


def test_of_a_manifest_that_was_edited_both_sayings_are_kept_for() -> None:
    read = work()
    inside = read["spec"]["workload"]["manifests"][0]["metadata"]["annotations"]
    inside["kube-sync.io/gateways"] = "my-namespace/other"
    inside["kube-sync.io/policy"] = "kuadrant.io/v1/authpolicies:my-namespace/other"
    found = placed_of(read)
    assert found is not None
    assert (found.key, found.digest) == (copy().key, "")
    assert found.gateways == {GATEWAY, structs.replace(GATEWAY, name="other")}


def test_a_work_that_is_nested_too_deeply_is_held_and_carries_no_copy() -> None:
    read = work()
    deep: Any = 1
    for _ in range(600):
        deep = {"a": deep}
    read["spec"]["workload"]["manifests"][0]["spec"]["x"] = deep
    found = placed_of(read)
    assert found is not None
    assert (found.key, found.digest) == (copy().key, "")


def test_every_policy_that_can_be_named_is_found_again() -> None:
    id_ = PolicyId(GroupVersionResource("", "v1", "things"), "", "a.b")
    body = {"metadata": {"name": "a.b"}, "spec": {"targetRef": ref()}}
    of_it = copied(Source(id_, "Thing", body, ()), [0], [GATEWAY], ["c2"], Downstream())
    made = work_of(of_it["c2"])
    found = placed_of(made)
    assert found is not None
    assert found.key == CopyKey(id_, "c2")
    assert NS not in made["metadata"]["name"]
