from __future__ import annotations

import pytest

from kube_sync.errors import Broken
from kube_sync.inspect.plan.candidates import Candidates, put, put_data, unstaged
from kube_sync.kube.placementpolicies import read_policy
from kube_sync.kube.staging import STANDS_FOR
from kube_sync.objects import ObjectKey
from kube_sync.regoversion import in_version, version_of
from tests.unit.inspect.plan.fleets import data_map, item, policy, policy_object

ONE, TWO = ObjectKey("p", "one"), ObjectKey("p", "two")
POLICIES = {
    ONE: {"p/one/a.rego": "old a", "p/one/b.rego": "old b"},
    TWO: {"p/two/b.rego": "old b of two"},
}
NEW = ObjectKey("", "candidates")


def test_configmap_takes_the_place_of_all_modules_of_its_name() -> None:
    edited = put(Candidates([("f.yaml", ONE, {"p/one/c.rego": "new"})]), POLICIES)
    assert edited.policies == {ONE: {"p/one/c.rego": "new"}, TWO: POLICIES[TWO]}
    assert edited.changed == {ONE}
    assert edited.names == {"p/one/c.rego": "f.yaml (p/one/c.rego)"}


@pytest.mark.parametrize(
    ("path", "key", "policy_id"),
    [
        ("a.rego", ONE, "p/one/a.rego"),
        ("two/b.rego", TWO, "p/two/b.rego"),
        ("deep/p/one/b.rego", ONE, "p/one/b.rego"),
        ("c.rego", NEW, "candidates/c.rego"),
        ("xa.rego", NEW, "candidates/xa.rego"),
    ],
)
def test_file_of_rego_stands_for_the_module_that_its_path_ends_with(
    path: str, key: ObjectKey, policy_id: str
) -> None:
    edited = put(Candidates((), {f"dir/{path}": (path, "new")}), POLICIES)
    assert edited.policies[key][policy_id] == "new"
    assert edited.changed == {key}
    assert edited.names == {policy_id: f"dir/{path}"}
    assert POLICIES[ONE]["p/one/a.rego"] == "old a"


def test_file_that_may_stand_for_two_modules_stands_for_none() -> None:
    with pytest.raises(Broken, match=r"d/b.rego: may stand for p/one/b.rego or p/two/b.rego"):
        put(Candidates((), {"d/b.rego": ("b.rego", "new")}), POLICIES)


def test_data_takes_the_place_of_the_data_of_its_name() -> None:
    old, new = item(data_map("limits", most="3")), item(data_map("limits", most="4"))
    others = [item(data_map("zones")), item(policy()), item(policy_object(name="limits"))]
    assert put_data(Candidates(data=[("f.yaml", new)]), [old, *others]) == [*others, new]
    assert put_data(Candidates(data=[("f.yaml", new)]), others) == [*others, new]


def test_data_that_is_no_json_or_is_there_twice_is_said_by_name() -> None:
    wrong, twice = item(data_map("limits", most="{")), item(data_map("limits", most="3"))
    with pytest.raises(Broken) as caught:
        put_data(Candidates(data=[("f.yaml", wrong), ("g.yaml", twice)]), [])
    first, second = str(caught.value).splitlines()
    assert first.startswith("f.yaml: most: not JSON: ")
    assert second == "g.yaml: another candidate stands for ConfigMap teams/limits too"


def test_two_candidates_for_one_policy_are_said_by_name() -> None:
    maps = [("f.yaml", ONE, {"p/one/c.rego": "1"}), ("g.yaml", ONE, {"p/one/c.rego": "2"})]
    with pytest.raises(Broken, match=r"g.yaml: another candidate stands for ConfigMap p/one too"):
        put(Candidates(maps), POLICIES)
    files = {"d/a.rego": ("a.rego", "1"), "e/a.rego": ("a.rego", "2")}
    with pytest.raises(Broken, match=r"e/a.rego: d/a.rego stands for p/one/a.rego too"):
        put(Candidates((), files), POLICIES)


def test_instead_leaves_nothing_but_the_candidates() -> None:
    edited = put(Candidates((), {"d/a.rego": ("a.rego", "new")}, instead=True), POLICIES)
    assert edited.policies == {NEW: {"candidates/a.rego": "new"}}


@pytest.mark.parametrize("name", ["one", "p/one"])
def test_policy_that_leaves_is_named_with_its_namespace_or_without(name: str) -> None:
    edited = put(Candidates(removed=(name,)), POLICIES)
    assert edited.policies == {TWO: POLICIES[TWO]}
    assert edited.changed == frozenset()


def test_policy_that_leaves_is_one_that_exists() -> None:
    also = {**POLICIES, ObjectKey("q", "one"): {}}
    with pytest.raises(Broken) as raised:
        put(Candidates(removed=("one", "three")), also)
    assert str(raised.value).splitlines() == [
        "--remove-policy: one may be p/one or q/one: say which",
        "--remove-policy: there is no policy three",
    ]


def test_staged_configmap_stands_for_the_one_that_it_names_or_is_named_after() -> None:
    label = {"kube-sync.io/stage": "candidate"}
    named = policy(name="x", labels=label, annotations={STANDS_FOR: "placement"})
    after = policy(name="placement-candidate", labels=label)
    keys = [found.key.name for p in (named, after) if (found := unstaged(item(p))) is not None]
    assert keys == ["placement", "placement"]
    assert unstaged(item(policy(labels={"kube-sync.io/stage": "live"}))) is None


def test_staged_placementpolicy_stands_for_one_of_its_kind() -> None:
    by_stage = policy_object(name="placement-candidate", stage="candidate")
    by_label = policy_object()
    by_label["metadata"]["labels"] = {"kube-sync.io/stage": "candidate"}
    for staged in (by_stage, by_label):
        found = unstaged(item(staged))
        assert found is not None
        assert found.key.name == "placement"
        assert read_policy(found).counts
    assert unstaged(item(policy_object())) is None
    assert unstaged(item(policy_object(stage="canary"))) is None
    # As for the replicator, the field goes before the label.
    assert unstaged(item({**by_label, "spec": {**by_label["spec"], "stage": "shadow"}})) is None


def test_staged_configmap_that_cannot_be_read_is_said_by_name() -> None:
    with pytest.raises(Broken, match="ConfigMap kube-federation-scheduling-policy/placement"):
        unstaged(item(policy(labels=["no labels"])))


def test_file_of_rego_is_in_the_version_of_what_it_stands_for_unless_it_states_one() -> None:
    old = {ONE: {"p/one/a.rego": in_version("old a", 0), "p/one/b.rego": "b"}}
    stated = in_version(in_version("new", 0), 1)
    for source, version in (("new", 0), (stated, 1)):
        files = {"d/a.rego": ("a.rego", source), "d/c.rego": ("c.rego", "new")}
        edited = put(Candidates((), files), old)
        assert version_of(edited.policies[ONE]["p/one/a.rego"]) == version
        assert version_of(edited.policies[NEW]["candidates/c.rego"]) == 1
    edited = put(Candidates((), {"d/c.rego": ("c.rego", "new")}, rego_version=0), old)
    assert version_of(edited.policies[NEW]["candidates/c.rego"]) == 0
