"""`kube-sync metadata check`, with the pinned OPA and the Rego of decisions."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml

from kube_sync.config import CONFIG_ENV, fields
from kube_sync.observability import logs
from tests.commandline import kube_sync
from tests.fakes.judging import Judge, judge
from tests.integration.test_pair import ROOT
from tools.servers.binaries import ensure_binary
from tools.servers.errors import ToolError
from tools.servers.kubeapi import KubeApi
from tools.servers.running import Launcher
from tools.servers.stack import RunningStack

QOS = "scheduler.alpha.kubernetes.io/qos"
NAME = "scheduler.alpha.kubernetes.io/name"
LIMITS = {"cpu": "1", "memory": "1Gi"}
RESOURCES = {
    "Guaranteed": {"limits": LIMITS},
    "Burstable": {"requests": LIMITS},
    "BestEffort": {},
}

Json = dict[str, Any]
Check = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def judging(launcher: Launcher, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    with judge(launcher, tmp_path_factory.mktemp("opa")) as running:
        yield running


@pytest.fixture
def check_alone(monkeypatch: pytest.MonkeyPatch) -> Check:
    """Run the command on these objects: status, standard output, standard error."""
    for field in fields():
        monkeypatch.delenv(field.variable, raising=False)
    monkeypatch.delenv(CONFIG_ENV, raising=False)
    monkeypatch.setenv("KUBE_SYNC_OPA_BINARY", str(ensure_binary("opa")))
    monkeypatch.setattr(logs, "configure_logs", lambda _level: None)

    def run(*arguments: str, objects: Any) -> tuple[int, str, str]:
        asked = ("metadata", "check", "-f", "-", "-n", "shop", *arguments)
        found = kube_sync(*asked, stdin=yaml.safe_dump_all(objects))
        return found.returncode, found.stdout, found.stderr

    return run


@pytest.fixture
def check(check_alone: Check, judging: Judge) -> Iterator[Check]:
    """Run it with the OPA that runs."""
    with judging.judging():
        yield check_alone


def config_map(labels: Json | None = None, **more: Any) -> Json:
    metadata = {"name": "it", "labels": labels or {}, **more}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}


def pod(resources: Any, **annotations: str) -> Json:
    metadata = {"name": "web", "annotations": annotations}
    spec = {"containers": [{"name": "c", "image": "nginx", "resources": resources}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def rule(predicate: Json, **action: Any) -> Json:
    return {"policyPredicate": predicate, "policyAction": action}


def labelled(**labels: str) -> Json:
    return {"labelSelector": {"matchLabels": labels}}


def policy(name: str, *rules: Json) -> Json:
    return {
        "apiVersion": "policy.kube-sync.io/v1alpha1",
        "kind": "MetadataPolicy",
        "metadata": {"name": name},
        "spec": {"rules": list(rules)},
    }


@pytest.fixture
def policies(tmp_path: Path) -> Callable[..., tuple[str, str]]:
    """Write policies into a file; return the arguments that name it."""

    def write(*found: Json) -> tuple[str, str]:
        file = tmp_path / "policies.yaml"
        file.write_text(yaml.safe_dump_all(found), encoding="utf-8")
        return "--policies", str(file)

    return write


REJECTING = policy("strict", rule(labelled(bad="yes"), reject=True))


def test_rejection_names_policy_and_rule(check_alone: Check, policies: Any) -> None:
    status, out, err = check_alone(*policies(REJECTING), objects=[config_map({"bad": "yes"})])
    assert (status, err) == (1, "")
    assert out.startswith("ConfigMap it in shop, CREATE: rejected\n")
    assert 'metadata policy "strict", rule 0: rejects objects with label "bad"' in out


def test_what_no_rule_is_about_is_admitted_as_it_is(check: Check, policies: Any) -> None:
    status, out, _ = check(*policies(REJECTING), objects=[config_map({"bad": "no"})])
    assert (status, out) == (0, "ConfigMap it in shop, CREATE: admitted as it is\n")


def test_labels_are_shown_as_they_were_and_will_be(check: Check, policies: Any) -> None:
    setting = policy("p", rule({}, updatedLabels={"tier": "new"}, updatedAnnotations={"a": "b"}))
    status, out, _ = check(*policies(setting), objects=[config_map({"tier": "old"})])
    assert status == 0
    assert '  label tier: "old" → "new" (metadata policy "p", rule 0)\n' in out
    assert '  annotation a: none → "b" (metadata policy "p", rule 0)\n' in out


def test_rules_that_disagree_are_shown_with_the_one_that_counts(
    check: Check, policies: Any
) -> None:
    found = [policy(name, rule({}, updatedLabels={"tier": name})) for name in ("a", "b")]
    status, out, _ = check(*policies(*found), "-o", "json", objects=[config_map()])
    (entry,) = json.loads(out)["objects"]
    assert (status, entry["changes"][0]["after"]) == (0, "b")
    assert [one["value"] for one in entry["conflicts"][0]["settings"]] == ["a", "b"]
    reports = json.loads(out)["reports"]
    assert "ConflictingValues" in reports["shop/a"]["findings"][0]


@pytest.mark.parametrize("quality", RESOURCES)
def test_scheduler_is_chosen_by_quality_of_service(
    check: Check, policies: Any, quality: str
) -> None:
    found = [
        policy(
            name.lower(),
            rule(
                {"annotationSelector": {"matchLabels": {QOS: name}}},
                updatedAnnotations={NAME: f"{name.lower()}-scheduler"},
            ),
        )
        for name in RESOURCES
    ]
    lying = pod(RESOURCES[quality], **{QOS: "Guaranteed" if quality != "Guaranteed" else "x"})
    status, out, _ = check(*policies(*found), "-o", "json", objects=[lying])
    (entry,) = json.loads(out)["objects"]
    assert status == 0
    assert {c["key"]: (c["after"], c["by"]) for c in entry["changes"]} == {
        QOS: (quality, "quality of service"),
        NAME: (f"{quality.lower()}-scheduler", f'metadata policy "{quality.lower()}", rule 0'),
    }


def test_pod_whose_class_cannot_be_told_is_rejected(check: Check, policies: Any) -> None:
    bad = pod({"limits": {"cpu": "much"}})
    status, out, _ = check(*policies(REJECTING), objects=[bad])
    assert status == 1
    assert "quality of service: spec.containers[0].resources.limits.cpu" in out


def test_documents_and_lists_and_what_they_make_are_judged_each(
    check: Check, policies: Any
) -> None:
    template = {"metadata": {"labels": {"bad": "yes"}}, "spec": {"containers": []}}
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}}
    objects = [
        {"apiVersion": "v1", "kind": "List", "items": [config_map(), config_map({"bad": "yes"})]},
        deployment | {"spec": {"template": template}},
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}},
    ]
    status, out, _ = check(*policies(REJECTING), objects=objects)
    assert status == 1
    assert [block.splitlines()[0] for block in out.split("\n\n")] == [
        "ConfigMap it in shop, CREATE: admitted as it is",
        "ConfigMap it in shop, CREATE: rejected",
        "Deployment d in shop, CREATE: admitted as it is",
        "ReplicaSets of Deployment d in shop, CREATE: rejected",
        "pods of Deployment d in shop, CREATE: rejected",
        "Namespace shop, of the cluster, CREATE: admitted as it is",
    ]


def test_what_is_being_deleted_is_let_go(check: Check, policies: Any, tmp_path: Path) -> None:
    bad, file = config_map({"bad": "yes"}), tmp_path / "old.json"
    file.write_text(json.dumps(config_map({"bad": "yes"})))
    asked = (*policies(REJECTING), "--old", str(file))
    assert check(*asked, objects=[bad])[0] == 1
    leaving = config_map({"bad": "yes"}, deletionTimestamp="2026-01-01T00:00:00Z")
    file.write_text(json.dumps(leaving))
    status, out, _ = check(*asked, objects=[bad])
    assert (status, out) == (0, "ConfigMap it in shop, UPDATE: admitted as it is\n")


def test_policy_is_judged_by_no_policy_but_has_to_be_valid(check: Check, policies: Any) -> None:
    wrong = {"labelSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}}
    everything = policy("all", rule({}, reject=True))
    status, out, _ = check(
        *policies(everything), objects=[policy("fine"), policy("p", rule(wrong))]
    )
    assert status == 1
    assert out.startswith("MetadataPolicy fine in shop, CREATE: admitted as it is\n")
    assert "spec.rules[0].policyPredicate.labelSelector" in out


def test_rules_with_faults_are_told_and_apply_to_nothing(check: Check, policies: Any) -> None:
    faulty = policy("p", rule(labelled(), rejekt=True), rule({}, updatedLabels={"a": "b"}))
    status, out, _ = check(*policies(faulty), objects=[config_map()])
    assert status == 0
    assert 'label a: none → "b" (metadata policy "p", rule 1)' in out
    assert "rules that apply to nothing, and why:\n  shop/p: spec.rules[0].policyAction" in out


def test_example_rules_of_the_document_are_followed_by_predicate_and_action(
    check: Check, policies: Any
) -> None:
    """Its glosses of the first two are the wrong way round: X is forbidden, and Y is required."""
    present, absent, unset = (
        {"labelSelector": {"matchExpressions": [{"key": key, "operator": operator}]}}
        for key, operator in (("X", "Exists"), ("Y", "DoesNotExist"), ("Z", "DoesNotExist"))
    )
    adding = {"updatedAnnotations": {"A": "B"}}
    alternatives = [{"annotationSelector": {"matchLabels": {k: v}}} for k, v in ("CD", "EF")]
    found = policy(
        "examples",
        rule(present, reject=True),
        rule(absent, reject=True),
        rule(unset, updatedLabels={"Z": "default"}),
        *(rule(one, **adding) for one in alternatives),
    )
    with_x, without_y = config_map({"X": "1", "Y": "1"}), config_map()
    assert check(*policies(found), objects=[with_x])[0] == 1
    assert check(*policies(found), objects=[without_y])[0] == 1
    status, out, _ = check(
        *policies(found), objects=[config_map({"Y": "1"}, annotations={"E": "F"})]
    )
    assert status == 0
    assert 'label Z: none → "default"' in out
    assert 'annotation A: none → "B"' in out


def test_policy_written_as_the_document_writes_kinds_is_an_error(
    check: Check, tmp_path: Path
) -> None:
    file = tmp_path / "p.yaml"
    file.write_text("Kind: MetadataPolicy\nspec: {rules: []}\n")
    status, out, err = check("--policies", str(file), objects=[config_map()])
    assert (status, out) == (64, "")
    assert 'p.yaml: it looks like a MetadataPolicy, but is not one: "Kind" has to be' in err


def test_quality_of_service_that_is_off_changes_no_pod(
    check: Check, policies: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = (*policies(REJECTING), "-o", "json")
    assert json.loads(check(*asked, objects=[pod({})])[1])["objects"][0]["changes"] != []
    monkeypatch.setenv("KUBE_SYNC_METADATA_QOS", "false")
    assert json.loads(check(*asked, objects=[pod({})])[1])["objects"][0]["changes"] == []


def test_file_that_is_missing_is_neither_answer(check: Check) -> None:
    status, out, err = check("--policies", "none.yaml", objects=[config_map()])
    assert (status, out) == (64, "")
    assert "none.yaml: there is no such folder or file" in err


def test_cluster_and_its_files_say_the_same(
    check: Check,
    policies: Any,
    stack: RunningStack,
    namespace: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("KUBE_SYNC_KUBERNETES_KUBECONFIG", str(stack.kubeconfigs["admin"]))
    stack.install_kinds(ROOT / "manifests/crds")
    asked = ("-n", namespace, "-o", "json")
    arguments = policies(REJECTING, policy("p", rule({}, updatedLabels={"a": "b"})))
    for one in yaml.safe_load_all(Path(arguments[1]).read_text(encoding="utf-8")):
        stack.api.create(one | {"metadata": one["metadata"] | {"namespace": namespace}})
    try:
        for objects in ([config_map()], [config_map({"bad": "yes"})]):
            here = check(*asked, objects=objects)
            assert here[0] in (0, 1)
            assert here == check(*asked, *arguments, objects=objects)
    finally:
        stack.api.delete_all("metadatapolicies", namespace)


def test_cluster_that_refuses_says_what(
    check: Check, stack: RunningStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack.install_kinds(ROOT / "manifests/crds")
    monkeypatch.setenv("KUBE_SYNC_KUBERNETES_KUBECONFIG", str(stack.kubeconfigs["remediator"]))
    remediator = KubeApi(
        stack.apiserver_url, stack.apiserver_ca_file, stack.kube_tokens["remediator"]
    )
    with closing(remediator), pytest.raises(ToolError):
        remediator.get("metadatapolicies")
    status, out, err = check(objects=[config_map()])
    assert (status, out) == (2, "")
    assert "metadatapolicies.policy.kube-sync.io is forbidden" in err
