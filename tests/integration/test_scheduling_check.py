"""`kube-sync scheduling check`, with the pinned OPA and the Rego of decisions."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from kube_sync.config import CONFIG_ENV, fields
from kube_sync.observability import logs
from tests.commandline import kube_sync
from tests.fakes.judging import Judge, judge
from tests.fakes.manifests import build
from tests.integration.test_pair import ROOT
from tools.servers.binaries import ensure_binary
from tools.servers.running import Launcher
from tools.servers.stack import RunningStack

# The folder has its kustomization too.
SHIPPED = ("--policies", "manifests/scheduling", "--ignore-other-kinds")
BUILDER = "system:serviceaccount:team-a:builder"
KUBE_SYSTEM = "system:serviceaccount:kube-system:coredns"
TOLERANT = {"tolerations": [{"key": "a", "operator": "Exists", "effect": "NoSchedule"}]}

Check = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def judging(launcher: Launcher, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    with judge(launcher, tmp_path_factory.mktemp("opa")) as running:
        yield running


@pytest.fixture
def check_alone(monkeypatch: pytest.MonkeyPatch) -> Check:
    """Run the command at the top of the repository: status, standard output, standard error."""
    for field in fields():
        monkeypatch.delenv(field.variable, raising=False)
    monkeypatch.delenv(CONFIG_ENV, raising=False)
    monkeypatch.setenv("KUBE_SYNC_OPA_BINARY", str(ensure_binary("opa")))
    monkeypatch.setattr(logs, "configure_logs", lambda _level: None)
    monkeypatch.chdir(ROOT)

    def run(*arguments: str, **spec: Any) -> tuple[int, str, str]:
        asked = ("scheduling", "check", "-f", "-", *arguments)
        found = kube_sync(*asked, stdin=json.dumps(pod(**spec)))
        return found.returncode, found.stdout, found.stderr

    return run


@pytest.fixture
def check(check_alone: Check, judging: Judge) -> Iterator[Check]:
    """Run it with the OPA that runs."""
    with judging.judging():
        yield check_alone


def pod(**spec: Any) -> dict[str, Any]:
    containers = [{"name": "c", "image": "nginx"}]
    metadata = {"name": "web"}
    document = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}
    return document | {"spec": {"containers": containers, **spec}}


def policy(folder: Path, name: str, spec: dict[str, Any]) -> str:
    """Write a policy that every service account may use; returns the file."""
    rule = {
        "apiGroups": ["policy.kube-sync.io"],
        "resources": ["schedulingpolicies"],
        "resourceNames": [name],
        "verbs": ["use"],
    }
    group = {"kind": "Group", "name": "system:authenticated"}
    rbac = "rbac.authorization.k8s.io"
    documents = [
        {
            "apiVersion": "policy.kube-sync.io/v1alpha1",
            "kind": "SchedulingPolicy",
            "metadata": {"name": name},
            "spec": spec,
        },
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "ClusterRole",
            "metadata": {"name": name},
            "rules": [rule],
        },
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": name},
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": name},
            "subjects": [group | {"apiGroup": rbac}],
        },
    ]
    file = folder / f"{name}.yaml"
    file.write_text(yaml.safe_dump_all(documents), encoding="utf-8")
    return str(file)


def test_plain_pod_is_admitted_by_what_ships(check: Check) -> None:
    status, out, err = check(*SHIPPED)
    assert (status, err) == (0, "")
    assert out.startswith("Pod web as system:serviceaccount:default:default: admitted\n")
    assert "policies: restricted\n" in out
    assert "- default-scheduler" in out


def test_denial_names_field_and_value_and_policies(check_alone: Check) -> None:
    status, out, _ = check_alone(*SHIPPED, **TOLERANT)
    assert status == 1
    assert "spec.tolerations[0]: " in out
    assert "policies considered: restricted" in out


def test_pods_of_kube_system_are_said_to_be_exempt(check: Check) -> None:
    status, out, _ = check(*SHIPPED, "--as", KUBE_SYSTEM, **TOLERANT)
    assert (status, "the namespace kube-system is exempt" in out) == (0, True)


def test_account_that_may_use_privileged_may_do_everything(check: Check, tmp_path: Path) -> None:
    text = (ROOT / "manifests/scheduling/rolebinding-kube-system-privileged.yaml").read_text()
    (tmp_path / "b.yaml").write_text(text.replace("kube-system", "team-a"))
    more = ("--policies", str(tmp_path), "--as", BUILDER)
    status, out, _ = check(*SHIPPED, *more, **TOLERANT)
    assert (status, "policies: privileged, restricted\n" in out) == (0, True)


def test_folder_with_other_kinds_is_an_error_that_says_what_to_do(check: Check) -> None:
    status, out, err = check("--policies", "manifests/scheduling")
    assert (status, out) == (64, "")
    assert "kustomization.yaml: Kustomization (kustomize.config.k8s.io/v1beta1) is none of" in err
    assert "`kubectl kustomize`" in err


def test_defaults_are_shown_as_the_changes_that_they_make(check: Check, tmp_path: Path) -> None:
    spec = {
        "allowed": {"schedulerNames": ["default-scheduler"]},
        "default": {"nodeSelector": {"disk": "ssd"}},
    }
    file = policy(tmp_path, "defaults", spec)
    status, out, _ = check("--policies", file, "-o", "json")
    found = json.loads(out)["pods"][0]
    assert (status, found["merged"]) == (0, spec)
    values = [change["value"] for change in found["patch"]]
    assert {"disk": "ssd"} in values


def test_policies_that_are_not_used_are_told(check: Check, tmp_path: Path) -> None:
    policy(tmp_path, "good", {"allowed": {"schedulerNames": []}})
    policy(tmp_path, "bad", {"required": {"tolerations": [{"key": "a"}]}})
    status, out, _ = check("--policies", str(tmp_path))
    assert status == 0
    assert "policies: good\n" in out
    assert "policies that are not used, and why:\n  bad: spec.required.tolerations" in out


def test_merge_option_of_the_configuration_counts(
    check: Check, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy(tmp_path, "a", {"allowed": {"schedulerNames": ["default-scheduler"]}})
    policy(tmp_path, "b", {"allowed": {"tolerations": []}})
    assert check("--policies", str(tmp_path), **TOLERANT)[0] == 0
    monkeypatch.setenv("KUBE_SYNC_SCHEDULING_MERGE_OPTION", "2")
    assert check("--policies", str(tmp_path), **TOLERANT)[0] == 1


def test_earlier_policy_replaces_a_later_requirement_but_under_option_4(
    check: Check, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As docs/scheduling.md warns."""
    schedulers: dict[str, Any] = {"allowed": {"schedulerNames": []}}
    policy(tmp_path, "m", schedulers | {"required": {"nodeSelectors": {"team": ["a"]}}})
    asked = ("--policies", str(tmp_path))
    assert check(*asked, nodeSelector={"team": "b"})[0] == 1
    policy(tmp_path, "b", schedulers | {"required": {"nodeSelectors": {"team": ["b"]}}})
    assert check(*asked, nodeSelector={"team": "b"})[0] == 0
    assert check(*asked, nodeSelector={"team": "a"})[0] == 1
    monkeypatch.setenv("KUBE_SYNC_SCHEDULING_MERGE_OPTION", "4")
    assert check(*asked, nodeSelector={"team": "b"})[0] == 1


