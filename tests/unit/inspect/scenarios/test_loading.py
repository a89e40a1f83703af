"""Scenario files: what they say, and that nothing in them is overlooked."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from kube_sync.inspect.scenarios.collections import Collections
from kube_sync.inspect.scenarios.loading import load
from kube_sync.inspect.scenarios.strict_yaml import Invalid
from kube_sync.objects import ObjectKey
from tests.unit.inspect.scenarios.cases import (
    CASE,
    HEAD,
    SETTINGS,
    WITH_NAMESPACES,
    of_case,
    problems,
    scenario,
)

EXPECTS = "    expect: {clusters: [c1]}\n"
WEB = ObjectKey("shop", "web")
CLUSTERS = "multicluster.x-k8s.io/v1alpha1"
POD = "{apiVersion: v1, kind: Pod, metadata: {name: a}}"
REPLICASET = "{apiVersion: apps/v1, kind: ReplicaSet, metadata: {name: web, namespace: shop}}"
NUMBERS = """\
policies: p
clusters:
  c1:
    labels:
      pci: 2
      eu: yes
objects:
  - apiVersion: apps/v1
    kind: ReplicaSet
    metadata: {name: a, labels: {
      x: 1}}
cases: [{}]
"""


def test_scenario_says_policies_objects_and_cases() -> None:
    found = scenario(HEAD + CASE + EXPECTS)
    assert (found.policies, found.row) == (("dir/policy",), 1)
    assert {name: len(objects) for name, objects in found.objects.items()} == {
        "clusters": 2,
        "replicasets": 2,
    }
    (case,) = found.cases
    assert (case.name, case.row, case.resource, case.key) == (
        "it runs in the EU",
        9,
        "replicasets",
        WEB,
    )
    assert case.fleet == {"c1", "c2"}


def test_cluster_of_which_the_facts_are_said_is_a_whole_object() -> None:
    item = scenario(HEAD + CASE + EXPECTS).objects["clusters"][ObjectKey("fleet", "c1")]
    body = msgspec.json.decode(item.body)
    assert (body["apiVersion"], body["kind"]) == (
        "multicluster.x-k8s.io/v1alpha1",
        "ClusterProfile",
    )
    assert body["metadata"] == {
        "name": "c1",
        "namespace": "fleet",
        "labels": {"zone": "eu"},
        "uid": item.uid,
    }
    assert item.uid


def test_object_without_a_namespace_is_in_default_unless_its_kind_has_none() -> None:
    objects = """\
policies: policy
objects:
  - {apiVersion: apps/v1, kind: ReplicaSet, metadata: {name: web}}
  - {apiVersion: v1, kind: Namespace, metadata: {name: shop}}
cases: [{name: a, object: web, expect: {undecided: true}}]
"""
    found = scenario(objects, WITH_NAMESPACES).objects
    assert [*found["replicasets"], *found["namespaces"]] == [
        ObjectKey("default", "web"),
        ObjectKey("", "shop"),
    ]


def test_files_are_meant_from_where_the_scenario_lies(tmp_path: Path) -> None:
    tmp_path.joinpath("objects").mkdir()
    tmp_path.joinpath("objects", "web.yaml").write_text(
        "apiVersion: apps/v1\nkind: ReplicaSet\nmetadata: {name: web, namespace: shop}\n"
    )
    file = tmp_path / "tests" / "f.scenario.yaml"
    file.parent.mkdir()
    file.write_text(
        "policies: ../p\nobjects: ../objects\n" + CASE + "    expect: {undecided: true}"
    )
    found = load(str(file), Collections(SETTINGS), "kubernetes")
    assert found.policies == (str(tmp_path / "p"),)
    assert [*found.objects["replicasets"]] == [WEB]


def test_objects_in_files_that_are_not_replicated_are_passed_over(tmp_path: Path) -> None:
    fleet = tmp_path / "fleet.yaml"
    namespace = "apiVersion: v1\nkind: Namespace\nmetadata: {name: fleet}\n"
    cluster = f"apiVersion: {CLUSTERS}\nkind: ClusterProfile\nmetadata: {{name: c1}}\n"
    file = tmp_path / "f.scenario.yaml"
    case = "    expect: {clusters: [c1]}\n"
    file.write_text(f"policies: p\nclusters: fleet.yaml\nobjects: [{REPLICASET}]\n{CASE}{case}")
    fleet.write_text(f"{namespace}---\n{cluster}")
    found = load(str(file), Collections(SETTINGS), "kubernetes")
    assert [*found.objects["clusters"]] == [ObjectKey("default", "c1")]
    fleet.write_text(namespace)
    with pytest.raises(Invalid, match="there are no clusters in it"):
        load(str(file), Collections(SETTINGS), "kubernetes")


def test_case_changes_its_own_world_alone() -> None:
    given = """\
    given:
      object: {labels: {tier: gold}, annotations: {a/b: x}}
      clusters: {c1: {labels: {zone: null, pci: "1"}}, fleet/c2: null}
      joins: {fleet/c3: {labels: {zone: eu}}}
      objects: {bank/web: {spec: {replicas: 3}}}
    expect: {contains: [c3], excludes: [c2]}
