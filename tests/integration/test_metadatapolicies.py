"""The CRD of MetadataPolicy on a real API server: what it takes, refuses, keeps and explains."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tools.servers.errors import ToolError
from tools.servers.stack import RunningStack

_CRD = Path(__file__).resolve().parents[2] / "manifests/crds/metadatapolicies.yaml"
_NAME = "metadatapolicies.policy.kube-sync.io"


@pytest.fixture(scope="module", autouse=True)
def _kind(stack: RunningStack) -> Iterator[None]:
    stack.install_kinds(_CRD)
    yield
    stack.api.delete("customresourcedefinitions", _NAME)


def policy(predicate: Any, action: Any, name: str = "p") -> dict[str, Any]:
    return {
        "apiVersion": "policy.kube-sync.io/v1alpha1",
        "kind": "MetadataPolicy",
        "metadata": {"name": name},
        "spec": {"rules": [{"policyPredicate": predicate, "policyAction": action}]},
    }


def requirement(operator: str, **also: Any) -> dict[str, Any]:
    return {"labelSelector": {"matchExpressions": [{"key": "a", "operator": operator, **also}]}}


def create(stack: RunningStack, namespace: str, manifest: dict[str, Any]) -> Any:
    """Create it and return what is stored."""
    metadata = {**manifest["metadata"], "namespace": namespace}
    stack.api.create({**manifest, "metadata": metadata})
    return stack.api.get(_NAME, "p", namespace)


@pytest.mark.parametrize(
    "predicate",
    [
        {},
        {"labelSelector": {}, "annotationSelector": {"matchLabels": {"a": "any thing"}}},
        requirement("In", values=["1"]),
        requirement("NotIn", values=["1", "2"]),
        requirement("Exists"),
        requirement("DoesNotExist", values=[]),
    ],
)
def test_valid_policy_is_stored(stack: RunningStack, namespace: str, predicate: Any) -> None:
    stored = create(stack, namespace, policy(predicate, {"reject": True}))
    assert stored["spec"]["rules"][0]["policyPredicate"] == predicate


@pytest.mark.parametrize(
    ("predicate", "said"),
    [
        (requirement("In"), "In and NotIn need at least one value"),
        (requirement("NotIn", values=[]), "In and NotIn need at least one value"),
        (requirement("Exists", values=["1"]), "Exists and DoesNotExist take no values"),
        (requirement("DoesNotExist", values=["1"]), "Exists and DoesNotExist take no values"),
        (requirement("Is", values=["1"]), "Unsupported value"),
        ({"annotationSelector": {"matchLabels": {"a": 1}}}, "Invalid value"),
    ],
)
def test_selector_that_kubernetes_refuses_is_refused(
    stack: RunningStack, namespace: str, predicate: Any, said: str
) -> None:
    with pytest.raises(ToolError, match=said):
        create(stack, namespace, policy(predicate, {"reject": True}))


def test_rule_without_a_predicate_is_refused(stack: RunningStack, namespace: str) -> None:
    """It would be for every object, which nobody says by leaving something out."""
    manifest = policy({}, {"reject": True})
    del manifest["spec"]["rules"][0]["policyPredicate"]
    with pytest.raises(ToolError, match="policyPredicate: Required value"):
        create(stack, namespace, manifest)


def test_misspelt_selector_is_kept_for_validation_to_name(
    stack: RunningStack, namespace: str
) -> None:
    stored = create(stack, namespace, policy({"labelSelecter": {}}, {"reject": True}))
    assert stored["spec"]["rules"][0]["policyPredicate"] == {"labelSelecter": {}}


def test_status_has_conditions_of_its_own(stack: RunningStack, namespace: str) -> None:
    create(stack, namespace, policy({}, {"updatedLabels": {"a": "1"}}))
    condition = {
        "type": "Accepted",
        "status": "True",
        "reason": "Valid",
        "message": "",
        "lastTransitionTime": "2026-11-21T00:00:00Z",
    }
    change = {"status": {"conditions": [condition]}}
    stack.api.merge(_NAME, "p", change, namespace, "status")
    printed = stack.kubectl("get", "metapol", "p", f"--namespace={namespace}", "--no-headers")
    assert printed.split()[:2] == ["p", "True"]


@pytest.mark.parametrize(
    ("field", "said"),
    [
        ("spec.rules.policyAction.reject", "rejected and not changed"),
        ("spec.rules.policyPredicate.annotationSelector", "Which annotations the object has"),
        ("spec.rules.policyPredicate.labelSelector.matchExpressions.operator", "DoesNotExist"),
        ("status.conditions", "Accepted"),
    ],
)
def test_fields_are_explained(stack: RunningStack, field: str, said: str) -> None:
    assert said in stack.kubectl("explain", f"metadatapolicies.{field}")
