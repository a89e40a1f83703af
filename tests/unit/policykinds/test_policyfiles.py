"""What may be among the files of `--policies`, and what is said of everything else."""

from __future__ import annotations

from pathlib import Path

import pytest

from kube_sync.admission.metadata.evidence import EXPECTED as METADATA
from kube_sync.admission.scheduling.evidence import EXPECTED as SCHEDULING
from kube_sync.errors import Terminal
from kube_sync.policykinds.policyfiles import Expected, read_policies

OURS = "apiVersion: policy.kube-sync.io/v1alpha1"
POLICY = f"{OURS}\nkind: SchedulingPolicy\nmetadata: {{name: p}}\nspec: {{}}\n"
RBAC = "apiVersion: rbac.authorization.k8s.io"
DEPLOYMENT = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\n"
# As the design document prints them.
FRAGMENT = 'Kind: SchedulingPolicy\nspec:\n  allowed:\n    SchedulerNames: ["green-scheduler"]\n'
SKELETON = "apiVersion: extensions/valpha1\nkind: SchedulingPolicy\nmetadata: {name: my-schedpol}\n"


def read(
    folder: Path, *texts: str, expected: Expected = SCHEDULING, ignore_others: bool = False
) -> list[str]:
    file = folder / "f.yaml"
    file.write_text("---\n".join(texts), encoding="utf-8")
    found = read_policies([str(file)], expected, ignore_others=ignore_others)
    return [f"{one.kind} {one.name()}" for one in found]


def refused(
    folder: Path, *texts: str, expected: Expected = SCHEDULING, ignore: bool = False
) -> str:
    with pytest.raises(Terminal) as error:
        read(folder, *texts, expected=expected, ignore_others=ignore)
    return str(error.value)


def test_policies_and_rights_are_all_read(tmp_path: Path) -> None:
    rights = [
        f"{RBAC}/v1\nkind: {kind}\nmetadata: {{name: r}}\n"
        for kind in ("Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding")
    ]
    assert len(read(tmp_path, POLICY, *rights)) == 5


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (FRAGMENT, '"Kind" has to be written "kind"; apiVersion has to be policy.kube-sync.io'),
        (FRAGMENT, "which is missing; metadata.name is missing"),
        (SKELETON, "apiVersion has to be policy.kube-sync.io/v1alpha1, not extensions/valpha1"),
        (POLICY.replace("v1alpha1", "v1"), "not policy.kube-sync.io/v1"),
        (POLICY.replace("SchedulingPolicy", "SchedulingPolcy"), "kind has to be SchedulingPolicy"),
        (POLICY.replace("SchedulingPolicy", "schedulingpolicies"), "not schedulingpolicies"),
        (POLICY.replace("SchedulingPolicy", "Schedpol"), "not Schedpol"),
        ("spec: {allowed: {tolerations: []}}\n", "kind has to be SchedulingPolicy"),
        (f"Kind: List\nitems:\n- {{{OURS}}}\n", "it looks like a SchedulingPolicy"),
        (f"{RBAC}/v1beta1\nkind: Role\nmetadata: {{name: r}}\n", "apiVersion of a Role has to be"),
        ("kind: ClusterRole\nmetadata: {name: r}\n", "which is missing"),
        (f"{RBAC}/v1\nKind: Role\n", 'it has no kind, but "Kind"'),
    ],
)
@pytest.mark.parametrize("ignore", [False, True])
def test_what_looks_like_a_policy_or_a_right_is_an_error_also_in_mixed_folders(
    tmp_path: Path, text: str, said: str, *, ignore: bool
) -> None:
    message = refused(tmp_path, POLICY, text, ignore=ignore)
    assert message.startswith(f"--policies: {tmp_path}/f.yaml, document 2 (line 6): ")
    assert said in message


@pytest.mark.parametrize(
    "text",
    [
        DEPLOYMENT,
        "replicas: 2\n",
        "- op: remove\n  path: /spec\n",
        "kind: Kustomization\nresources: []\n",
        f"{OURS}\nkind: MetadataPolicy\nmetadata: {{name: m}}\nspec: {{rules: []}}\n",
        f"{OURS}\nkind: PlacementPolicy\nmetadata: {{name: m}}\n",
        "apiVersion: iam.example.org/v1\nkind: Role\nmetadata: {name: r}\n",
    ],
)
def test_other_kinds_are_an_error_unless_they_are_to_be_ignored(tmp_path: Path, text: str) -> None:
    message = refused(tmp_path, POLICY, text)
    assert f"{tmp_path}/f.yaml, document 2" in message
    assert read(tmp_path, POLICY, text, ignore_others=True) == ["SchedulingPolicy p"]


def test_error_about_another_kind_names_the_option_and_what_is_read(tmp_path: Path) -> None:
    message = refused(tmp_path, POLICY, DEPLOYMENT)
    assert "Deployment (apps/v1) is none of SchedulingPolicy, Role, RoleBinding" in message
    assert "--ignore-other-kinds" in message
    assert "kubectl kustomize" in refused(tmp_path, POLICY, "kind: Kustomization\n")


def test_item_of_a_list_is_named_by_its_place(tmp_path: Path) -> None:
    policy = f"{{{OURS}, kind: SchedulingPolicy, metadata: {{name: p}}}}"
    message = refused(tmp_path, f"kind: List\nitems:\n- {policy}\n- {{kind: Pod}}\n")
    assert "f.yaml, item 2: Pod (no apiVersion) is none of " in message


@pytest.mark.parametrize(
    "texts",
    [[], ["---\n"], [DEPLOYMENT], [f"{RBAC}/v1\nkind: Role\nmetadata: {{name: r}}\n"]],
)
def test_files_without_any_policy_are_an_error(tmp_path: Path, texts: list[str]) -> None:
    """An empty pipe, or the wrong folder, would otherwise admit everything."""
    message = refused(tmp_path, *texts, ignore=True)
    assert message == f"--policies: {tmp_path}/f.yaml: there is no SchedulingPolicy in it"


def test_two_policies_of_one_name_are_an_error_unless_they_are_the_same(tmp_path: Path) -> None:
    other = POLICY.replace("{}", "{allowed: {}}")
    message = refused(tmp_path, POLICY, other)
    assert "document 2 (line 6): another SchedulingPolicy p is in " in message
    assert message.endswith("f.yaml, document 1 (line 1)")
    assert read(tmp_path, POLICY, POLICY) == ["SchedulingPolicy p"] * 2


def test_all_documents_that_cannot_be_read_are_listed_up_to_a_number(tmp_path: Path) -> None:
    lines = refused(tmp_path, *[FRAGMENT] * 25).splitlines()
    assert lines[0] == "--policies: 25 documents cannot be read:"
    assert (len(lines), lines[-1]) == (22, "  and 5 more")


@pytest.mark.parametrize(
    "text",
    [
        "Kind: MetadataPolicy\nspec: {}\n",
        "spec:\n  rules:\n  - policyPredicate: {}\n    policyAction: {reject: true}\n",
        "apiVersion: extensions/v1alpha1\nkind: Something\n",
    ],
)
def test_metadata_policies_are_known_by_kind_and_by_shape(tmp_path: Path, text: str) -> None:
    message = refused(tmp_path, text, expected=METADATA, ignore=True)
    assert "it looks like a MetadataPolicy, but is not one: " in message