"""
    found = scenario(HEAD + CASE + given)
    (case,) = found.cases
    clusters, replicasets = case.changes["clusters"], case.changes["replicasets"]
    assert case.fleet == {"c1", "c3"}
    assert clusters[ObjectKey("fleet", "c2")] is None
    c1, web, bank = (
        msgspec.json.decode(item.body)
        for item in (
            clusters[ObjectKey("fleet", "c1")],
            replicasets[WEB],
            replicasets[ObjectKey("bank", "web")],
        )
        if item is not None
    )
    assert c1["metadata"]["labels"] == {"pci": "1"}
    assert (web["metadata"]["labels"], web["metadata"]["annotations"]) == (
        {"tier": "gold"},
        {"a/b": "x"},
    )
    assert bank["spec"] == {"replicas": 3}
    assert b"tier" not in found.objects["replicasets"][WEB].body


def test_object_of_a_case_may_join_for_it_alone() -> None:
    inline = """\
cases:
  - name: a
    object: {apiVersion: apps/v1, kind: ReplicaSet, metadata: {name: new, namespace: shop}}
    expect: {undecided: true}
"""
    found = scenario(HEAD + inline)
    key = ObjectKey("shop", "new")
    assert (found.cases[0].key, key in found.objects["replicasets"]) == (key, False)
    assert found.cases[0].changes["replicasets"][key] is not None


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (
            "[]",
            [
                "1: expected a mapping, found a list",
                *["1: `policies` is missing"],
                "1: `cases` is missing",
            ],
        ),
        ("policies: p\ncases: []\n", ["2: cases: there is no case, so nothing is tested"]),
        (
            "polices: p\ncases: []\n",
            ["1: polices: unknown key: policies?", "1: `policies` is missing"],
        ),
        ("policies: []\ncases: [{}]\n", ["1: policies: it names nothing"]),
        ("policies: 3\ncases: [{}]\n", ["1: policies: expected a list, found a number"]),
        ("policies: ''\ncases: [{}]\n", ["1: policies: expected a text, found an empty text"]),
        (
            "policies: p\nclusters: {c1: {label: {a: b}}}\ncases: [{}]\n",
            ["2: clusters.c1.label: unknown key: labels?"],
        ),
        (
            NUMBERS,
            [
                "5: clusters.c1.labels.pci: expected a text: put it into quotes, found a number",
                "6: clusters.c1.labels.eu: expected a text: put it into quotes, found a boolean",
                "11: objects[0].metadata.labels.x: labels are texts: put it into quotes",
            ],
        ),
        (
            "policies: p\nclusters: [7]\ncases: [{}]\n",
            ["2: clusters[0]: expected an object, or a file of objects, found a number"],
        ),
        (
            "policies: p\nclusters: gone.yaml\ncases: [{}]\n",
            ["2: clusters: dir/gone.yaml: there is no such folder or file"],
        ),
        (
            f"policies: p\nobjects: [{POD}]\ncases: [{{}}]",
            [
                (
                    "2: objects[0]: v1 Pod is of no collection of replicate.resources"
                    " (clusterprofiles.v1alpha1.multicluster.x-k8s.io, replicasets.v1.apps)"
                )
            ],
        ),
        (
            "policies: p\nobjects:\n  - {apiVersion: apps/v1, kind: ReplicaSet}\ncases: [{}]",
            ["3: objects[0]: no Kubernetes object: metadata.name is missing"],
        ),
        (
            f"policies: p\nclusters:\n  - {REPLICASET}\ncases: [{{}}]",
            ["3: clusters[0]: expected clusters, found replicasets"],
        ),
        (
            f"{HEAD}  - {REPLICASET}\ncases: [{{}}]",
            ["8: objects[2]: replicasets shop/web is here twice"],
        ),
        (
            "policies: p\ndata: {kubernetes: {}, limits: {max: 1}}\ncases: [{}]",
            ["2: data.kubernetes: data.kubernetes is not a scenario's; objects go into `objects`"],
        ),
    ],
)
def test_what_is_wrong_with_a_file_is_said_with_row_and_key(text: str, lines: list[str]) -> None:
    assert problems(text) == lines


@pytest.mark.parametrize(
    ("rest", "lines"),
    [
        ("", ["9: cases[0]: `expect` is missing"]),
        (
            "    expct: {}\n",
            ["9: cases[0]: `expect` is missing", "11: cases[0].expct: unknown key: expect?"],
        ),
        ("    given: {}\n" + EXPECTS, ["11: cases[0].given: nothing is given: leave it out"]),
        (
            "    given: {clusters: {c9: {labels: {a: b}}}}\n" + EXPECTS,
            ["11: cases[0].given.clusters.c9: there is no c9 (fleet/c1, fleet/c2)"],
        ),
        (
            "    given: {clusters: {c1: {}}}\n" + EXPECTS,
            ["11: cases[0].given.clusters.c1: nothing is given: leave it out"],
        ),
        (
            "    given: {clusters: {c1: {labels: {a: 1}}}}\n" + EXPECTS,
            [
                (
                    "11: cases[0].given.clusters.c1.labels.a:"
                    " expected a text: put it into quotes, found a number"
                )
            ],
        ),
        (
            "    given: {joins: {fleet/c1: {}}}\n" + EXPECTS,
            [
                (
                    '11: cases[0].given.joins."fleet/c1":'
                    " the cluster fleet/c1 is there already (`clusters`)"
                )
            ],
        ),
        (
            "    given: {objects: {web: null}}\n" + EXPECTS,
            [
                (
                    "11: cases[0].given.objects.web:"
                    " web may be replicasets/shop/web or replicasets/bank/web: say which"
                )
            ],
        ),
        (
            "    given: {objects: {shop/web: null}}\n" + EXPECTS,
            ["11: cases[0].given: what the case is about is taken away"],
        ),
    ],
)
def test_what_is_wrong_with_a_case_is_said_with_row_and_key(rest: str, lines: list[str]) -> None:
    assert sorted(of_case(rest)) == sorted(lines)


@pytest.mark.parametrize(
    ("spelt", "said"),
    [
        ("web", "web may be replicasets/shop/web or replicasets/bank/web: say which"),
        ("shop/wbe", "there is no shop/wbe (shop/web, bank/web)"),
        ("7", "expected a text: put it into quotes, found a number"),
        ("clusters/c1", "there is no clusters/c1 (shop/web, bank/web)"),
        (
            f"{{apiVersion: {CLUSTERS}, kind: ClusterProfile, metadata: {{name: x}}}}",
            "nothing is decided of it: it is none of the replicasets",
        ),
    ],
)
def test_object_of_a_case_is_the_one_that_is_meant_or_none(spelt: str, said: str) -> None:
    case = f"cases:\n  - name: a\n    object: {spelt}\n    expect: {{undecided: true}}\n"
    assert problems(HEAD + case) == [f"10: cases[0].object: {said}"]


def test_two_cases_of_one_name_are_told_apart_by_nobody() -> None:
    twice = CASE + EXPECTS + CASE.removeprefix("cases:\n") + EXPECTS
    assert problems(HEAD + twice) == ["12: cases[1].name: the case in row 9 has this name, too"]


def test_everything_that_is_wrong_is_said_and_not_the_first_alone() -> None:
    found = of_case("    given: {clusters: {c9: null}}\n    expect: {clusters: [c8], evict: 1}\n")
    assert [line.partition(":")[0] for line in found] == ["11", "12", "12"]


def test_with_policies_from_elsewhere_a_file_need_name_none(tmp_path: Path) -> None:
    file = tmp_path / "f.scenario.yaml"
    file.write_text(HEAD.partition("\n")[2] + CASE + EXPECTS)
    found = load(str(file), Collections(SETTINGS), "kubernetes", policies=False)
    assert (found.policies, len(found.cases)) == ((), 1)
    with pytest.raises(Invalid, match="`policies` is missing"):
        load(str(file), Collections(SETTINGS), "kubernetes")


def test_file_that_is_no_text_is_said_by_name(tmp_path: Path) -> None:
    file = tmp_path / "f.scenario.yaml"
    for content, said in ((b"\xff", "not UTF-8 at byte 0"), (None, "No such file or directory")):
        file.unlink(missing_ok=True)
        if content is not None:
            file.write_bytes(content)
        with pytest.raises(Invalid, match=f"^{file}: {said}"):
            load(str(file), Collections(SETTINGS), "kubernetes")


def test_text_that_is_no_scenario_is_said_with_its_row_and_its_key() -> None:
    assert problems("# nothing\n") == [" there is nothing in it"]
    assert problems("a: 1\n---\nb: 2\n") == ["3: a second document: a file is one scenario"]
    assert problems("a: {b: 1, b: 2}") == ["1: a.b: this key is here twice"]
    assert problems("a:\n  - b\n c: d\n")[0].startswith("3: not YAML: while parsing a block ")


PARAMETERS = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: limits, namespace: shop, labels: {openpolicyagent.org/data: opa}}
data: {max: "3", names: '["a"]'}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: other, namespace: shop}
data: {max: "{"}
"""


