"""`kube-sync scheduling check` on every example of the design document, as printed and mended.

The decisions are those of one OPA that runs; test_scheduling_check.py has the command with its own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from kube_sync.config import CONFIG_ENV, fields
from kube_sync.observability import logs
from tests.commandline import kube_sync
from tests.fakes.judging import Judge, judge
from tests.integration.test_pair import ROOT
from tools.servers.running import Launcher

Json = dict[str, Any]
Check = Callable[..., tuple[int, str, str]]

EXAMPLES: Json = yaml.safe_load(
    (ROOT / "tests/cases/scheduling_examples.yaml").read_text(encoding="utf-8")
)
GROUP = "policy.kube-sync.io"
RBAC = "rbac.authorization.k8s.io"
USED = {"kind": "Group", "apiGroup": RBAC, "name": "system:authenticated"}
RIGHTS: list[Json] = [
    {
        "apiVersion": f"{RBAC}/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "users"},
        "rules": [{"apiGroups": [GROUP], "resources": ["schedulingpolicies"], "verbs": ["use"]}],
    },
    {
        "apiVersion": f"{RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "users"},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "users"},
        "subjects": [USED],
    },
]


@pytest.fixture(scope="module")
def judging(launcher: Launcher, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    with judge(launcher, tmp_path_factory.mktemp("opa")) as running:
        yield running


@pytest.fixture
def check(judging: Judge, monkeypatch: pytest.MonkeyPatch) -> Iterator[Check]:
    """Run the command on these pods: status, standard output, standard error."""
    for field in fields():
        monkeypatch.delenv(field.variable, raising=False)
    monkeypatch.delenv(CONFIG_ENV, raising=False)
    monkeypatch.setattr(logs, "configure_logs", lambda _level: None)

    def run(policies: Path, *specs: Json) -> tuple[int, str, str]:
        asked = ("scheduling", "check", "-f", "-", "--policies", str(policies), "-o", "json")
        found = kube_sync(*asked, stdin=yaml.safe_dump_all(map(pod, specs)))
        return found.returncode, found.stdout, found.stderr

    with judging.judging():
        yield run


def pod(spec: Json) -> Json:
    containers = [{"name": "c", "image": "registry.example/c"}]
    head = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "it"}}
    return {**head, "spec": {"containers": containers, **spec}}


def mended(text: str) -> list[Json]:
    """Return an example with what the error about it asks for, and with a scheduler."""
    return [_mended(one) for one in yaml.safe_load_all(text)]


def _mended(printed: Json) -> Json:
    spec: Json = {name: dict(part or {}) for name, part in printed["spec"].items()}
    if not _names_a_scheduler(spec):
        spec.setdefault("allowed", {})["schedulerNames"] = ["default-scheduler"]
    metadata = {"name": "example", **printed.get("metadata", {})}
    head = {"apiVersion": f"{GROUP}/v1alpha1", "kind": "SchedulingPolicy"}
    return {**head, "metadata": metadata, "spec": spec}


def _names_a_scheduler(spec: Json) -> bool:
    """Tell whether a scheduler is allowed; an empty list is all of them, or no requirement."""
    return any(
        field.lower().startswith("schedulername") and (value or (name, value) == ("allowed", []))
        for name, part in spec.items()
        for field, value in part.items()
    )


@pytest.mark.parametrize("example", EXAMPLES["policies"], ids=lambda one: one["name"])
def test_example_as_printed_is_an_error_that_says_what_to_write(
    check: Check, tmp_path: Path, example: Json
) -> None:
    file = tmp_path / "example.yaml"
    file.write_text(example["text"], encoding="utf-8")
    status, out, err = check(file, {})
    assert (status, out) == (64, "")
    assert f"{file}: it looks like a SchedulingPolicy, but is not one: " in err
    assert [part for part in example["said"] if part not in err] == []


@pytest.mark.parametrize("example", EXAMPLES["policies"], ids=lambda one: one["name"])
def test_example_that_is_mended_means_what_the_document_says(
    check: Check, tmp_path: Path, example: Json
) -> None:
    file = tmp_path / "example.yaml"
    file.write_text(yaml.safe_dump_all([*mended(example["text"]), *RIGHTS]), encoding="utf-8")
    status, out, err = check(file, *(one["spec"] for one in example["pods"]))
    assert err == ""
    entries = json.loads(out)["pods"]
    assert [one["allowed"] for one in entries] == [one["allowed"] for one in example["pods"]], out
    assert status == (0 if all(one["allowed"] for one in example["pods"]) else 1)
    for entry, wanted in zip(entries, example["pods"], strict=True):
        assert wanted.get("says", "") in " ".join(entry["reasons"])


@pytest.mark.parametrize("option", [1, 2, 3])
def test_two_policies_of_the_document_are_merged_as_it_prints(
    check: Check, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: int
) -> None:
    file = tmp_path / "example.yaml"
    file.write_text(yaml.safe_dump_all([*mended(EXAMPLES["merging"]["text"]), *RIGHTS]))
    monkeypatch.setenv("KUBE_SYNC_SCHEDULING_MERGE_OPTION", str(option))
    merged = json.loads(check(file, {})[1])["pods"][0]["merged"]
    expected = EXAMPLES["merging"]["merged"][option]
    allowed = {**expected["allowed"], "schedulerNames": ["default-scheduler"]}
    found = {**merged["allowed"], "nodeSelectors": _sets(merged["allowed"]["nodeSelectors"])}
    assert found == {**allowed, "nodeSelectors": _sets(allowed["nodeSelectors"])}
    for section in ("required", "default"):
        assert merged[section] == expected[section]


def _sets(selectors: Json) -> dict[str, set[str]]:
    return {key: set(values) for key, values in selectors.items()}


def test_roles_of_the_document_are_read_and_said_to_grant_nothing(
    check: Check, tmp_path: Path
) -> None:
    """Their API group is the document's, in which no CustomResourceDefinition can be."""
    (restricted,) = [one for one in EXAMPLES["policies"] if one["name"] == "restricted"]
    file = tmp_path / "example.yaml"
    texts = [yaml.safe_dump_all(mended(restricted["text"])), *EXAMPLES["rights"]]
    file.write_text("---\n".join(texts), encoding="utf-8")
    status, out, _ = check(file, {})
    found = json.loads(out)
    assert status == 1
    assert "no SchedulingPolicy may be used" in found["pods"][0]["reasons"][0]
    (finding,) = found["reports"]["ClusterRole sp:restricted"]["findings"]
    assert finding.startswith("rules[0]: grants the use of schedulingpolicies of the API group ext")
    file.write_text(file.read_text(encoding="utf-8").replace("'extensions'", GROUP))
    assert check(file, {})[0] == 0


def test_roles_of_the_document_alone_are_no_policies(check: Check, tmp_path: Path) -> None:
    for text in EXAMPLES["rights"]:
        file = tmp_path / "example.yaml"
        file.write_text(text, encoding="utf-8")
        status, _, err = check(file, {})
        assert (status, "there is no SchedulingPolicy in it" in err) == (64, True)
