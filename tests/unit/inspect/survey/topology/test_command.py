"""`kube-sync topology`, from files to what is printed and to the exit status."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from kube_sync import cli
from kube_sync.errors import Misconfigured, Terminal
from kube_sync.inspect.survey.topology.command import Request, run
from kube_sync.policykinds.printing import Answer
from kube_sync.topology.hints import COLOR_POLICY
from tests.fakes.topologies import (
    GROUP,
    NS,
    Object,
    color,
    defaults,
    gateway,
    gateway_class,
    listener,
    made,
    namespace,
    overrides,
    route,
    rules,
    target,
)

ROOT = Path(__file__).resolve().parents[5]
EXAMPLE = ROOT / "manifests/examples/topology"
WORLD: list[Object] = [gateway_class(), gateway(), route()]
GATEWAY = f"gateway.{GROUP}:{NS}/my-gateway"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def written(folder: Path, *objects: Object, name: str = "objects.yaml") -> Path:
    file = folder / name
    file.write_text(yaml.safe_dump_all(objects), encoding="utf-8")
    return file


def answered(*paths: Path, **request: Any) -> Answer:
    return run(Request(tuple(map(str, paths)), **request), lambda _: None)


def read(*paths: Path, **request: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(answered(*paths, output="json", **request).text)
    return found


def locators(found: dict[str, Any]) -> list[str]:
    return [node["locator"] for node in found["nodes"]]


def test_a_folder_is_read_whole_but_for_what_is_hidden_or_no_manifest(folder: Path) -> None:
    (folder / "deep/er").mkdir(parents=True)
    (folder / ".git").mkdir()
    written(folder, gateway_class("a"))
    written(folder, gateway_class("b"), name="deep/er/b.yml")
    (folder / "c.json").write_text(json.dumps(gateway_class("c")))
    written(folder, gateway_class("hidden"), name=".git/d.yaml")
    (folder / "kustomization.yaml").write_text("resources: [objects.yaml]")
    (folder / "README.md").write_text("no: manifest")
    assert [name.rpartition(":")[2] for name in locators(read(folder))] == ["a", "b", "c"]


def test_files_may_be_named_one_by_one_and_come_from_standard_input(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = written(folder, gateway_class("a"))
    content = io.BytesIO(yaml.safe_dump(gateway_class("b")).encode())
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(content))
    assert len(locators(read(file, Path("-")))) == 2


def test_lists_are_read_item_by_item_and_empty_documents_not_at_all(folder: Path) -> None:
    listed = {"apiVersion": "v1", "kind": "List", "items": WORLD}
    text = "---\n---\n" + yaml.safe_dump(listed) + "---\n# nothing\n"
    (folder / "list.yaml").write_text(text)
    assert len(locators(read(folder))) == 5


def test_only_what_is_called_a_list_and_has_items_is_one(folder: Path) -> None:
    written(
        folder,
        gateway_class("a") | {"items": [gateway_class("b")]},
        made("example.com/v1/AllowList", "c", {}),
        made("example.com/v1/AllowList", "d", {}) | {"items": {}},
    )
    said: list[str] = []
    answer = run(Request((str(folder),), output="json"), said.append)
    assert [name.rpartition(":")[2] for name in locators(json.loads(answer.text))] == ["a"]
    assert said == ["2 of example.com/v1 AllowList left out: not part of the topology"]


def test_times_stay_texts_and_keys_are_texts_as_in_json(folder: Path) -> None:
    text = f"""
apiVersion: examples.kube-sync.io/v1alpha1
kind: ColorPolicy
metadata: {{name: p, namespace: {NS}, creationTimestamp: 2020-01-01T00:00:00Z}}
spec:
  targetRef: {{group: {GROUP}, kind: Gateway, name: my-gateway}}
  rules: {{1: {{color: blue}}, true: {{color: red}}}}