def with_data(folder: Path, text: str, data: str = "limits.yaml") -> str:
    folder.joinpath("limits.yaml").write_text(text)
    file = folder / "f.scenario.yaml"
    file.write_text(HEAD + f"data: {data}\n" + CASE + EXPECTS)
    return str(file)


@pytest.mark.parametrize("data", ["limits.yaml", "[limits.yaml]"])
def test_data_may_be_that_of_labelled_configmaps(tmp_path: Path, data: str) -> None:
    found = load(with_data(tmp_path, PARAMETERS, data), Collections(SETTINGS), "kubernetes")
    assert found.data == {"shop": {"limits": {"max": 3, "names": ["a"]}}}


@pytest.mark.parametrize(
    ("text", "data", "said"),
    [
        (
            PARAMETERS.replace("data: opa", "data: other"),
            "limits.yaml",
            "there is no ConfigMap with",
        ),
        (PARAMETERS.replace('"3"', '"{"'), "limits.yaml", "ConfigMap shop/limits: max is not JSON"),
        (PARAMETERS, "[limits.yaml, gone.yaml]", "gone.yaml: there is no such folder or file"),
        (f"{PARAMETERS}---\n{PARAMETERS}", "limits.yaml", "ConfigMap shop/limits is here twice"),
        (PARAMETERS.replace("shop", "kube_sync"), "limits.yaml", "data.kube_sync is not"),
        (PARAMETERS.replace("name: limits, ", ""), "limits.yaml", "without metadata.name"),
        (PARAMETERS.replace('"3"', "3"), "limits.yaml", "cannot be read"),
        (PARAMETERS, "3", "expected a mapping, or files of ConfigMaps, found a number"),
        (PARAMETERS, "[]", "it names nothing"),
    ],
)
def test_what_is_wrong_with_configmaps_of_data_is_said(
    tmp_path: Path, text: str, data: str, said: str
) -> None:
    with pytest.raises(Invalid) as raised:
        load(with_data(tmp_path, text, data), Collections(SETTINGS), "kubernetes")
    messages = [str(problem) for problem in raised.value.problems]
    assert any("f.scenario.yaml:8: data" in line and said in line for line in messages)
