"""Whatever is asked and whatever is stored, there is an answer, and junk is never permission."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.parts import examples
from tests.scheduling.engine import GROUP, SchedulingOpa, kubernetes_of, request_for
from tests.scheduling.patching import patched

_HARD = "requiredDuringSchedulingIgnoredDuringExecution"
_SOFT = "preferredDuringSchedulingIgnoredDuringExecution"
_QUIET = settings(
    max_examples=examples(150), suppress_health_check=list(HealthCheck), print_blob=True
)
# Names that the rules know, so that what is made at random gets past the first question.
_NAMES = (
    *("spec", "metadata", "kind", "operation", "object", "namespace", "required", "allowed"),
    *("default", "schedulerNames", "SchedulerNames", "nodeSelectors", "tolerations", "affinities"),
    *("nodeSelector", "affinity", "nodeAffinity", "nodeAffinities", "podAffinity", _HARD, _SOFT),
    *("nodeSelectorTerms", "matchExpressions", "matchFields", "keys", "key", "operators", "values"),
    *("effects", "topologyKeys", "labelSelector", "podAffinityTerm", "preference", "matchLabels"),
    *("CREATE", "UPDATE", "Pod", "SchedulingPolicy", "", "default-scheduler", "Exists", "#", "*"),
)
_TEXTS = st.sampled_from(_NAMES) | st.text(max_size=4)
_LEAVES = st.none() | st.booleans() | st.integers(-2, 5) | _TEXTS
JSON = st.recursive(
    _LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXTS, inner, max_size=4),
    max_leaves=12,
)
RBAC = {
    "clusterRoles": [
        {
            "metadata": {"name": "use"},
            "rules": [{"apiGroups": [GROUP], "resources": ["*"], "verbs": ["use"]}],
        }
    ],
    "clusterRoleBindings": [
        {
            "metadata": {"name": "use"},
            "roleRef": {"kind": "ClusterRole", "name": "use"},
            "subjects": [{"kind": "Group", "name": "system:authenticated"}],
        }
    ],
}
_USER = {"username": "alice", "groups": ["system:authenticated"]}


def policy(name: str, spec: Any) -> dict[str, Any]:
    """Return a SchedulingPolicy."""
    version = f"{GROUP}/v1alpha1"
    return {
        "apiVersion": version,
        "kind": "SchedulingPolicy",
        "metadata": {"name": name},
        "spec": spec,
    }


def pod(spec: Any) -> dict[str, Any]:
    """Return a pod."""
    metadata = {"name": "p", "namespace": "team-a"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def is_an_answer(answer: Any) -> bool:
    """Tell whether all that was promised is there."""
    denied = not answer["allowed"]
    return (
        answer.keys() == {"allowed", "reasons", "patch", "policies"}
        and denied == bool(answer["reasons"])
        and not (denied and answer["patch"])
        and answer["reasons"] == sorted(set(answer["reasons"]))
    )


_RESTRICTED = policy("restricted", {"allowed": {"schedulerNames": ["default-scheduler"]}})
_FIELDS = ("schedulerName", "priorityClassName", "nodeSelector", "tolerations", "affinity")


@pytest.mark.property
def test_any_request_has_an_answer(scheduling_opa: SchedulingOpa) -> None:
    scheduling_opa.load(kubernetes_of([_RESTRICTED], RBAC), {})

    @_QUIET
    @given(request=JSON)
    def answered(request: Any) -> None:
        assert is_an_answer(scheduling_opa.decision(request))

    answered()


@pytest.mark.property
def test_junk_in_a_pod_is_denied_or_says_nothing(scheduling_opa: SchedulingOpa) -> None:
    scheduling_opa.load(kubernetes_of([_RESTRICTED], RBAC), {})

    @_QUIET
    @given(field=st.sampled_from(_FIELDS), junk=JSON)
    def judged(field: str, junk: Any) -> None:
        answer = scheduling_opa.decision(request_for(pod({field: junk}), "CREATE", _USER))
        assert is_an_answer(answer)
        assert not answer["allowed"] or says_nothing(field, junk)

    judged()


def says_nothing(field: str, value: Any) -> bool:
    """Tell whether a pod with this asks for no more than one without."""
    if field == "affinity" and isinstance(value, dict):
        return not any(terms(half) for kind in value.values() for half in (kind or {}).values())
    return value in (None, "", {}, []) or (field, value) == ("schedulerName", "default-scheduler")


def terms(half: Any) -> Any:
    """Return what is asked for in a half of an affinity."""
    return half.get("nodeSelectorTerms") if isinstance(half, dict) else half


@pytest.mark.property
def test_any_policy_is_judged_and_none_that_is_refused_counts(
    scheduling_opa: SchedulingOpa,
) -> None:
    section = st.dictionaries(_TEXTS, JSON, max_size=3)
    specs = JSON | st.dictionaries(st.sampled_from(("required", "allowed", "default")), section)

    @_QUIET
    @given(spec=specs, option=st.integers(1, 4))
    def judged(spec: Any, option: int) -> None:
        stored = policy("junk", spec)
        scheduling_opa.load(kubernetes_of([stored], RBAC), {"merge_option": option})
        refused = scheduling_opa.decision(request_for(stored, "CREATE", _USER))
        problems = scheduling_opa.report(stored)["problems"]
        assert refused["reasons"] == problems
        asked = pod({"schedulerName": "default-scheduler"})
        answer = scheduling_opa.decision(request_for(asked, "CREATE", _USER))
        assert is_an_answer(answer)
        assert answer["policies"] == ([] if problems else ["junk"])
        assert patched(asked, answer["patch"])
        assert scheduling_opa.merged(request_for(asked, "CREATE", _USER)) is not None

    judged()


@pytest.mark.property
def test_any_data_has_an_answer_and_grants_nothing(scheduling_opa: SchedulingOpa) -> None:
    resources = ("schedulingpolicies", "clusterroles", "clusterrolebindings", "rolebindings")

    @_QUIET
    @given(
        data=st.dictionaries(st.sampled_from(resources), JSON, max_size=4) | JSON,
        config=JSON | st.dictionaries(st.sampled_from(("merge_option", "group")), JSON),
    )
    def answered(data: Any, config: Any) -> None:
        scheduling_opa.load(data, config)
        answer = scheduling_opa.decision(request_for(pod({}), "CREATE", _USER))
        assert is_an_answer(answer)
        assert not answer["allowed"]

    answered()