"""
    (folder / "policy.yaml").write_text(text)
    written(folder, *WORLD)
    (entry,) = read(folder)["effective"].values()
    assert entry["sources"].keys() == {"1", "true"}


def test_what_is_there_by_alias_is_there(folder: Path) -> None:
    text = yaml.safe_dump_all(WORLD[:2]) + "---\n" + yaml.safe_dump(route())
    shared = text.replace("- {}", "- &rule {}\n  - *rule")
    (folder / "a.yaml").write_text(shared)
    assert sum("#rule-" in name for name in locators(read(folder))) == 2


def test_aliases_of_aliases_cost_nothing(folder: Path) -> None:
    """Forty of them are a million million values, written out."""
    levels = "".join(f"  - &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 41))
    (folder / "a.yaml").write_text(json.dumps(gateway_class()) + "\n---\n")
    text = yaml.safe_dump(gateway_class("b")) + "many:\n  - &a0 [x]\n" + levels
    (folder / "b.yaml").write_text(text)
    assert len(locators(read(folder))) == 2


def test_merge_keys_of_yaml_bring_their_mapping_and_give_way_to_own_keys(folder: Path) -> None:
    text = """
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: one}
---
apiVersion: v1
kind: List
items:
  - &class {apiVersion: gateway.networking.k8s.io/v1, kind: GatewayClass, metadata: {name: two}}
  - <<: *class
    metadata: {name: three}
