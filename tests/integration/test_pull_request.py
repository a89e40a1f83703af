"""The steps of the GitHub Action and of GitLab's job, run as their forges run them.

The forge is a stand-in on this machine; kube-sync and OPA are real. `install.sh` has a test of its
own, which takes long.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
import yaml

from kube_sync.decisions.decision import REQUESTED
from kube_sync.opa.packs import write as write_pack
from tests.fakes.forge import Forge, forge
from tests.parts import quickly
from tests.sarif import placed, valid_sarif
from tests.unit.inspect.plan.fleets import (
    FLEET,
    NAMESPACE,
    PLACEMENT,
    POLICY,
    WORKLOADS,
    cluster,
    policy,
    replicaset,
    write,
)
from tools.servers.binaries import ensure_binary
from tools.servers.versions import tools

ROOT = Path(__file__).resolve().parents[2]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
MARKER = "<!-- kube-sync: pull request -->"
RULE = "_fit contains name if { # not on c1"
EDIT = POLICY.replace("_fit contains name if {", RULE).replace(
    "== _zone(input.metadata.annotations)", '== _zone(input.metadata.annotations)\n\tname != "c1"'
)
SCENARIO = """\
policies: policies/policy.rego
clusters:
  fleet/c1: {labels: {example.com/zone: eu}}
  fleet/c2: {labels: {example.com/zone: eu}}
objects:
  - apiVersion: apps/v1
    kind: ReplicaSet
    metadata: {name: web, namespace: shop, annotations: {example.com/zone: eu}}
cases:
  - name: web runs on every cluster of its zone
    object: shop/web
    expect: {clusters: [c1, c2]}
