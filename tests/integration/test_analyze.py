"""`kube-sync analyze`, with the pinned OPA, on the real servers where it asks some."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from kube_sync import cli
from kube_sync.config import CONFIG_ENV, Opa, fields
from kube_sync.observability import logs
from kube_sync.opa.analysis.result import shown
from kube_sync.opa.client import opa_client
from tests.parts import quickly
from tools.demo.fleet import CLUSTERS, cluster, replica_set
from tools.servers.binaries import ensure_binary
from tools.servers.modules import opa_pages
from tools.servers.running import Launcher
from tools.servers.secured_opa import RunningOpa, opa_settings
from tools.servers.stack import RunningStack

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = Path(__file__).with_name("analyze_rego.json")
EU_PCI = "rego/examples/eu_pci"
DECISION = "io.k8s.federation.admission"

Analyze = Callable[..., tuple[int, str, str]]


@pytest.fixture
def analyze(
    launcher: Launcher, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Analyze:
    """Run the command at the top of the repository: status, standard output, standard error."""
    assert launcher.form  # which has the program prepared
    for field in fields():
        monkeypatch.delenv(field.variable, raising=False)
    monkeypatch.delenv(CONFIG_ENV, raising=False)
    monkeypatch.setenv("KUBE_SYNC_OPA_BINARY", str(ensure_binary("opa")))
    monkeypatch.setattr(logs, "configure_logs", lambda _level: None)
    monkeypatch.chdir(ROOT)

    def run(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as exited:
            cli.main(["analyze", *arguments])
        assert isinstance(exited.value.code, int)
        return exited.value.code, *capsys.readouterr()

    return run


def policy(folder: Path, name: str, body: str, package: str = DECISION) -> Path:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(f"package {package}\n\n{body}\n", encoding="utf-8")
    return folder


def test_examples_of_this_repository_read_what_they_read(analyze: Analyze) -> None:
    """After a change that is meant: `KUBE_SYNC_GOLDEN=1 pytest` this test, and read the diff."""
    found = {}
    for name in ("conflicts_may", "conflicts_must", "eu_pci"):
        status, out, err = analyze(f"rego/examples/{name}", "-o", "json")
        assert (status, err) == (0, "")
        found[name] = json.loads(out)
    if os.environ.get("KUBE_SYNC_GOLDEN"):
        GOLDEN.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    assert found == json.loads(GOLDEN.read_text(encoding="utf-8"))


def test_tree_in_the_documentation_is_what_is_printed(analyze: Analyze) -> None:
    status, out, err = analyze(EU_PCI)
    assert (status, err) == (0, "")
    assert f"```\n{out}```\n" in (ROOT / "docs/analysis.md").read_text(encoding="utf-8")


def documented() -> list[Any]:
    """Return the policies of docs/analysis.md: each below a comment that says what it reads."""
    text = (ROOT / "docs/analysis.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```rego\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    found = [policy for block in blocks for policy in block.split("\n\n")]
    return [pytest.param(*policy.removeprefix("# ").split("\n", 1)) for policy in found]


@pytest.mark.parametrize(("reads", "body"), documented())
def test_policy_in_the_documentation_reads_what_is_said(
    analyze: Analyze, tmp_path: Path, reads: str, body: str
) -> None:
    status, out, err = analyze(str(policy(tmp_path, "a.rego", body)), "-o", "json")
    assert (status, err) == (0, "")
    (found,) = json.loads(out)["sets"]
    documents = {"input": found["input"], **found["resources"]}
    fields = [
        f"{name}.{shown(field['path'])}{' WHOLE' if field['whole'] else ''}"
        for name, document in documents.items()
        for field in document["fields"]
    ]
    assert ", ".join(fields) == reads


def test_policies_that_compile_together_are_one_set(analyze: Analyze, tmp_path: Path) -> None:
    policy(tmp_path, "main/a.rego", "import data.lib\n\nerrors contains lib.f(input.spec)")
    policy(tmp_path, "lib/b.rego", "f(x) := x.name", "lib")
    status, out, _ = analyze(str(tmp_path), "-o", "json")
    (found,) = json.loads(out)["sets"]
    assert (status, found["name"], len(found["modules"])) == (0, str(tmp_path), 2)
    (field,) = found["input"]["fields"]
    assert field["path"] == ["spec", "name"]
    assert {(Path(a["module"]).name, a["row"]) for a in field["asked"]} >= {
        ("a.rego", 5),
        ("b.rego", 3),
    }


def test_policies_that_do_not_compile_are_told_with_file_and_row(
    analyze: Analyze, tmp_path: Path
) -> None:
    policy(tmp_path, "a.rego", "errors contains f(1)")
    status, out, err = analyze(str(tmp_path))
    assert (status, out) == (1, "")
    assert err.splitlines() == [
        "kube-sync: the policies do not compile",
        f"kube-sync: {tmp_path}/a.rego:3: rego_type_error: undefined function f",
    ]


def test_more_whole_fields_than_allowed_exit_with_1_and_print_all_the_same(
    analyze: Analyze,
) -> None:
    status, out, err = analyze(EU_PCI, "--max-whole", "2")
    assert (status, out) == (1, analyze(EU_PCI)[1])
    assert err == f"kube-sync: {EU_PCI}: 3 fields are read whole, --max-whole allows 2\n"
    assert analyze(EU_PCI, "--max-whole", "3")[0] == 0


def test_decision_that_no_policy_defines_is_no_decision_that_reads_nothing(
    analyze: Analyze,
) -> None:
    status, out, err = analyze(EU_PCI, "--decision", "io/k8s/federation/placement")
    assert (status, out) == (1, "")
    assert err == f"kube-sync: no policy of {EU_PCI} has a rule at io/k8s/federation/placement\n"


@pytest.mark.slow
def test_reader_who_has_seen_enough_is_no_error(analyze: Analyze) -> None:
    assert callable(analyze)  # which sets the environment
    command = f"{sys.executable} -m kube_sync analyze rego -o json | true; echo ${{PIPESTATUS[0]}}"
    finished = subprocess.run(
        ["/bin/bash", "-c", command], capture_output=True, text=True, timeout=60, check=True
    )
    assert finished.stdout == "0\n"
    progress = [line for line in finished.stderr.splitlines() if line.endswith(" …")]
    assert finished.stderr.splitlines() == progress  # told where it takes long


def test_other_decisions_are_analysed_by_their_path(analyze: Analyze) -> None:
    status, out, _ = analyze("rego/system", "--decision", "system/authz/allow", "-o", "json")
    (found,) = json.loads(out)["sets"]
    assert (status, found["name"]) == (0, "rego/system")
    assert ["method"] in [field["path"] for field in found["input"]["fields"]]


def test_impure_builtins_are_named_with_their_callers(analyze: Analyze, tmp_path: Path) -> None:
    policy(tmp_path, "a.rego", "errors contains m if m := time.now_ns()")
    _, out, _ = analyze(str(tmp_path))
    assert f"time.now_ns: its answer changes without any data; called by {tmp_path}/a.rego:3" in out


EXAMPLES = "docs/policy-reference/_examples"


@pytest.mark.parametrize(
    ("example", "decision", "expected"),
    [
        ("src/pages/_examples/k8s", "kubernetes/validating/existence", "yes"),
        (
            f"{EXAMPLES}/time/now_ns/past",
            "play",
            "no: the decision reads what no class covers: time.now_ns",
        ),
        (
            f"{EXAMPLES}/strings/lower/normalize-role",
            "play",
            "no: the decision reads data that the replicator does not write: data.admin_roles",
        ),
    ],
)
def test_policies_of_opas_documentation_share_answers_or_not(
    analyze: Analyze, example: str, decision: str, expected: str
) -> None:
    policies = str(opa_pages() / example / "policy.rego")
    _, text, _ = analyze(policies, "--decision", decision)
    assert text.splitlines()[-1] == f"  answers by class (admission.classes): {expected}"
    _, out, _ = analyze(policies, "--decision", decision, "-o", "json")
    (found,) = json.loads(out)["sets"]
    reason = None if expected == "yes" else expected.removeprefix("no: ")
    assert found["answers"] == {"shared": reason is None, "reason": reason}


def demo_objects(namespace: str) -> list[Any]:
    """Four clusters, and six ReplicaSets that ask for three different things."""
    clusters = [cluster(name, *found) for name, found in CLUSTERS.items()]
    sets = [
        replica_set(f"{word}-{number}", eu=word == "eu", pci="2" if word == "pci" else None)
        for word in ("eu", "pci", "any")
        for number in range(2)
    ]
    for found in (*clusters, *sets):
        found["metadata"]["namespace"] = namespace
    return [*clusters, *sets]


def check_savings(out: str) -> None:
    (found,) = json.loads(out)["sets"]
    saved = found["savings"]
    sets = saved["resources"]["replicasets"]
    assert (saved["objects"], saved["classes"]) == (10, 3)
    assert (sets["objects"], sets["classes"]) == (6, 3)
    assert saved["resources"]["clusters"]["objects"] == 4
    assert saved["resources"]["clusters"]["classes"] is None
    assert 0 < saved["projected_bytes"] < saved["listed_bytes"]


@pytest.mark.parametrize("form", quickly(1, ["list", "lines"]))
def test_exported_objects_tell_what_is_saved_without_a_cluster(
    analyze: Analyze, tmp_path: Path, form: str
) -> None:
    objects, file = demo_objects("shop"), tmp_path / "objects"
    whole = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}, indent=4)
    file.write_text(whole if form == "list" else "\n".join(map(json.dumps, objects)))
    status, out, err = analyze(EU_PCI, "--objects", str(file), "-o", "json")
    assert (status, err) == (0, "")
    check_savings(out)


def test_cluster_is_read_and_tells_what_is_saved(
    analyze: Analyze, stack: RunningStack, namespace: str, tmp_path: Path
) -> None:
    objects = demo_objects(namespace)
    stack.kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(
        {"apiVersion": "v1", "kind": "List", "items": objects}
    ))  # fmt: skip
    configuration = {
        "kubernetes": {"kubeconfig": str(stack.kubeconfigs["replicator"])},
        "replicate": {"namespaces": [namespace]},
    }
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump(configuration), encoding="utf-8")
    status, out, err = analyze(EU_PCI, "--cluster", "--config", str(file), "-o", "json")
    assert (status, err) == (0, "")
    check_savings(out)
    assert json.loads(out)["sets"][0]["savings"]["source"] == stack.apiserver_url


def test_policies_of_a_running_opa_are_analysed_as_it_compiled_them(
    analyze: Analyze, opa: RunningOpa, tmp_path: Path
) -> None:
    source = (ROOT / EU_PCI / "eu_pci.rego").read_text(encoding="utf-8")

    async def put() -> None:
        settings = Opa(opa.url, str(opa.token_files["replicator"]), str(opa.ca_file))
        async with opa_client(settings) as client:
            await client.put_policy("policies/placement/eu_pci.rego", source)

    asyncio.run(put())
    configuration = {"opa": opa_settings(opa.url, opa.ca_file, opa.token_files["replicator"])}
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump(configuration), encoding="utf-8")
    status, out, err = analyze("--live", "--config", str(file), "-o", "json")
    assert (status, err) == (0, "")
    (found,) = json.loads(out)["sets"]
    assert found["name"] == opa.url
    assert "policies/placement/eu_pci.rego" in found["modules"]
    (expected,) = json.loads(analyze(EU_PCI, "-o", "json")[1])["sets"]
    assert renamed(found) == renamed(expected)


def renamed(found: Any) -> Any:
    """Return what is read, with the modules' names cut down to those of files."""
    text = json.dumps({name: found[name] for name in ("input", "resources", "whole", "impure")})
    return text.replace("policies/placement/", "").replace(f"{EU_PCI}/", "")


def test_running_opa_is_analysed_without_a_program_but_without_rows(
    analyze: Analyze, opa: RunningOpa, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBE_SYNC_OPA_BINARY", "/no/opa")
    configuration = {"opa": opa_settings(opa.url, opa.ca_file, opa.token_files["replicator"])}
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump(configuration), encoding="utf-8")
    arguments = ("--live", "--config", str(file), "--decision", "system/authz/allow")
    status, out, err = analyze(*arguments, "-o", "json")
    assert status == 0
    assert err.startswith(
        'kube-sync: rows are not known: opa.binary: there is no program "/no/opa"'
    )
    (found,) = json.loads(out)["sets"]
    rows = {ask["row"] for field in found["input"]["fields"] for ask in field["asked"]}
    assert rows == {None}
