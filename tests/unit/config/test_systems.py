from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kube_sync.config import (
    SYSTEMS,
    Metadata,
    Replicate,
    Resource,
    Settings,
    Source,
    System,
    chosen,
    supplied,
    with_builtin,
)
from kube_sync.errors import Misconfigured
from kube_sync.objects import GroupVersionResource
from kube_sync.replicator.projection import configured

FIVE = {"schedulingpolicies", "roles", "rolebindings", "clusterroles", "clusterrolebindings"}
READ = FIVE | {"daemonsets", "priorityclasses"}
RBAC = "rbac.authorization.k8s.io"
_ROLES = f"group: {RBAC}, version: v1, resource: roles"


def _load(text: str) -> Settings:
    return Source("file", {}).load(text.encode())


def _with(*resources: Resource, **replicate: Any) -> Settings:
    found = Replicate(resources=resources, **replicate)
    return with_builtin(Settings(replicate=found, builtin=("scheduling",)))


def _resource(settings: Settings, name: str) -> Resource:
    (found,) = (r for r in settings.replicate.resources if r.name == name)
    return found


@pytest.mark.parametrize("system", SYSTEMS.values(), ids=lambda system: str(system.name))
def test_conditions_that_somebody_wrote_are_nothing_that_a_decision_sees(system: System) -> None:
    """Whoever may write the status of a policy has no say."""
    settings = with_builtin(_load(f"builtin: [{system.name}]"))
    resource = _resource(settings, system.policies.resource)
    policy = {"metadata": {"name": "p"}, "spec": {"a": 1}, "status": {"conditions": []}}
    kept = configured(resource)(msgspec.json.encode(policy))
    assert msgspec.json.decode(kept) == {"metadata": {"name": "p"}, "spec": {"a": 1}}


def test_nothing_is_built_in_by_default() -> None:
    settings = Settings()
    assert with_builtin(settings) == settings
    assert chosen(settings) == ()
    assert supplied(settings) == frozenset()


def test_what_a_system_reads_is_replicated_beside_what_is_named() -> None:
    settings = with_builtin(Settings(builtin=("scheduling",)))
    names = [resource.name for resource in settings.replicate.resources]
    assert names[:2] == ["clusters", "replicasets"]
    assert set(names[2:]) == READ == supplied(settings)


def test_no_more_is_replicated_than_what_decisions_read() -> None:
    settings = with_builtin(Settings(builtin=("scheduling",)))
    paths = {r.name: r.paths for r in settings.replicate.resources if r.name in FIVE}
    assert paths == {
        "schedulingpolicies": (("spec",),),
        "roles": (("rules",),),
        "clusterroles": (("rules",),),
        "rolebindings": (("roleRef",), ("subjects",)),
        "clusterrolebindings": (("roleRef",), ("subjects",)),
    }


def test_of_a_daemonset_only_its_template_is_replicated_and_no_variables_of_its_containers() -> (
    None
):
    settings = with_builtin(Settings(builtin=("scheduling",)))
    paths = _resource(settings, "daemonsets").paths or ()
    assert {path[:2] for path in paths} == {("spec", "template")}
    containers = [path[4:] for path in paths if "containers" in path]
    assert containers == [("resources",)]


def test_namespaces_that_are_chosen_for_others_hide_no_binding() -> None:
    settings = _with(namespaces=("shop",), ignore_namespaces=("kube-system",))
    bindings = _resource(settings, "rolebindings")
    assert settings.replicate.namespaces_of(bindings) == ()
    assert settings.replicate.ignored_of(bindings) == ()


def test_a_system_that_is_named_twice_is_there_once() -> None:
    settings = Settings(builtin=("scheduling", "scheduling"))
    assert [system.name for system in chosen(settings)] == ["scheduling"]


def test_doing_it_twice_is_doing_it_once() -> None:
    once = with_builtin(Settings(builtin=("scheduling",)))
    assert with_builtin(once) == once


def test_whoever_names_a_resource_too_gets_the_fields_of_both() -> None:
    named = Resource(RBAC, "v1", "roles", fields=("metadata.labels", "rules"))
    settings = _with(named)
    assert _resource(settings, "roles").paths == (("metadata", "labels"), ("rules",))


@pytest.mark.parametrize("fields", [None, "all", "auto"])
def test_whoever_names_a_resource_whole_gets_it_whole(fields: Any) -> None:
    settings = _with(Resource(RBAC, "v1", "roles", fields=fields), fields="auto")
    found = _resource(settings, "roles")
    assert found.fields == "all"
    assert not settings.replicate.is_auto(found)


@pytest.mark.parametrize(
    ("replicate", "complaint"),
    [
        ("{root: fleet}", "replicate.root"),
        ("{resources: [{group: g.io, version: v1, resource: roles}]}", "replicate.resources[0]"),
        (
            f"{{resources: [{{{_ROLES}, label_selector: a=b}}]}}",
            "replicate.resources[0]: a part of it",
        ),
        (
            f"{{resources: [{{{_ROLES}}}], ignore_namespaces: [shop]}}",
            "replicate.resources[0]: a part of it",
        ),
    ],
)
def test_what_would_hide_something_from_the_rules_is_refused(
    replicate: str, complaint: str
) -> None:
    with pytest.raises(Misconfigured) as raised:
        _load(f"builtin: [scheduling]\nplacement: {{resources: []}}\nreplicate: {replicate}\n")
    assert str(raised.value).startswith(complaint)


@pytest.mark.parametrize(
    "resource",
    [
        f"{{{_ROLES}, as: mine, label_selector: a=b}}",
        f"{{{_ROLES}}}",
    ],
)
def test_what_hides_nothing_is_taken(resource: str) -> None:
    text = f"placement: {{resources: []}}\nreplicate: {{resources: [{resource}]}}\n"
    assert {
        found.name
        for found in with_builtin(_load(f"builtin: [scheduling]\n{text}")).replicate.resources
    } >= FIVE


def test_a_system_that_nobody_knows_is_told_with_those_that_are_known() -> None:
    with pytest.raises(Misconfigured, match=r"builtin\[0\]: .*known: scheduling"):
        _load("builtin: [quality]")


def test_each_system_has_its_section_and_its_decision() -> None:
    system = SYSTEMS["scheduling"]
    settings = _load("scheduling: {merge_option: 4}")
    assert system.section(settings) == settings.scheduling
    assert system.decision == system.check == "kube_sync/scheduling/decision"
    assert system.policies == GroupVersionResource(
        "policy.kube-sync.io", "v1alpha1", "schedulingpolicies"
    )


def test_metadata_policies_are_all_that_metadata_reads() -> None:
    system = SYSTEMS["metadata"]
    settings = with_builtin(_load("builtin: [metadata]\nmetadata: {qos: false}"))
    assert supplied(settings) == {"metadatapolicies"}
    assert _resource(settings, "metadatapolicies").paths == (("spec",),)
    assert system.section(settings) == Metadata(qos=False)
    assert (system.decision, system.check) == (
        "kube_sync/metadata/pipeline",
        "kube_sync/metadata/checked",
    )


def test_both_systems_may_be_built_in() -> None:
    settings = Settings(builtin=("scheduling", "metadata"))
    assert supplied(settings) == READ | {"metadatapolicies"}
