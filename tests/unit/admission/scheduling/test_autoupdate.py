"""What a default object lacks, by the words of Kubernetes' own reconciliation of roles."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_sync.admission.scheduling.autoupdate import (
    AUTOUPDATE,
    brought_up,
    is_bound_elsewhere,
    is_protected,
)
from kube_sync.admission.scheduling.bootstrap import defaults

GROUP = "policy.kube-sync.io"
BY_NAME = {f"{d.object['kind']}/{d.name}": d.object for d in defaults()}
ROLE = BY_NAME["ClusterRole/sp:restricted"]
BINDING = BY_NAME["ClusterRoleBinding/sp:restricted"]
RESTRICTED = BY_NAME["SchedulingPolicy/restricted"]
PRIVILEGED = BY_NAME["SchedulingPolicy/privileged"]


def changed(wanted: Any, **fields: Any) -> Any:
    """Return an object as it might be found; the API server adds metadata of its own."""
    found = copy.deepcopy(wanted) | fields
    found["metadata"] |= {"uid": "u", "resourceVersion": "7"}
    return found


def rule(*names: str, verbs: Any = ("use",), groups: Any = (GROUP,), **more: Any) -> dict[str, Any]:
    resources = list(more.get("resources", ["schedulingpolicies"]))
    found = {"apiGroups": list(groups), "resources": resources, "verbs": list(verbs)}
    return found | ({"resourceNames": list(names)} if names else {})


@pytest.mark.parametrize("wanted", BY_NAME.values(), ids=BY_NAME)
def test_what_is_as_it_should_be_is_left_as_it_is(wanted: Any) -> None:
    found = changed(wanted)
    assert brought_up(found, wanted) == found


def test_missing_rule_is_added_beside_what_somebody_added() -> None:
    own = rule("mine")
    found = brought_up(changed(ROLE, rules=[own]), ROLE)
    assert found["rules"] == [own, *ROLE["rules"]]
    assert brought_up(changed(ROLE, rules=None), ROLE)["rules"] == ROLE["rules"]


@pytest.mark.parametrize(
    "wider",
    [
        rule("other", "restricted"),
        rule(),
        rule("restricted", verbs=["*"]),
        rule("restricted", groups=["*"]),
        rule("restricted", resources=["*"]),
        rule("restricted", verbs=["get", "use"]),
    ],
    ids=str,
)
def test_rule_that_a_wider_one_covers_is_not_added(wider: Any) -> None:
    found = changed(ROLE, rules=[wider])
    assert brought_up(found, ROLE) == found


@pytest.mark.parametrize(
    "other",
    [
        rule("another"),
        rule("*"),
        rule("restricted", verbs=["get"]),
        rule("restricted", groups=["apps"]),
        rule("restricted", resources=["pods"]),
        {"nonResourceURLs": ["*"], "verbs": ["*"]},
    ],
    ids=str,
)
def test_rule_that_no_other_one_covers_is_added(other: Any) -> None:
    assert brought_up(changed(ROLE, rules=[other]), ROLE)["rules"] == [other, *ROLE["rules"]]


def test_missing_subject_is_added_beside_what_somebody_added() -> None:
    own = {"kind": "ServiceAccount", "namespace": "a", "name": "system:authenticated"}
    found = brought_up(changed(BINDING, subjects=[own]), BINDING)
    assert found["subjects"] == [own, *BINDING["subjects"]]
    assert brought_up(changed(BINDING, subjects=None), BINDING)["subjects"] == BINDING["subjects"]


def test_subject_without_an_api_group_is_the_same_one() -> None:
    """The API server fills it in (rbac/v1 defaults), but an old object may lack it."""
    found = changed(BINDING, subjects=[{"kind": "Group", "name": "system:authenticated"}])
    assert brought_up(found, BINDING) == found


def test_label_and_annotation_that_are_missing_are_added_and_values_kept() -> None:
    found = changed(ROLE)
    found["metadata"]["labels"] = {"kubernetes.io/bootstrapping": "mine", "x": "y"}
    found["metadata"]["annotations"] = None
    metadata = brought_up(found, ROLE)["metadata"]
    assert metadata["labels"] == {"kubernetes.io/bootstrapping": "mine", "x": "y"}
    assert metadata["annotations"] == {AUTOUPDATE: "true"}
    assert metadata["resourceVersion"] == "7"


def test_labels_that_nobody_wants_are_not_added_empty() -> None:
    wanted = ROLE | {"metadata": {"name": "sp:restricted"}}
    assert brought_up(changed(wanted), wanted) == changed(wanted)


@pytest.mark.parametrize(
    ("said", "protected"), [("false", True), ("true", False), ("", False), (None, False)]
)
def test_only_the_word_false_protects(said: str | None, *, protected: bool) -> None:
    found = changed(ROLE)
    found["metadata"]["annotations"] = None if said is None else {AUTOUPDATE: said}
    assert is_protected(found) == protected


def test_binding_of_another_role_is_told() -> None:
    assert not is_bound_elsewhere(changed(BINDING), BINDING)
    elsewhere = changed(BINDING, roleRef=BINDING["roleRef"] | {"name": "another"})
    assert is_bound_elsewhere(elsewhere, BINDING)
    assert not is_bound_elsewhere(changed(ROLE), ROLE)


@pytest.mark.parametrize(
    ("allowed", "expected"),
    [
        ({}, ["default-scheduler"]),
        ({"schedulerNames": ["mine"]}, ["mine", "default-scheduler"]),
        ({"schedulerNames": []}, []),
        ({"schedulerNames": ["default-scheduler", "mine"]}, ["default-scheduler", "mine"]),
        ({"schedulerNames": "wrong"}, ["default-scheduler"]),
    ],
    ids=str,
)
def test_restricted_comes_to_allow_the_default_scheduler(allowed: Any, expected: Any) -> None:
    found = brought_up(changed(RESTRICTED, spec={"allowed": allowed}), RESTRICTED)
    assert found["spec"]["allowed"]["schedulerNames"] == expected


def test_other_spelling_is_not_said_twice() -> None:
    """The API server refuses a policy that has both."""
    spec = {"allowed": {"SchedulerNames": ["mine"]}}
    found = brought_up(changed(RESTRICTED, spec=spec), RESTRICTED)
    assert found["spec"]["allowed"] == {"SchedulerNames": ["mine", "default-scheduler"]}


def test_affinities_in_the_old_place_are_not_said_twice() -> None:
    """A policy that has them in both is refused, and the next default would never come."""
    found = changed(PRIVILEGED, spec={"allowed": {}, "allowedAffinities": {}})
    assert brought_up(found, PRIVILEGED)["spec"] == PRIVILEGED["spec"]
    kept = changed(RESTRICTED, spec={"allowedAffinities": {"nodeAffinities": {}}})
    spec = {"allowed": {"affinities": {"nodeAffinities": {}}, **RESTRICTED["spec"]["allowed"]}}
    assert brought_up(kept, RESTRICTED)["spec"] == spec


def test_privileged_comes_to_allow_everything_again() -> None:
    narrow = {"schedulerNames": ["a"], "nodeSelectors": {"disk": ["ssd"]}, "affinities": {}}
    more = {"required": {"nodeSelectors": {"arch": ["amd64"]}}}
    found = brought_up(changed(PRIVILEGED, spec={"allowed": narrow, **more}), PRIVILEGED)
    assert found["spec"] == PRIVILEGED["spec"] | more
    assert brought_up(changed(PRIVILEGED, spec={}), PRIVILEGED)["spec"] == PRIVILEGED["spec"]


def test_fields_below_fields_are_brought_up_one_by_one() -> None:
    wanted = RESTRICTED | {"spec": {"allowed": {"nodeSelectors": {"disk": ["ssd"], "zone": []}}}}
    allowed = {"nodeSelectors": {"disk": ["hdd"], "zone": ["a"], "mine": ["b"]}}
    found = brought_up(changed(wanted, spec={"allowed": allowed}), wanted)
    selectors = {"disk": ["hdd", "ssd"], "zone": [], "mine": ["b"]}
    assert found["spec"]["allowed"]["nodeSelectors"] == selectors
    everything = changed(wanted, spec={"allowed": {"nodeSelectors": {}}})
    assert brought_up(everything, wanted) == everything


_names = st.lists(st.sampled_from(["restricted", "a", "b"]), max_size=3, unique=True)
_rules = st.lists(st.builds(lambda names: rule(*names), _names), max_size=3)
_subjects = st.lists(
    st.fixed_dictionaries(
        {"kind": st.sampled_from(["User", "Group"]), "name": st.sampled_from(["a", "b"])}
    ),
    max_size=3,
)


@given(rules=_rules, subjects=_subjects, names=_names)
def test_bringing_up_twice_is_bringing_up_once(rules: Any, subjects: Any, names: Any) -> None:
    for wanted, fields in (
        (ROLE, {"rules": rules}),
        (BINDING, {"subjects": subjects}),
        (RESTRICTED, {"spec": {"allowed": {"schedulerNames": names}}}),
    ):
        found = changed(wanted, **fields)
        before = copy.deepcopy(found)
        once = brought_up(found, wanted)
        assert brought_up(once, wanted) == once
        assert found == before
