"""Values of Secrets that policies read although the configuration keeps them out of OPA."""

from __future__ import annotations

from kube_sync.config import Placement, Replicate, Resource, Settings
from kube_sync.opa.analysis.analyzer import PolicyModule, analyze
from kube_sync.opa.analysis.result import Collection, Reads, withheld
from tests.fakes.compiler import reading, tree_of

SECRETS = Resource("", "v1", "secrets")
MAPS = Resource("", "v1", "configmaps")
ROOTS = {name: Collection(("kubernetes", name)) for name in ("secrets", "configmaps")}
BECAUSE = "values of Secrets are replicated only where the configuration says `secrets: true` in"


def reads(*paths: str) -> Reads:
    module = PolicyModule("p.rego", tree_of(reading(*paths)))
    return analyze([module], "io/k8s/federation/admission", ROOTS)


def settings(*resources: Resource, targets: tuple[str, ...] = ()) -> Settings:
    return Settings(
        replicate=Replicate(resources=resources), placement=Placement(resources=targets)
    )


def test_each_value_that_is_read_is_told_with_its_field() -> None:
    found = reads(
        "data.kubernetes.secrets.*.*.data.password",
        "data.kubernetes.secrets.*.*.type",
        "data.kubernetes.configmaps.*.*.data.password",
    )
    (text,) = withheld(found, settings(SECRETS, MAPS))["p.rego"]
    assert text.startswith(f"data.password of secrets is undefined: {BECAUSE}")


def test_value_of_a_secret_that_is_decided_on_is_told_too() -> None:
    found = reads("input.stringData")
    assert withheld(found, settings(SECRETS, targets=("secrets",))).keys() == {"p.rego"}
    assert withheld(found, settings(SECRETS, MAPS, targets=("configmaps",))) == {}


def test_nothing_is_told_where_values_are_allowed() -> None:
    allowed = Resource("", "v1", "secrets", secrets=True)
    assert withheld(reads("data.kubernetes.secrets.*.*.data"), settings(allowed)) == {}


def test_nothing_is_told_of_a_resource_that_was_not_there_when_it_was_analysed() -> None:
    other = Resource("", "v1", "secrets", "hidden")
    assert withheld(reads("data.kubernetes.secrets.*.*.data"), settings(other)) == {}
