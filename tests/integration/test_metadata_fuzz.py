"""The decisions about whatever JSON comes: always defined, and settled after the first pass."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fakes.rego import RegoOpa, rego_opa
from tests.integration.test_metadata_cases import patched
from tests.parts import examples
from tools.servers.running import Launcher

ENTRIES = (
    "kube_sync.metadata.decision",
    "kube_sync.metadata.pipeline",
    "kube_sync.metadata.checked",
    "kube_sync.qos.decision",
)
_NAMES = ["a", "b", "kind", "Pod", "v1", "ns", "CREATE", "UPDATE", "1Gi", "x", "In", "NotIn"]
_KEYS = [
    *("operation", "namespace", "kind", "object", "oldObject", "metadata", "labels", "spec"),
    *("annotations", "containers", "initContainers", "resources", "limits", "requests", "cpu"),
    *("group", "apiVersion", "subResource", "deletionTimestamp", "rules", "policyPredicate"),
    *("policyAction", "labelSelector", "matchLabels", "matchExpressions", "values", "reject"),
]
_scalars = st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from(_NAMES)
_json = st.recursive(
    _scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_KEYS), inner, max_size=4)
    ),
    max_leaves=12,
)
_maps = st.dictionaries(st.sampled_from("abcd"), st.sampled_from("123"), max_size=3)
_metadata = st.fixed_dictionaries({}, optional={"labels": _maps | _json, "annotations": _maps})
_objects = st.fixed_dictionaries(
    {}, optional={"metadata": _metadata | _json, "spec": _json, "kind": st.just("Pod")}
)
_requests = _json | st.fixed_dictionaries(
    {"operation": st.sampled_from(["CREATE", "UPDATE"]), "namespace": st.just("ns")},
    optional={
        "kind": st.sampled_from(
            [
                {"group": "", "version": "v1", "kind": "Pod"},
                {"group": "policy.kube-sync.io", "version": "v1alpha1", "kind": "MetadataPolicy"},
            ]
        )
        | _json,
        "object": _objects | _json,
        "oldObject": _json,
    },
)
_expressions = st.builds(
    lambda key, operator, values: {
        "key": key,
        "operator": operator,
        **({"values": values} if operator in ("In", "NotIn") else {}),
    },
    st.sampled_from("abcd"),
    st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist"]),
    st.lists(st.sampled_from("123"), min_size=1, max_size=2),
)
_selectors = st.fixed_dictionaries(
    {}, optional={"matchLabels": _maps, "matchExpressions": st.lists(_expressions, max_size=2)}
)
_rules = st.fixed_dictionaries(
    {
        "policyPredicate": st.fixed_dictionaries(
            {}, optional={"labelSelector": _selectors, "annotationSelector": _selectors}
        ),
        "policyAction": st.fixed_dictionaries(
            {}, optional={"reject": st.booleans(), "updatedLabels": _maps}
        ),
    }
)
_slowly = settings(
    max_examples=examples(200),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


@pytest.fixture(scope="module")
def opa(launcher: Launcher, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RegoOpa]:
    with rego_opa(launcher, tmp_path_factory.mktemp("opa")) as opa:
        yield opa


def policy(name: str, rules: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "ns"}, "spec": {"rules": rules}}


@_slowly
@given(request=_requests, rules=st.lists(_rules | _json, max_size=2) | _json)
def test_decision_is_defined_for_any_json(opa: RegoOpa, request: Any, rules: Any) -> None:
    opa.policies(policy("p", rules))
    for entry in ENTRIES:
        answer = opa.ask(entry, request)
        assert set(answer) == {"allowed", "reasons", "patch", "policies"}
        assert answer["allowed"] or (answer["reasons"] and not answer["patch"])
    report = opa.ask("kube_sync.metadata.validation.report", {"object": request})
    assert set(report) == {"problems", "findings"}


def met(expression: dict[str, Any], found: dict[str, str]) -> bool:
    """Return what Kubernetes says of one requirement (metav1.LabelSelectorRequirement)."""
    key, operator = expression["key"], expression["operator"]
    if operator in ("Exists", "DoesNotExist"):
        return (key in found) is (operator == "Exists")
    return (found.get(key) in expression["values"]) is (operator == "In")


def selects(selector: dict[str, Any], found: dict[str, str]) -> bool:
    given = selector.get("matchLabels", {}).items()
    return given <= found.items() and all(
        met(expression, found) for expression in selector.get("matchExpressions", ())
    )


@_slowly
@given(labels=_maps, annotations=_maps, rules=st.lists(_rules, max_size=4))
def test_rules_do_what_a_plain_reading_says(
    opa: RegoOpa, labels: dict[str, str], annotations: dict[str, str], rules: list[Any]
) -> None:
    opa.policies(policy("p", rules))
    metadata = {"labels": labels, "annotations": annotations}
    request = {"operation": "CREATE", "namespace": "ns", "object": {"metadata": metadata}}
    answer = opa.ask("kube_sync.metadata.decision", request)
    matching = [
        rule["policyAction"]
        for rule in rules
        if selects(rule["policyPredicate"].get("labelSelector", {}), labels)
        and selects(rule["policyPredicate"].get("annotationSelector", {}), annotations)
    ]
    assert answer["allowed"] is not any(action.get("reject") for action in matching)
    if answer["allowed"]:
        wanted = dict(labels)
        for action in matching:
            wanted |= action.get("updatedLabels", {})
        changed = patched(request["object"], answer["patch"])  # type: ignore[arg-type]
        assert changed["metadata"] == {"labels": wanted, "annotations": annotations}


@_slowly
@given(labels=_maps, annotations=_maps, rules=st.lists(_rules, max_size=5))
def test_what_was_admitted_is_not_rejected_for_what_was_set(
    opa: RegoOpa, labels: dict[str, str], annotations: dict[str, str], rules: list[Any]
) -> None:
    opa.policies(policy("p", rules))
    metadata = {"labels": labels, "annotations": annotations}
    request = {"operation": "CREATE", "namespace": "ns", "object": {"metadata": metadata}}
    answer = opa.ask("kube_sync.metadata.pipeline", request)
    if answer["allowed"]:
        made = patched({"metadata": metadata}, answer["patch"])
        found = opa.ask("kube_sync.metadata.checked", request | {"object": made})
        assert (found["allowed"], found["patch"]) == (True, [])


@_slowly
@given(labels=_maps, rules=st.lists(_rules, max_size=5), value=st.sampled_from("123"))
def test_what_nobodys_rule_sets_is_rejected_afterwards_as_before(
    opa: RegoOpa, labels: dict[str, str], rules: list[Any], value: str
) -> None:
    """Of what the rules of the generator look at, they set nothing: it has another name."""
    for rule in rules:
        if "updatedLabels" in rule["policyAction"]:
            rule["policyAction"]["updatedLabels"] = {"elsewhere": value}
    opa.policies(policy("p", rules))
    request = {"operation": "CREATE", "namespace": "ns", "object": {"metadata": {"labels": labels}}}
    before = opa.ask("kube_sync.metadata.decision", request)
    after = opa.ask("kube_sync.metadata.checked", request)
    assert after["allowed"] is before["allowed"]
    if not after["allowed"]:
        assert (after["reasons"], after["policies"]) == (before["reasons"], before["policies"])


def test_mebibyte_of_annotations_is_judged(opa: RegoOpa) -> None:
    opa.policies(
        policy("p", [{"policyPredicate": {}, "policyAction": {"updatedLabels": {"a": "1"}}}])
    )
    metadata = {"annotations": {"large": "x" * 2**20}}
    request = {"operation": "CREATE", "namespace": "ns", "object": {"metadata": metadata}}
    answer = opa.ask("kube_sync.metadata.pipeline", request)
    assert answer["patch"] == [{"op": "add", "path": "/metadata/labels", "value": {"a": "1"}}]