"""


@dataclass
class Job:
    """A checkout with an edit, and the environment of a job on it."""

    folder: Path
    forge: Forge
    environment: dict[str, str]
    outputs: dict[str, dict[str, str]] = field(default_factory=dict)

    def edit(self, source: str) -> None:
        (self.folder / "policies/policy.rego").write_text(source)

    def sh(self, script: str, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["/bin/bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script],
            cwd=self.folder,
            env={**self.environment, **more},
            capture_output=True,
            text=True,
            check=False,
        )

    @property
    def reports(self) -> Path:
        return self.folder / "kube-sync-reports"


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    folder = tmp_path / "checkout"
    (folder / "policies").mkdir(parents=True)
    (folder / "web.scenario.yaml").write_text(SCENARIO)
    write(folder / "fleet.jsonl", policy(), *FLEET, *WORKLOADS)
    programs = [str(Path(sys.executable).parent), str(ensure_binary("opa").parent)]
    with forge() as found:
        environment = {
            "PATH": os.pathsep.join([*programs, os.environ["PATH"]]),
            "HOME": str(tmp_path),
        }
        job = Job(folder, found, environment)
        job.edit(EDIT)
        yield job


def on_github(job: Job, *, number: str = "7", **inputs: str) -> int:
    """Run the steps of the action that are scripts; return how the job ends."""
    given = {name: str(one.get("default", "")) for name, one in ACTION["inputs"].items()}
    given |= {"token": "t0ken"} | {name.replace("_", "-"): text for name, text in inputs.items()}
    runner = {
        "GITHUB_ACTION_PATH": str(ROOT),
        "GITHUB_API_URL": job.forge.url,
        "GITHUB_REPOSITORY": "shop/policies",
        "GITHUB_STEP_SUMMARY": str(job.folder / "summary.md"),
    }
    known = {f"inputs.{name}": text for name, text in given.items()}
    known["github.event.pull_request.number"] = number
    worst = 0
    for step in ACTION["runs"]["steps"]:
        if "run" not in step or step["id"] == "install":
            continue
        if "if" in step and not holds(step["if"], known):
            continue
        output = job.folder / f"{step['id']}.output"
        output.write_text("")
        variables = {key: filled(text, known) for key, text in step["env"].items()}
        ended = job.sh(step["run"], **runner, **variables, GITHUB_OUTPUT=str(output))
        print(ended.stdout, ended.stderr)  # noqa: T201 - shown when a test fails
        worst = worst or ended.returncode
        for line in output.read_text().splitlines():
            name, _, text = line.partition("=")
            known[f"steps.{step['id']}.outputs.{name}"] = text
    job.outputs["run"] = {k.rpartition(".")[2]: v for k, v in known.items() if "outputs" in k}
    return worst


def filled(text: str, known: Mapping[str, str]) -> str:
    return re.sub(r"\$\{\{ (\S+) \}\}", lambda found: known.get(found[1], ""), str(text))


def holds(condition: str, known: Mapping[str, str]) -> bool:
    """Evaluate the conditions that the action has: comparisons with text, joined by &&."""
    inner = condition.removeprefix("${{ ").removesuffix(" }}")
    for part in inner.split(" && "):
        if part == "!cancelled()":
            continue
        name, operator, text = re.fullmatch(r"(\S+) (==|!=) '(.*)'", part).groups()  # type: ignore[union-attr]
        if (known.get(name, "") == text) != (operator == "=="):
            return False
    return True


WHOLE = {"policies": "policies", "scenarios": ".", "export": "fleet.jsonl"}


def test_pull_request_has_one_comment_that_each_push_changes(job: Job) -> None:
    job.forge.add("please review")
    assert on_github(job, **WHOLE) == 1  # the scenario says otherwise
    first, second = job.forge.comments
    assert first["body"] == "please review"
    assert second["body"].startswith(f"{MARKER}\n\n### Plan: 2 to move (of 3 workloads)\n")
    assert "| moves | `shop/web` | `c1,c2` | `c2` |" in second["body"]
    assert "**Rules**" in second["body"]
    assert "`policies/policy.rego:" in second["body"]
    assert "<details open><summary>Scenarios: 0 passed, 1 failed" in second["body"]
    assert (job.folder / "summary.md").read_text() == second["body"]
    assert job.outputs["run"]["plan-status"] == "2"
    assert job.outputs["run"]["test-status"] == "1"
    _reports_have_file_and_row(job)

    job.edit(POLICY)
    assert on_github(job, **WHOLE) == 0
    assert [one["id"] for one in job.forge.comments] == [100, 101]
    assert second["body"].startswith(f"{MARKER}\n\n### Plan: nothing changes (of 3 workloads)\n")
    assert "<details><summary>Scenarios: 1 passed" in second["body"]
    assert [method for method, _ in job.forge.calls] == ["POST", "PATCH"]
    assert job.forge.tokens == {"Bearer t0ken"}


def _reports_have_file_and_row(job: Job) -> None:
    row = EDIT.splitlines().index(RULE) + 1
    plan = valid_sarif((job.reports / "plan.sarif").read_text())
    assert ("plan/moves", "policies/policy.rego", row) in placed(plan)
    tests = valid_sarif((job.reports / "test.sarif").read_text())
    assert ("test/failed", "web.scenario.yaml", 10) in placed(tests)
    valid_sarif((job.reports / "analyze.sarif").read_text())
    (case,) = ET.parse(job.reports / "test.xml").getroot().iter("testcase")  # noqa: S314 - our own
    assert (case.get("file"), case.get("line")) == ("web.scenario.yaml", "10")


def test_policy_that_does_not_compile_is_said_where_it_is(job: Job) -> None:
    job.edit(POLICY.replace("_fit contains", "_fit contain"))
    assert on_github(job, policies="policies", export="fleet.jsonl") == 1
    (comment,) = job.forge.comments
    assert "### Plan: there is none" in comment["body"]
    assert "policies/policy.rego:" in comment["body"]
    plan = valid_sarif((job.reports / "plan.sarif").read_text())
    assert {(rule, file) for rule, file, _ in placed(plan)} == {("not-run", "policies/policy.rego")}


COST = "policy.example.com/cost"
PLACED = '{"clusters":{"c1":{"weight":1},"c2":{"weight":1}},"rebalance":true}'


@pytest.fixture
def pack(job: Job) -> Path:
    """The parameters of a pack that is loaded as docs/policy-packs.md says, in the checkout."""
    folder = job.folder / "policies"
    (folder / "policy.rego").unlink()
    write_pack("cost-ceilings", folder)
    loaded = list[dict[str, Any]]()
    for one in folder.iterdir():
        modules = {file.name: file.read_text() for file in one.glob("*.rego")}
        loaded.append(policy(name=f"policy-{one.name}") | {"data": modules})
        loaded.append(yaml.safe_load((one / "parameters.yaml").read_text()))
    web = replicaset("web", "eu")
    # As the webhook left it; only an installation has the key of the seal.
    note = json.dumps({PLACEMENT: None, REQUESTED: "sealed"}, separators=(",", ":"))
    web["metadata"]["annotations"] |= {PLACEMENT: PLACED, REQUESTED: note}
    fleet = (cluster("c1", **{COST: "2"}), cluster("c2", **{COST: "4"}))
    write(job.folder / "fleet.jsonl", *loaded, *fleet, web)
    labelled = f"policies: {{labelled: {{namespaces: [{NAMESPACE}]}}}}\n"
    (job.folder / "kube-sync.yaml").write_text(labelled)
    return folder / "cost-ceilings/parameters.yaml"


@pytest.mark.parametrize(
    ("ceiling", "status", "said"),
    quickly(
        1,
        [
            ("3", 0, "\n| moves | `shop/web` | `c1,c2` | `c1` | "),
            ("10", 0, "### Plan: nothing changes (of 1 workloads)\n"),
            ('"3"', 1, "must be of type number, and is of type string"),
            ("3 EUR", 1, "policies/cost-ceilings/parameters.yaml: ceiling: not JSON: "),
        ],
    ),
)
def test_changed_parameter_is_planned(
    job: Job, pack: Path, ceiling: str, status: int, said: str
) -> None:
    pack.write_text(pack.read_text().replace("ceiling: '10'", f"ceiling: '{ceiling}'"))
    given = {"policies": "policies", "export": "fleet.jsonl", "config": "kube-sync.yaml"}
    assert on_github(job, **given) == status
    (comment,) = job.forge.comments
    assert said in comment["body"]
    assert "pending" not in comment["body"]


def test_data_that_the_configuration_does_not_allow_is_noted(job: Job, pack: Path) -> None:
    assert pack.exists()
    on_github(job, policies="policies", export="fleet.jsonl")
    (comment,) = job.forge.comments
    assert "cost-ceilings is labelled as data and left out: its namespace is" in comment["body"]


def test_configuration_of_a_pull_request_names_no_program(job: Job) -> None:
    evil = job.folder / "evil"
    evil.write_text("#!/bin/sh\ntouch done\n")
    evil.chmod(0o755)
    (job.folder / "kube-sync.yaml").write_text("opa: {binary: ./evil}\n")
    assert on_github(job, **WHOLE, config="kube-sync.yaml") == 1
    assert job.outputs["run"]["plan-status"] == "2"
    assert not (job.folder / "done").exists()


@pytest.mark.slow
def test_row_of_a_module_in_a_config_map_is_that_of_the_manifest(job: Job) -> None:
    (job.folder / "policies/policy.rego").unlink()
    manifest = job.folder / "policies/placement.yaml"
    block = EDIT.replace("\n", "\n    ").replace("    \n", "\n")
    whole = policy(labels={})
    head = yaml.safe_dump({key: whole[key] for key in ("apiVersion", "kind", "metadata")})
    manifest.write_text(f"{head}data:\n  policy.rego: |\n    {block}")
    assert on_github(job, policies="policies", export="fleet.jsonl") == 0
    rows = manifest.read_text().splitlines()
    (_, file, row) = placed(valid_sarif((job.reports / "plan.sarif").read_text()))[0]
    assert (file, rows[row - 1].strip()) == ("policies/placement.yaml", RULE)


@pytest.fixture
def canned(job: Job) -> Job:
    """A job whose kube-sync ends as its variables say: of the scripts alone."""
    program = job.folder / "bin/kube-sync"
    program.parent.mkdir()
    program.write_text(
        '#!/bin/sh\necho "### $1: $TEXT"\n[ "$1" != plan ] || exit "$PLAN"\nexit "$OTHER"\n'
    )
    program.chmod(0o755)
    job.environment |= {"PLAN": "0", "OTHER": "0", "TEXT": "nothing changes"}
    job.environment["PATH"] = f"{program.parent}{os.pathsep}{job.environment['PATH']}"
    return job


@pytest.mark.slow
@pytest.mark.parametrize(
    ("plan", "other", "fail_on", "status"),
    [
        (0, 0, "problems", 0),
        (2, 0, "problems", 0),
        (3, 0, "problems", 1),
        (64, 0, "problems", 1),
        (0, 1, "problems", 1),
        (2, 0, "changes", 1),
        (0, 0, "changes", 0),
        (3, 1, "never", 0),
    ],
)
def test_job_fails_on_what_it_is_told_to(
    canned: Job, plan: int, other: int, fail_on: str, status: int
) -> None:
    canned.environment |= {"PLAN": str(plan), "OTHER": str(other)}
    assert on_github(canned, **WHOLE, fail_on=fail_on) == status
    assert len(canned.forge.comments) == 1


def test_only_what_is_given_is_run(canned: Job) -> None:
    assert on_github(canned, policies="policies") == 0
    assert sorted(path.name for path in canned.reports.glob("*.status")) == ["analyze.status"]
    (canned.folder / "policies/policy.rego").unlink()
    assert on_github(canned, policies="policies", export="fleet.jsonl") == 0
    assert sorted(path.name for path in canned.reports.glob("*.status")) == ["plan.status"]


@pytest.fixture
def reports(job: Job) -> Callable[..., int]:
    """Reports without running anything; called, it comments."""
    job.reports.mkdir()

    def comment(plan: str = "### Plan: 1 to move", **environment: str) -> int:
        (job.reports / "plan.md").write_text(plan)
        (job.reports / "plan.status").write_text("2\n")
        script = f'"{ROOT}/pullrequest/comment.py" kube-sync-reports'
        defaults = {
            "PR_TOKEN": "t0ken",
            "PR_NUMBER": "7",
            "GITHUB_API_URL": job.forge.url,
            "GITHUB_REPOSITORY": "shop/policies",
        }
        return job.sh(script, **defaults | environment).returncode

    return comment


def test_comment_of_somebody_else_with_the_marker_is_left_alone(
    job: Job, reports: Callable[..., int]
) -> None:
    """Who could have theirs changed could hide the plan afterwards."""
    foreign = f"{MARKER}\nnothing to see here"
    job.forge.add(foreign)
    for login in ("policies-bot", None):
        job.forge.login = login
        assert reports() == 0
    bodies = [one["body"] for one in job.forge.comments]
    assert bodies[0] == foreign
    assert len(bodies) == 2  # made once, and changed by whoever cannot ask for its name


@pytest.mark.slow
def test_comments_with_names_are_kept_apart(job: Job, reports: Callable[..., int]) -> None:
    for name in ("staging", "production -->", "staging"):
        assert reports(PR_NAME=name) == 0
    first, second = (one["body"] for one in job.forge.comments)
    assert first.startswith("<!-- kube-sync: staging -->\n\n## staging\n")
    assert second.startswith("<!-- kube-sync: production --&gt; -->\n")


@pytest.mark.slow
def test_own_comment_is_found_behind_many(job: Job, reports: Callable[..., int]) -> None:
    for number in range(150):
        job.forge.add(f"comment {number}")
    assert reports() == 0
    assert reports("### Plan: nothing changes") == 0
    assert len(job.forge.comments) == 151
    assert "nothing changes" in job.forge.comments[-1]["body"]


def test_token_that_may_not_write_is_no_failure(job: Job, reports: Callable[..., int]) -> None:
    job.forge.writable = False
    assert reports() == 0
    assert job.forge.comments == []
    assert "### Plan: 1 to move" in (job.reports / "comment.md").read_text()


def test_forge_that_does_not_answer_is_one(job: Job, reports: Callable[..., int]) -> None:
    job.forge.broken = True
    assert reports() == 1
    assert reports(GITHUB_API_URL="http://127.0.0.1:1") == 1


def test_without_a_pull_request_nothing_is_commented(job: Job, reports: Callable[..., int]) -> None:
    assert reports(PR_NUMBER="") == 0
    assert reports(PR_TOKEN="") == 0
    assert job.forge.calls == []


def test_long_plan_is_cut_to_what_a_forge_takes(job: Job, reports: Callable[..., int]) -> None:
    rows = "\n".join(f"| moves | shop/ä{number} |" for number in range(10_000))
    (job.reports / "test.txt").write_text("```\n</details>\n" * 5_000 + "1 <b>failed</b>\n")
    (job.reports / "test.status").write_text("1\n")
    assert reports(f"### Plan: 10000 to move\n\n{rows}\n") == 0
    (comment,) = job.forge.comments
    assert len(comment["body"].encode()) < 65_536
    assert re.search(r"… \d+ more rows are in the reports of the job", comment["body"])
    assert (
        "<summary>Scenarios: 1 &lt;b&gt;failed&lt;/b&gt;</summary>\n\n ````text\n"
        in comment["body"]
    )


def test_no_row_of_a_comment_begins_with_what_others_wrote(
    job: Job, reports: Callable[..., int]
) -> None:
    """GitLab does what a row such as `/merge` says, also in a block with more than three ticks."""
    (job.reports / "test.txt").write_text("```\n/merge\n0 passed\n")
    (job.reports / "test.log").write_text("/close\n\r/approve\n")
    (job.reports / "test.status").write_text("1\n")
    assert reports() == 0
    (comment,) = job.forge.comments
    assert "\n ```\n /merge\n" in comment["body"]
    assert [row for row in comment["body"].splitlines() if row.startswith(("/", "```"))] == []


def test_merge_request_has_one_comment_too(canned: Job) -> None:
    job = canned
    _, template = yaml.safe_load_all((ROOT / "pullrequest/gitlab.yml").read_text(encoding="utf-8"))
    steps = template["kube-sync"]
    inputs = {"fail-on": "problems", **WHOLE}
    variables = {
        key: re.sub(r"\$\[\[ inputs\.(\S+) \]\]", lambda found: inputs.get(found[1], ""), text)
        for key, text in steps["variables"].items()
    }
    home = job.folder.with_name("home")
    environment = variables | {
        "PR_HOME": str(home),
        "CI_API_V4_URL": job.forge.url,
        "CI_PROJECT_ID": "3",
        "CI_MERGE_REQUEST_IID": "7",
    }
    token = {"KUBE_SYNC_COMMENT_TOKEN": "t0ken"}

    def run(**more: str) -> subprocess.CompletedProcess[str]:
        home.mkdir()
        (home / "source").symlink_to(ROOT)
        ended = job.sh("\n".join(steps["script"]), **environment, **more)
        assert not home.exists()
        return ended

    without = run()
    assert without.returncode == 0
    assert "### plan: nothing changes" in without.stdout
    assert job.forge.calls == []
    assert run(PLAN="3", TEXT="1 refused", **token).returncode == 1
    assert run(**token).returncode == 0
    (comment,) = job.forge.comments
    assert "### plan: nothing changes" in comment["body"]
    assert job.forge.calls == [
        ("POST", "/api/projects/3/merge_requests/7/notes"),
        ("PUT", "/api/projects/3/merge_requests/7/notes/100"),
    ]
    assert job.forge.tokens == {"t0ken"}
    assert steps["artifacts"]["reports"]["junit"] == f"{variables['PR_REPORTS']}/test.xml"


def schema_of(name: str) -> Any:
    folder = files("check_jsonschema.builtin_schemas.vendor")
    return msgspec.json.decode((folder / f"{name}.json").read_bytes())


@pytest.mark.parametrize(
    ("name", "file"), [("github-actions", "action.yml"), ("gitlab-ci", "pullrequest/gitlab.yml")]
)
def test_files_of_forges_are_valid_by_their_published_schemas(name: str, file: str) -> None:
    schema = schema_of(name)
    validate = jsonschema.validators.validator_for(schema)(schema)
    for document in yaml.safe_load_all((ROOT / file).read_text(encoding="utf-8")):
        assert [*validate.iter_errors(document)] == []
    assert [*validate.iter_errors({"runs": 1, "kube-sync": {"scripts": []}})]


def test_page_and_template_have_the_inputs_of_the_action() -> None:
    page = (ROOT / "docs/pull-requests.md").read_text(encoding="utf-8")
    told = {
        name
        for row in re.findall(r"^\| (`[a-z0-9`, -]+`) \|", page, re.MULTILINE)
        for name in re.findall(r"[a-z0-9-]+", row)
    }
    assert {*ACTION["inputs"], *ACTION["outputs"]} <= told | {"opa-sha256"}
    spec, _ = yaml.safe_load_all((ROOT / "pullrequest/gitlab.yml").read_text(encoding="utf-8"))
    shared = {*ACTION["inputs"]} - {"comment", "upload-sarif", "token", "opa-url", "opa-sha256"}
    assert shared <= {*spec["spec"]["inputs"]}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_installation_has_the_command_and_opa_by_its_digest(job: Job, tmp_path: Path) -> None:
    program = tmp_path / "opa_static"
    program.write_text("#!/bin/sh\necho opa\n")
    home = tmp_path / "home"
    environment = {
        **{key: text for key, text in os.environ.items() if key.startswith(("PIP_", "SSL_"))},
        "PATH": os.pathsep.join([f"{sys.base_prefix}/bin", "/usr/bin", "/bin"]),
        "PR_HOME": str(home),
        "PR_OPA_URL": program.as_uri(),
        "GITHUB_PATH": str(tmp_path / "path"),
    }
    install = f'"{ROOT}/pullrequest/install.sh"'
    refused = job.sh(install, **environment, PR_OPA_SHA256="0" * 64)
    assert refused.returncode != 0
    assert "its SHA-256 is not 000" in refused.stderr
    digest = hashlib.sha256(program.read_bytes()).hexdigest()
    (tmp_path / "opa_static.sha256").write_text(f"{digest}  opa_static\n")
    assert job.sh(install, **environment).returncode == 0
    assert (tmp_path / "path").read_text() == f"{home}/bin\n"
    said = subprocess.run([home / "bin/kube-sync", "--version"], capture_output=True, check=True)
    assert said.stdout.startswith(b"kube-sync ")
    assert os.access(home / "bin/opa", os.X_OK)


def test_installation_takes_the_version_of_opa_that_is_tested() -> None:
    script = (ROOT / "pullrequest/install.sh").read_text(encoding="utf-8")
    (pattern,) = re.findall(r"sed -n '(s/\S+ \S+)' \"\$root/tools/go.mod\"", script)
    said = subprocess.run(
        ["/bin/sed", "-n", pattern, ROOT / "tools/go.mod"], capture_output=True, check=True
    )
    assert said.stdout.decode().split() == [tools()["opa"].number]