"""
    (folder / "merged.yaml").write_text(text)
    names = [name.rpartition(":")[2] for name in locators(read(folder))]
    assert names == ["one", "three", "two"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"a: [", "objects.yaml: not YAML: "),
        (
            b"---\nkind: A\n---\n",
            "objects.yaml, document 1 (line 2): apiVersion: a Kubernetes object",
        ),
        (b"---\n---\na: b: c", "objects.yaml, document 2: not YAML: "),
        (b"a: 1\na: 2", "objects.yaml: a: this key is here twice (line 2)"),
        (b"[a]: 1", "objects.yaml: a key is no text: put it into quotes (line 1)"),
        (b"a: 2020-99-99\nb: 09:99:0x", "objects.yaml: apiVersion: a Kubernetes object needs one"),
        (b"a: &a\n- *a", "objects.yaml: a[0]: an alias of something that it lies in (line 2)"),
        (b"- 1", "objects.yaml: expected Kubernetes objects, found list"),
        (
            b"apiVersion: v1\nkind: [A]",
            "objects.yaml: kind: a Kubernetes object needs one, as text",
        ),
        (b"apiVersion: v1\nkind: A", "objects.yaml: metadata.name: a Kubernetes object needs one"),
        (b"apiVersion: v1\nkind: A\nmetadata: B", "metadata.name: a Kubernetes object"),
        (b"apiVersion: v1\nkind: List\nitems: [1]", "objects.yaml, item 1: expected Kubernetes"),
        (b"\xff", "objects.yaml: not UTF-8 at byte 0"),
        (rb'a: [&a {b: "\ud800"}, *a]', "objects.yaml: not YAML: "),
        (rb'"\ud800": 1', "objects.yaml: not YAML: "),
    ],
)
def test_what_cannot_be_read_is_said_by_file_and_document(
    folder: Path, content: bytes, said: str
) -> None:
    (folder / "objects.yaml").write_bytes(content)
    with pytest.raises(Terminal) as raised:
        answered(folder)
    assert said in str(raised.value)
    assert str(raised.value).startswith(str(folder))


def test_a_namespace_that_is_no_text_is_said_by_file_and_document(folder: Path) -> None:
    written(folder, gateway(namespace=7))
    with pytest.raises(Terminal, match=r"objects\.yaml: .*metadata\.namespace: expected text"):
        answered(folder)


@pytest.mark.parametrize(
    ("name", "said"), [("gone", "there is no such"), ("", "no YAML or JSON file")]
)
def test_a_folder_that_is_not_there_or_empty_is_said(folder: Path, name: str, said: str) -> None:
    with pytest.raises(Misconfigured, match=said):
        answered(folder / name)


def test_a_file_that_cannot_be_opened_is_said(folder: Path) -> None:
    (folder / "folder.yaml").mkdir()
    with pytest.raises(Terminal, match=r"folder\.yaml: Is a directory"):
        answered(folder)


def test_an_object_that_is_there_twice_is_an_error(folder: Path) -> None:
    written(folder, *WORLD)
    written(folder, gateway(), name="twice.yaml")
    with pytest.raises(Terminal, match=rf"twice\.yaml: {GATEWAY} is in .*document 2"):
        answered(folder)


def test_objects_without_a_namespace_are_in_the_default_one_or_the_one_given(folder: Path) -> None:
    bare = gateway()
    bare["metadata"]["namespace"] = None
    written(folder, bare, gateway_class())
    assert f"gateway.{GROUP}:default/my-gateway" in locators(read(folder))
    found = locators(read(folder, namespace="shop"))
    assert f"gateway.{GROUP}:shop/my-gateway" in found
    assert f"gatewayclass.{GROUP}:my-gateway-class" in found


def test_kinds_that_are_no_part_of_it_are_counted_and_left_out(folder: Path) -> None:
    written(folder, *WORLD, made("v1/ConfigMap", "a", {}), made("v1/ConfigMap", "b", {}))
    said: list[str] = []
    run(Request((str(folder),)), said.append)
    assert said == ["2 of v1 ConfigMap left out: not part of the topology"]


def test_plain_links_whatever_is_named(folder: Path) -> None:
    closed = gateway("my-gateway", listener(hostname="a.example.com"))
    written(folder, closed, route(hostnames=["b.example.com"]))
    edge = {"from": f"{GATEWAY}#http", "to": f"httproute.{GROUP}:{NS}/route"}
    assert edge not in read(folder)["edges"]
    assert edge in read(folder, plain=True)["edges"]


def test_paths_lead_from_and_to_what_is_named_or_roots_and_leaves(folder: Path) -> None:
    written(folder, *WORLD)
    root, leaf = f"gatewayclass.{GROUP}:my-gateway-class", f"httproute.{GROUP}:{NS}/route#rule-1"
    middle = [GATEWAY, f"{GATEWAY}#http", leaf.partition("#")[0]]
    assert read(folder)["paths"] == []
    assert read(folder, start=root, end=leaf)["paths"] == [[root, *middle, leaf]]
    assert read(folder, start=GATEWAY)["paths"] == [[*middle, leaf]]
    assert read(folder, end=GATEWAY)["paths"] == [[root, GATEWAY]]
    assert "PATH\n" in answered(folder, end=GATEWAY).text


def test_a_locator_that_is_not_there_is_said_by_its_option(folder: Path) -> None:
    written(folder, *WORLD)
    with pytest.raises(Misconfigured, match=r"^--to: nothing here has the locator x:y"):
        answered(folder, end="x:y")


def test_effective_policies_are_of_the_kind_that_is_asked_for(folder: Path) -> None:
    other = color("o", rules=rules(edge="sharp")) | {"kind": "ShapePolicy"}
    written(folder, *WORLD, color("p", rules=rules(sky="blue")), other)
    kinds = {entry["kind"] for entry in read(folder)["effective"].values()}
    assert kinds == {"ColorPolicy", "ShapePolicy"}
    for said in ("shapepolicy", "ShapePolicy.examples.kube-sync.io"):
        (entry,) = read(folder, effective=said)["effective"].values()
        assert entry["kind"] == "ShapePolicy"
    assert "sharp" in answered(folder, effective="ShapePolicy").text


def test_kinds_that_nobody_mentions_are_reported_only_if_asked_for(folder: Path) -> None:
    written(folder, *WORLD)
    assert read(folder)["targetables"] == []
    (entry,) = read(folder, effective="ColorPolicy")["targetables"]
    assert entry["effective"] is None
    written(folder, definition("Shade", "Inherited"), name="crd.yaml")
    (entry,) = read(folder)["targetables"]
    assert (entry["kind"], entry["effective"]) == ("Shade", None)


def test_a_kind_that_is_not_there_or_not_one_is_said_with_those_that_are(folder: Path) -> None:
    theirs = color("p") | {"apiVersion": "example.com/v1"}
    written(folder, theirs)
    own = "ColorPolicy.example.com, ColorPolicy.examples.kube-sync.io"
    with pytest.raises(Misconfigured, match=rf"^--effective: Tree is no kind .*: {own}$"):
        answered(folder, effective="Tree")
    with pytest.raises(Misconfigured, match=rf"^--effective: ColorPolicy is one of .*: {own}$"):
        answered(folder, effective="ColorPolicy")


def definition(kind: str, label: str | None, level: str = "", scope: str = "Namespaced") -> Object:
    metadata: Object = {"namespace": None}
    if label is not None:
        metadata["labels"] = {"gateway.networking.k8s.io/policy": label}
    if level:
        metadata["annotations"] = {"kube-sync.io/takes-effect-at": level}
    spec = {"group": "example.com", "names": {"kind": kind}, "scope": scope}
    api = "apiextensions.k8s.io/v1/CustomResourceDefinition"
    return made(api, f"{kind.lower()}s.example.com", spec, **metadata)


def test_a_definition_declares_a_kind_and_its_level(folder: Path) -> None:
    shade = color("p", target(sectionName="http"), **defaults("merge", a="dark"))
    shade |= {"apiVersion": "example.com/v1", "kind": "Shade"}
    written(folder, *WORLD, shade, definition("Shade", "Inherited", "Gateway, Listener"))
    said: list[str] = []
    answer = run(Request((str(folder),), output="json", effective="shade"), said.append)
    found = json.loads(answer.text)
    assert [entry["path"][-1] for entry in found["effective"].values()] == [f"{GATEWAY}#http"]
    assert [entry["locator"] for entry in found["targetables"]] == [GATEWAY, f"{GATEWAY}#http"]
    assert said == []


def test_a_definition_says_which_condition_its_policies_have(folder: Path) -> None:
    shade = color("p", rules=rules(a="dark")) | {"apiVersion": "example.com/v1", "kind": "Shade"}
    crd = definition("Shade", "Inherited")
    crd["metadata"]["annotations"] = {"kube-sync.io/effect-condition": "Enforced"}
    written(folder, *WORLD, shade, crd)
    said = {one["type"]: one["reason"] for one in read(folder)["conditions"]}
    assert said["Enforced"] == "Enforced"
    assert "Programmed" not in said


def test_a_condition_that_no_policy_has_is_said_by_file_and_document(folder: Path) -> None:
    crd = definition("Shade", "Inherited")
    crd["metadata"]["annotations"] = {"kube-sync.io/effect-condition": "Ready"}
    written(folder, crd)
    with pytest.raises(
        Terminal, match=r'objects\.yaml: .*: "Ready" is not Enforced or Programmed$'
    ):
        answered(folder)


def test_a_level_beside_gateways_takes_effect_by_itself(folder: Path) -> None:
    shade = color("p", target("Namespace", NS), rules=rules(a="dark"))
    shade |= {"apiVersion": "example.com/v1", "kind": "Shade"}
    written(folder, namespace(NS), shade, definition("Shade", "Inherited", "Namespace"))
    (entry,) = read(folder, effective="shade")["effective"].values()
    assert entry["path"] == [f"namespace:{NS}"]


def test_plain_lets_policies_target_other_namespaces(folder: Path) -> None:
    foreign = color("p", target(namespace=NS), namespace="other", rules=rules(sky="blue"))
    written(folder, *WORLD, foreign)
    assert read(folder)["effective"] == {}
    assert len(read(folder, plain=True)["effective"]) == 1


def test_a_direct_kind_stands_at_its_targets_alone(folder: Path) -> None:
    direct = [
        color(name, rules=rules(a=name)) | {"apiVersion": "example.com/v1", "kind": "Shade"}
        for name in ("p", "q")
    ]
    written(folder, *WORLD, *direct, definition("Shade", "Direct"))
    (entry,) = read(folder, effective="shade")["effective"].values()
    assert (entry["path"][-1], entry["policies"]) == (GATEWAY, [f"shade.example.com:{NS}/p"])


def test_a_cluster_scoped_kind_has_no_namespace_and_may_target_any(folder: Path) -> None:
    shade = color("p", target(namespace=NS), rules=rules(a="dark"))
    shade |= {"apiVersion": "example.com/v1", "kind": "Shade"}
    del shade["metadata"]["namespace"]
    written(folder, *WORLD, shade, definition("Shade", "Inherited", scope="Cluster"))
    assert "shade.example.com:p" in locators(read(folder))
    assert len(read(folder)["effective"]) == 1


def test_a_schema_says_which_rules_have_names(folder: Path) -> None:
    shade = color("p", mode="strict") | {"apiVersion": "example.com/v1", "kind": "Shade"}
    declared = definition("Shade", "Inherited")
    written(folder, *WORLD, shade, declared)
    (entry,) = read(folder, effective="shade")["effective"].values()
    assert entry["sources"].keys() == {"mode"}
    fields = {"rules": {"type": "object"}, "mode": {"type": "string"}}
    schema = {"properties": {"spec": {"properties": fields}}}
    declared["spec"]["versions"] = [{"name": "v1", "schema": {"openAPIV3Schema": schema}}]
    written(folder, *WORLD, shade, declared)
    (entry,) = read(folder, effective="shade")["effective"].values()
    assert (entry["sources"].keys(), entry["spec"]) == ({".mode"}, {"rules": {}, "mode": "strict"})


def test_a_level_that_is_no_kind_is_said_by_file_and_document(folder: Path) -> None:
    written(folder, definition("Shade", "Inherited", "Listener,Wall"))
    with pytest.raises(Terminal, match=r"objects\.yaml: .*takes-effect-at: Wall is no targetable"):
        answered(folder)


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        ({"metadata": {"name": "a", "labels": []}}, "metadata.labels: expected a mapping"),
        ({"spec": {"group": 7}}, "spec.group: expected text"),
    ],
)
def test_a_definition_that_cannot_be_read_is_said(folder: Path, broken: Object, said: str) -> None:
    written(folder, definition("Shade", "Inherited") | broken)
    with pytest.raises(Terminal, match=rf"objects\.yaml: {said}"):
        answered(folder)


def test_a_definition_without_the_label_and_a_policy_without_a_target_are_no_policies(
    folder: Path,
) -> None:
    network = made("networking.k8s.io/v1/NetworkPolicy", "n", {"podSelector": {}})
    broken = made("example.com/v1/OddPolicy", "o", {}) | {"spec": "odd"}
    written(folder, definition("Shade", None), network, broken)
    assert locators(read(folder)) == []


def test_a_policy_of_a_kind_without_named_rules_has_its_fields_as_rules(folder: Path) -> None:
    spec = {"targetRef": target(), "overrides": {"strategy": "merge", "timeout": "5s"}}
    written(folder, *WORLD, made("example.com/v1/RetryPolicy", "r", spec))
    (entry,) = read(folder, effective="RetryPolicy")["effective"].values()
    assert entry["spec"] == {"timeout": "5s"}


def test_named_rules_of_a_kind_are_found_in_its_blocks(folder: Path) -> None:
    spec = {"targetRef": target(), "overrides": {"rules": {"a": {"x": 1}}, "when": []}}
    written(folder, *WORLD, made("example.com/v1/RetryPolicy", "r", spec))
    (entry,) = read(folder, effective="RetryPolicy")["effective"].values()
    assert entry["spec"] == {"rules": {"a": {"x": 1}}, "when": []}
    assert entry["rules"].keys() == {"a", ".when"}


def test_listeners_without_a_dns_policy_are_reported_by_name(folder: Path) -> None:
    two = gateway("my-gateway", listener("a"), listener("b"))
    spec = {"targetRef": target(sectionName="a"), "loadBalancing": {"weight": 1}}
    policy = made("kuadrant.io/v1/DNSPolicy", "one", spec)
    written(folder, gateway_class(), two, policy)
    table = answered(folder, effective="DNSPolicy").text.splitlines()
    assert [line.split()[-1] for line in table[1:]] == [f"{NS}/one", "DNSPolicy"]
    assert table[2].split()[-5:] == [f"{NS}/my-gateway#b", "-", "-", "no", "DNSPolicy"]


def test_backend_tls_policies_are_direct(folder: Path) -> None:
    policies = [
        made(f"{GROUP}/v1/BackendTLSPolicy", name, {"targetRefs": [target()], "validation": {}})
        for name in ("a", "b")
    ]
    written(folder, *WORLD, *policies)
    conflicts = read(folder)["conflicts"]
    assert [one["policy"] for one in conflicts] == [f"backendtlspolicy.{GROUP}:{NS}/b"]
    a, b = (f"backendtlspolicy.{GROUP}:{NS}/{name}" for name in "ab")
    said = f"{b} gives way to {a}: both target {GATEWAY}"
    assert answered(folder, strict=True).complaints == (said,)


def test_strict_complains_of_contradictions_and_of_what_is_not_accepted(folder: Path) -> None:
    both = [color(name, **overrides("merge", a=name, b="x")) for name in ("p", "q")]
    lost = color("lost", target(name="none"), rules=rules(a="x"))
    odd = color("odd", defaults={}, overrides={})
    written(folder, *WORLD, *both, lost, odd)
    own = f"colorpolicy.examples.kube-sync.io:{NS}"
    assert answered(folder).complaints == ()
    assert answered(folder, strict=True).complaints == (
        f'{own}/q contradicts {own}/p in "a": both target {GATEWAY}',
        f"{own}/lost: TargetNotFound: ColorPolicy target gateway.{GROUP}:{NS}/none was not found",
        f"{own}/odd: Invalid: ColorPolicy: spec.defaults: not together with spec.overrides",
    )


def test_strict_has_nothing_against_overrides_and_partial_routes(folder: Path) -> None:
    written(
        folder,
        *WORLD,
        color("gw", **overrides("merge", a="1")),
        color("r", target("HTTPRoute", "route"), rules=rules(a="2")),
        route("lost", parentRefs=[{"name": "none"}]),
    )
    assert answered(folder, strict=True).complaints == ()


@pytest.mark.parametrize(("output", "begin"), [("dot", "digraph {"), ("svg", "<svg ")])
def test_pictures_are_printed_as_they_are(folder: Path, output: Any, begin: str) -> None:
    written(folder, *WORLD)
    assert answered(folder, output=output).text.startswith(begin)


@pytest.mark.parametrize("output", ["table", "json", "dot", "svg"])
def test_the_order_of_files_and_documents_means_nothing(tmp_path: Path, output: Any) -> None:
    objects = [*WORLD, color("p", **defaults("merge", a="1")), color("q", rules=rules(a="2"))]
    texts = set()
    for number, order in enumerate((objects, objects[::-1])):
        (tmp_path / f"{number}").mkdir()
        written(tmp_path / f"{number}", *order[:2], name=f"{'ab'[number]}.yaml")
        written(tmp_path / f"{number}", *order[2:], name=f"{'ba'[number]}.yaml")
        texts.add(answered(tmp_path / f"{number}", output=output).text)
    assert len(texts) == 1


def test_the_example_and_its_definition_are_one_world() -> None:
    """What docs/topology.md explains; the library knows the kind as its definition declares it."""
    answer = answered(EXAMPLE, ROOT / "manifests/crds", output="json", strict=True)
    assert answer.complaints == ()
    assert answer.text == answered(EXAMPLE, output="json").text
    assert len(json.loads(answer.text)["effective"]) == 4


def test_the_document_shows_what_the_example_prints() -> None:
    text = (ROOT / "docs/topology.md").read_text(encoding="utf-8")
    printed = answered(EXAMPLE, effective=COLOR_POLICY.id.kind).text
    assert f"```\n{printed}\n```\n" in text


class Run:
    """The command in this process, with its exit status."""

    def __init__(self, capsys: pytest.CaptureFixture[str], *arguments: str) -> None:
        with pytest.raises(SystemExit) as exited:
            cli.main(["topology", *arguments])
        self.status = exited.value.code
        self.out, self.err = capsys.readouterr()


def test_the_command_prints_and_exits_with_0(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    file = written(folder, *WORLD)
    ran = Run(capsys, "-f", str(file))
    assert (ran.status, ran.err) == (0, "")
    assert ran.out.startswith("KIND ")
    assert ran.out.count("\n") == 1 + 5


def test_strict_exits_with_1_and_still_prints(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    both = [color(name, **overrides("merge", a=name)) for name in ("p", "q")]
    file = written(folder, *WORLD, *both)
    ran = Run(capsys, "-f", str(file), "--strict", "-o", "yaml")
    whole = yaml.safe_load(ran.out)
    ran = Run(capsys, "-f", str(file), "--strict", "-o", "json")
    assert json.loads(ran.out) == whole
    assert ran.status == 1
    assert "contradicts" in ran.err
    assert json.loads(ran.out)["conflicts"]
    assert Run(capsys, "-f", str(file)).status == 0


def test_what_cannot_be_read_exits_with_1_in_one_line(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    (folder / "a.yaml").write_text("a: [")
    ran = Run(capsys, "-f", str(folder))
    assert (ran.status, ran.out, len(ran.err.splitlines())) == (1, "", 1)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "one of the arguments -f/--files --live is required"),
        (("-f", "x", "--live"), "--live: not allowed with argument -f/--files"),
        (("--live", "-o", "json"), "--live: the controller prints nothing"),
        (("-f", "/gone"), "/gone: there is no such folder or file"),
        (("-f", "-", "-f", "-"), "-: standard input can be read once only"),
        (("-f", "x", "-o", "svg", "--effective", "A"), "--effective: not together with -o svg"),
        (("-f", "x", "-o", "dot", "--from", "a"), "--from and --to: not together with -o dot"),
        (
            ("-f", "x", "--effective", "A", "--to", "a"),
            "--effective: goes with --from and --to only in",
        ),
    ],
)
def test_what_cannot_be_asked_for_exits_with_64(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str
) -> None:
    ran = Run(capsys, *arguments)
    assert (ran.status, ran.out) == (64, "")
    assert said in ran.err


def test_the_library_does_what_the_document_shows() -> None:
    text = (ROOT / "docs/topology.md").read_text(encoding="utf-8")
    code = text.partition("```python\n")[2].partition("```")[0]
    store, retry = "example.com/v1/Store", "example.com/v1/RetryPolicy"
    backup = made("example.com/v1/Backup", "b", {"store": "s"})
    policy = made(retry, "p", {"targetRef": target(), "rules": {"attempts": 3}})
    names: dict[str, Any] = {
        "objects": [*WORLD, made(store, "s", {}), backup, policy],
        "changed": made("example.com/v1/Backup", "b", {"store": "t"}),
        "gone": f"httproute.{GROUP}:{NS}/route",
        "print": lambda *printed: names.setdefault("printed", []).append(printed),
    }
    exec(compile(code, "topology.md", "exec"), names)  # noqa: S102 - our own document
    ((_, _, spec, _),) = names["printed"]
    assert spec == {"attempts": 3}
    found = names["topology"]
    assert f"store.example.com:{NS}/s" in found.targetables.leaves()
    assert f"backup.example.com:{NS}/b" in found.targetables.roots()
    assert names["gone"] not in found


def test_roots_of_a_configuration_are_above_the_classes_of_files(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written(folder, *WORLD, made("kuadrant.io/v1beta1/Kuadrant", "mine", {}), color("p", rules={}))
    config = folder / "config" / "kube-sync.yaml"
    config.parent.mkdir()
    config.write_text("topology: {roots: [Kuadrant.kuadrant.io]}")
    options = ["--config", str(config), "--effective", "ColorPolicy"]
    with pytest.raises(SystemExit) as raised:
        cli.main(["topology", "-f", str(folder / "objects.yaml"), *options])
    assert raised.value.code == 0
    assert capsys.readouterr().out.splitlines()[1].startswith(f"{NS}/mine > my-gateway-class > ")