def test_user_counts_only_where_the_configuration_says_so(
    check: Check, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = Path(policy(tmp_path, "mine", {"allowed": {"schedulerNames": []}}))
    file.write_text(file.read_text().replace("system:authenticated", "dev"), encoding="utf-8")
    asked = ("--policies", str(file), "--as", "alice", "--as-group", "dev")
    assert check(*asked)[0] == 1
    monkeypatch.setenv("KUBE_SYNC_SCHEDULING_USER_MAY_USE", "true")
    assert check(*asked)[0] == 0


def test_files_without_any_policy_give_no_answer(check: Check, tmp_path: Path) -> None:
    (tmp_path / "none.yaml").write_text("kind: ConfigMap\napiVersion: v1\n")
    status, out, err = check("--policies", str(tmp_path), "--ignore-other-kinds", **TOLERANT)
    assert (status, out) == (64, "")
    assert "there is no SchedulingPolicy in it" in err


def test_cluster_without_any_policy_admits_every_pod(
    check: Check, stack: RunningStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBE_SYNC_KUBERNETES_KUBECONFIG", str(stack.kubeconfigs["admin"]))
    stack.install_kinds(ROOT / "manifests/crds")
    stack.api.delete_all("schedulingpolicies")
    status, out, _ = check(**TOLERANT)
    assert (status, "there is no SchedulingPolicy: every pod is admitted" in out) == (0, True)


def test_what_a_deployment_would_make_is_judged(check: Check, tmp_path: Path) -> None:
    template = {"spec": TOLERANT}
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}}
    file = tmp_path / "d.json"
    file.write_text(json.dumps(deployment | {"spec": {"template": template}}))
    status, out, _ = check("-f", str(file), *SHIPPED)
    assert status == 1
    assert "Pod web as system:serviceaccount:default:default: admitted" in out
    assert "Deployment d as system:serviceaccount:default:default: denied" in out


def test_cluster_and_its_files_say_the_same(
    check: Check, stack: RunningStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBE_SYNC_KUBERNETES_KUBECONFIG", str(stack.kubeconfigs["admin"]))
    stack.install_kinds(ROOT / "manifests/crds")
    stack.apply(ROOT / "manifests/scheduling")
    try:
        for arguments, spec in (
            ((), {}),
            ((), TOLERANT),
            (("--as", KUBE_SYSTEM), TOLERANT),
        ):
            here = check(*arguments, "-o", "json", **spec)
            assert here[0] in (0, 1)
            assert here == check(*arguments, "-o", "json", *SHIPPED, **spec)
    finally:
        for manifest in build("scheduling"):
            stack.api.remove(manifest)


def test_cluster_that_refuses_says_what(
    check: Check, stack: RunningStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack.install_kinds(ROOT / "manifests/crds")
    monkeypatch.setenv("KUBE_SYNC_KUBERNETES_KUBECONFIG", str(stack.kubeconfigs["remediator"]))
    status, out, err = check()
    assert (status, out) == (2, "")
    assert "schedulingpolicies.policy.kube-sync.io is forbidden" in err


def test_answer_that_nobody_reads_is_no_trouble(launcher: Launcher) -> None:
    assert launcher.form
    program = Path(sys.executable).with_name("kube-sync")
    shipped = " ".join(SHIPPED)
    command = f"{program} scheduling check -f - {shipped} | true"
    environment = {**os.environ, "KUBE_SYNC_OPA_BINARY": str(ensure_binary("opa"))}
    finished = subprocess.run(
        ["/bin/sh", "-c", command],
        input=json.dumps(pod()),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        cwd=ROOT,
        env=environment,
    )
    assert finished.stderr == ""
