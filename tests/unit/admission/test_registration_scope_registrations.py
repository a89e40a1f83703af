from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from kube_sync.admission.exemptions import (
    BEING_DELETED,
    OWN_POLICIES,
    QUESTIONS,
    SAME_METADATA,
    SAME_SPEC,
)
from kube_sync.admission.registration_scope import WebhookScope, kept_for, kept_for_placement
from kube_sync.config import SYSTEMS, Admission, Coordination, Settings, System
from kube_sync.config.webhook import Registration
from kube_sync.kube.webhooks import CONFIGURATIONS, VALIDATING, Wish, made_right, ours

ROOT = Path(__file__).resolve().parents[3]
SYSTEM = SYSTEMS["scheduling"]
METADATA = SYSTEMS["metadata"]
MUTATING, CHECKING = kept_for(SYSTEM, Settings())
FILES = ("mutatingwebhookconfiguration.yaml", "validatingwebhookconfiguration.yaml")


def _manifest(file: str, system: System = SYSTEM) -> Any:
    path = ROOT / f"manifests/webhook-{system.name}" / file
    return yaml.safe_load(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("system", "file", "kept"),
    [
        (system, file, kept)
        for system in SYSTEMS.values()
        for file, kept in zip(FILES, kept_for(system, Settings()), strict=True)
    ],
)
def test_the_manifests_are_right_already(system: System, file: str, kept: WebhookScope) -> None:
    manifest = _manifest(file, system)
    wish = Wish(kept.path, None, None, kept.namespaces, kept.conditions)
    assert made_right(manifest, wish) == manifest
    assert manifest["metadata"]["name"] == kept.name
    (webhook,) = ours(manifest, kept.path)
    assert "failurePolicy" not in webhook
    assert webhook["sideEffects"] == "NoneOnDryRun"


def test_what_is_changed_is_checked_again_and_so_are_the_policies() -> None:
    (changing,) = _manifest("mutatingwebhookconfiguration.yaml")["webhooks"]
    (checking,) = _manifest("validatingwebhookconfiguration.yaml")["webhooks"]
    asked = {
        (*rule["resources"], *rule["operations"])
        for webhook in (changing, checking)
        for rule in webhook["rules"]
    }
    assert asked == {
        ("pods", "CREATE"),
        ("pods", "CREATE", "UPDATE"),
        ("daemonsets", "CREATE", "UPDATE"),
        ("schedulingpolicies", "CREATE", "UPDATE"),
    }
    assert changing["reinvocationPolicy"] == "IfNeeded"


def test_every_kind_of_a_namespace_is_asked_about_its_metadata() -> None:
    for file in FILES:
        (webhook,) = _manifest(file, METADATA)["webhooks"]
        (rule,) = webhook["rules"]
        assert rule == {
            "apiGroups": ["*"],
            "apiVersions": ["*"],
            "resources": ["*", "*/status"],
            "operations": ["CREATE", "UPDATE"],
            "scope": "Namespaced",
        }


def test_policies_on_metadata_judge_no_policy_but_each_is_checked() -> None:
    changing, checking = kept_for(METADATA, Settings())
    assert changing.conditions.keys() - checking.conditions.keys() == {OWN_POLICIES}
    assert "'metadatapolicies'" in (changing.conditions[OWN_POLICIES] or "")
    assert {QUESTIONS, BEING_DELETED, SAME_METADATA} < checking.conditions.keys()
    # A label is what they are about, whatever the spec.
    assert SAME_SPEC not in changing.conditions


def _asks_for_the_definition(system: System) -> dict[str, list[str]]:
    return {
        "apiGroups": ["apiextensions.k8s.io"],
        "resources": ["customresourcedefinitions"],
        "resourceNames": [f"{system.policies.resource}.{system.policies.group}"],
        "verbs": ["get"],
    }


@pytest.mark.parametrize("system", SYSTEMS.values())
def test_the_role_is_for_the_registrations_that_are_kept(system: System) -> None:
    changing, checking = kept_for(system, Settings())
    first, second, third = _manifest("admission-clusterrole.yaml", system)["rules"]
    assert third == _asks_for_the_definition(system)
    assert first["resources"] == [system.policies.resource]
    assert first["verbs"] == ["list", "watch"]
    assert second["resourceNames"] == [changing.name] == [checking.name]
    assert second["resources"] == [changing.kind.resource, checking.kind.resource]


@pytest.mark.parametrize("system", SYSTEMS.values())
def test_the_replicators_role_is_for_what_it_replicates(system: System) -> None:
    path = ROOT / f"manifests/{system.name}-rbac/replicator-clusterrole.yaml"
    *rules, status, definition = yaml.safe_load(path.read_text(encoding="utf-8"))["rules"]
    assert definition == _asks_for_the_definition(system)
    assert (status["resources"], status["verbs"]) == (
        [f"{system.policies.resource}/status"],
        ["patch"],
    )
    assert {(g, r) for rule in rules for g in rule["apiGroups"] for r in rule["resources"]} == {
        (resource.group, resource.resource) for resource in system.resources
    }
    assert all(rule["verbs"] == ["list", "watch"] for rule in rules)


def test_what_a_cluster_comes_up_with_is_left_out() -> None:
    settings = Settings(coordination=Coordination("own"))
    for kept in kept_for(SYSTEM, settings):
        assert kept.namespaces == ("kube-system", "own")


def test_a_system_has_one_of_each_kind() -> None:
    assert [(kept.kind, kept.path) for kept in (MUTATING, CHECKING)] == [
        (CONFIGURATIONS, "/admit/scheduling"),
        (VALIDATING, "/validate/scheduling"),
    ]


def test_that_of_placement_has_the_name_that_is_configured() -> None:
    settings = Settings(admission=Admission(registration=Registration("mine")))
    assert [(kept.name, kept.kind, kept.path) for kept in kept_for_placement(settings)] == [
        ("mine", CONFIGURATIONS, "/admit/placement"),
        ("mine", VALIDATING, "/validate/placement"),
    ]
