from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from kube_sync.config import Labelled, Policies, Settings
from kube_sync.errors import Broken, Misconfigured, Retriable, Terminal
from kube_sync.inspect.plan.candidate_files import clusters_of, read_candidates
from kube_sync.inspect.plan.snapshot import document, policies_of
from kube_sync.inspect.plan.sources import exported_line, lines, of_file
from kube_sync.kube.collection import Item, ResourceVersion
from kube_sync.kube.policynames import policy_key
from kube_sync.objects import ObjectKey
from tests.unit.inspect.plan.fleets import (
    FLEET,
    NAMESPACE,
    WORKLOADS,
    cluster,
    data_map,
    item,
    policy,
    policy_object,
    write,
)

APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def line(body: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode(exported_line(item(body)))
    return found


async def test_export_that_is_read_is_exported_again_as_it_is(tmp_path: Path) -> None:
    file = write(tmp_path / "fleet", *FLEET, *WORKLOADS, policy(), policy_object())
    snapshot = await of_file(file, Settings())
    again = tmp_path / "again"
    again.write_text("\n".join(lines(snapshot, Settings())))
    assert again.read_bytes() == Path(file).read_bytes()  # noqa: ASYNC240 - nobody waits
    assert [len(objects) for objects in snapshot.objects.values()] == [3, 3]
    assert snapshot.notes == ()


async def test_export_without_clusters_is_noted(tmp_path: Path) -> None:
    clusters = [one | {"apiVersion": "multicluster.x-k8s.io/v2"} for one in FLEET]
    file = write(tmp_path / "fleet", *clusters, *WORKLOADS)
    (note,) = (await of_file(file, Settings())).notes
    assert note == f"there are no clusterprofiles.v1alpha1.multicluster.x-k8s.io in {file}"


def test_values_of_a_secret_are_not_exported() -> None:
    metadata = {"name": "s", "namespace": "a", "annotations": {APPLIED: "secret", "b": "1"}}
    found = line({"kind": "Secret", "metadata": metadata, "data": {"a": "secret"}})
    assert found == {
        "kind": "Secret",
        "metadata": {"name": "s", "namespace": "a", "annotations": {"b": "1"}},
    }


def test_who_owns_what_is_exported_where_the_remediator_does() -> None:
    ours = [{"manager": "kube-sync-remediator", "operation": "Apply"}]
    others = [{"manager": "kubectl", "operation": "Apply"}]
    for managed, kept in ((ours, ours), (others, None)):
        metadata = {"name": "r", "namespace": "a", "managedFields": managed}
        assert (
            line({"kind": "ReplicaSet", "metadata": metadata})["metadata"].get("managedFields")
            == kept
        )


def test_what_is_no_object_is_said_by_name() -> None:
    odd = Item(ObjectKey("a", "b"), "u", ResourceVersion(""), b'{"metadata":[]}')
    with pytest.raises(Terminal, match="a/b: not a Kubernetes object"):
        exported_line(odd)


async def test_only_configmaps_where_policies_are_count() -> None:
    elsewhere = policy(namespace="elsewhere")
    data = {**policy(name="words"), "data": {"README": "words"}}
    maps = [item(one) for one in (policy(), elsewhere, data)]
    assert [str(key) for key in await policies_of(maps, Policies())] == [f"{NAMESPACE}/placement"]


async def test_active_placementpolicies_where_policies_are_count_beside_configmaps() -> None:
    elsewhere = policy_object(namespace="elsewhere")
    staged = policy_object(name="staged", stage="shadow")
    found = await policies_of(
        [item(one) for one in (policy(), policy_object(), elsewhere, staged)], Policies()
    )
    assert {str(key): list(one.modules) for key, one in found.items()} == {
        f"{NAMESPACE}/placement": [f"{NAMESPACE}/placement/policy.rego"],
        f"{NAMESPACE}/placement.PlacementPolicy": [
            f"{NAMESPACE}/placement.PlacementPolicy/policy.rego"
        ],
    }


async def test_placementpolicy_that_cannot_be_read_is_said_by_name() -> None:
    with pytest.raises(Retriable, match=rf"PlacementPolicy {NAMESPACE}/placement cannot be read"):
        await policies_of([item(policy_object(modules=7))], Policies())


async def test_candidate_may_be_a_placementpolicy(tmp_path: Path) -> None:
    file = write(tmp_path / "p.json", policy_object("package a", stage="candidate"))
    (found,) = (await read_candidates([file], (), Policies(), instead=False)).maps
    module = f"{NAMESPACE}/placement.PlacementPolicy/policy.rego"
    assert found[1:] == (policy_key(ObjectKey(NAMESPACE, "placement")), {module: "package a"})
    shadow = write(tmp_path / "s.json", policy_object("package a", stage="shadow"))
    with pytest.raises(Broken, match=r"PlacementPolicy .*/placement would be no policy.* not act"):
        await read_candidates([shadow], (), Policies(), instead=False)


async def test_label_makes_a_policy_where_labels_count() -> None:
    label = {"openpolicyagent.org/policy": "rego"}
    maps = [
        item(policy(namespace="a", name="with", labels=label)),
        item(policy(namespace="a", name="without")),
    ]
    found = await policies_of(maps, Policies(labelled=Labelled(namespaces=("*",))))
    assert [str(key) for key in found] == ["a/with"]


def test_objects_lie_in_the_document_as_in_opa() -> None:
    bodies = {"nodes": {ObjectKey("", "n"): b"1"}, "sets": {ObjectKey("a", "s"): b"2"}}
    assert msgspec.json.decode(document("kubernetes", bodies)) == {
        "kubernetes": {"nodes": {"n": 1}, "sets": {"a": {"s": 2}}},
        "kube_sync": {"epoch": {"plan": "loaded"}},
    }


async def test_folder_of_candidates_may_hold_rego_and_manifests_and_others(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a.rego").write_text("package a")
    (tmp_path / "sub" / "a_test.rego").write_text("package a_test")
    write(tmp_path / "cm.json", policy())
    write(tmp_path / "other.json", WORKLOADS[0])
    found = await read_candidates([str(tmp_path)], (), Policies(), instead=False)
    assert [(file, str(key)) for file, key, _ in found.maps] == [
        (str(tmp_path / "cm.json"), f"{NAMESPACE}/placement")
    ]
    assert found.files == {str(tmp_path / "sub" / "a.rego"): ("sub/a.rego", "package a")}


async def test_candidate_file_that_holds_no_policy_is_said_by_name(tmp_path: Path) -> None:
    none = write(tmp_path / "none.json", WORKLOADS[0])
    elsewhere = write(tmp_path / "elsewhere.json", policy(namespace="elsewhere"))
    for file, said in (
        (none, "there is no ConfigMap or PlacementPolicy in it"),
        (elsewhere, "would be no policy"),
    ):
        with pytest.raises(Broken, match=said):
            await read_candidates([file], (), Policies(), instead=False)
    with pytest.raises(Misconfigured, match="there is no such folder or file"):
        await read_candidates(["/gone"], (), Policies(), instead=False)
    with pytest.raises(Broken, match="--staged: there is no candidate policy"):
        await read_candidates([], [item(policy())], Policies(), instead=False)


async def test_data_is_a_candidate_where_it_is_asked_for_and_labels_count(tmp_path: Path) -> None:
    write(tmp_path / "cm.json", policy())
    file = write(tmp_path / "data.json", data_map("limits", most="3"))
    labelled = Policies(labelled=Labelled(namespaces=("teams",)))
    for path in (str(tmp_path), file):
        found = await read_candidates([path], (), labelled, instead=False, with_data=True)
        assert [(name, str(one.key)) for name, one in found.data] == [(file, "teams/limits")]
        assert found.notes == ()
    found = await read_candidates([str(tmp_path)], (), Policies(), instead=False, with_data=True)
    assert found.data == []
    left_out = "ConfigMap teams/limits is labelled as data and left out"
    why = "its namespace is not in policies.labelled.namespaces"
    assert found.notes == (f"{file}: {left_out}: {why}",)
    assert not (await read_candidates([str(tmp_path)], (), labelled, instead=False)).data
    with pytest.raises(Broken, match="teams/limits would be no policy"):
        await read_candidates([file], (), labelled, instead=False)


def test_cluster_of_a_file_lies_where_kubectl_would_put_it(tmp_path: Path) -> None:
    body = cluster("c1")
    del body["metadata"]["namespace"]
    file = write(tmp_path / "c.json", body)
    places = [
        clusters_of([file], namespaced=namespaced)[0][1]["metadata"].get("namespace")
        for namespaced in (True, False)
    ]
    assert places == ["default", None]
