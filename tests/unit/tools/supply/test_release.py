"""What a release says of itself, and who signs it; `tests/e2e/test_release.py` publishes one."""

from __future__ import annotations

import re
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from tools.servers.errors import ToolError
from tools.servers.versions import GO_MODULE, read_go_mod, required, tools
from tools.supply.notes import notes
from tools.supply.provenance import predicate
from tools.supply.release import key_signer, workflow_signer

ROOT = Path(__file__).resolve().parents[4]
COMMIT = "c0" * 20
BEGUN, ENDED = (datetime(2026, 1, 2, 3, minute, tzinfo=UTC) for minute in (4, 5))
WORKFLOW = {
    "GITHUB_SERVER_URL": "https://github.com",
    "GITHUB_REPOSITORY": "team/kube-sync",
    "GITHUB_RUN_ID": "7",
    "GITHUB_RUN_ATTEMPT": "2",
    "GITHUB_WORKFLOW_REF": "team/kube-sync/.github/workflows/release.yml@refs/tags/v1.2.0",
}
IDENTITY = f"https://github.com/{WORKFLOW['GITHUB_WORKFLOW_REF']}"
ODD = 'v1";{touch,a};"$(shell touch b)$$(touch c)`touch d`$(TAG)'
CHANGELOG = """\
# Changelog

## Unreleased
Later.

## 1.2.0 - 2026-12-01

### Upgrade
1. Steps.

## 1.2.0-rc.1
Before.
"""


def told(revision: str = COMMIT, environment: dict[str, str] | None = None) -> dict[str, object]:
    made = predicate(
        source="https://example.com/it",
        tag="v1.2.0",
        revision=revision,
        bases={"python": "ab" * 32},
        environment=environment or {},
        between=(BEGUN, ENDED),
    )
    (source, base) = made["buildDefinition"]["resolvedDependencies"]
    assert base == {"uri": "python", "digest": {"sha256": "ab" * 32}}
    return {"source": source, **made["runDetails"]}


def test_provenance_of_a_commit_has_its_digest() -> None:
    assert told()["source"] == {
        "uri": f"git+https://example.com/it@{COMMIT}",
        "digest": {"gitCommit": COMMIT},
    }


@pytest.mark.parametrize("revision", [f"{COMMIT}-changed", "unknown"])
def test_provenance_of_what_was_changed_names_no_digest(revision: str) -> None:
    assert told(revision)["source"] == {"uri": f"git+https://example.com/it@{revision}"}


def test_provenance_names_the_run_of_the_workflow_where_there_is_one() -> None:
    times = {"startedOn": "2026-01-02T03:04:00Z", "finishedOn": "2026-01-02T03:05:00Z"}
    assert told()["metadata"] == times
    found = told(environment=WORKFLOW)
    assert found["builder"] == {"id": IDENTITY}
    run = "https://github.com/team/kube-sync/actions/runs/7/attempts/2"
    assert found["metadata"] == {"invocationId": run, **times}


def test_workflow_signs_as_what_it_is_and_nothing_else_does() -> None:
    assert workflow_signer(WORKFLOW).verify == (
        f"--certificate-identity={IDENTITY}",
        "--certificate-oidc-issuer=https://token.actions.githubusercontent.com",
    )
    with pytest.raises(ToolError, match="give a key"):
        workflow_signer({})


def test_key_without_its_public_half_is_refused(tmp_path: Path) -> None:
    (tmp_path / "cosign.key").touch()
    with (
        pytest.raises(ToolError, match=r"cosign\.pub is missing"),
        key_signer(tmp_path / "cosign.key"),
    ):
        pass


def test_notes_of_a_release_are_its_part_of_the_changelog() -> None:
    assert notes("v1.2.0", "1.2.0", CHANGELOG) == "### Upgrade\n1. Steps.\n"
    assert notes("v1.2.0-rc.1", "1.2.0-rc.1", CHANGELOG) == "Before.\n"


@pytest.mark.parametrize(
    ("tag", "version", "said"),
    [
        ("v1.2.1", "1.2.0", "the tag is v1.2.1"),
        ("1.2.0", "1.2.0", "the tag is 1.2.0"),
        ("v1.2", "1.2", "has no part `## 1.2`"),
    ],
)
def test_tag_that_package_or_changelog_do_not_have_is_refused(
    tag: str, version: str, said: str
) -> None:
    with pytest.raises(ToolError, match=said):
        notes(tag, version, CHANGELOG)


def test_workflow_publishes_by_the_command_that_is_tried() -> None:
    text = (ROOT / ".github/workflows/release.yml").read_text(encoding="utf-8")
    steps = yaml.safe_load(text)["jobs"]["release"]["steps"]
    commands = [step["run"] for step in steps if "run" in step]
    assert any(re.match('make release TO="[^"]+" >', command) for command in commands)
    assert "cosign" not in text.partition("jobs:")[2]
    page = (ROOT / "docs/releases.md").read_text(encoding="utf-8")
    assert "\nmake release TO=registry.example.com/team/kube-sync KEY=cosign.key >" in page


@pytest.mark.parametrize(
    ("variables", "arguments"),
    [
        (["TAG"], ["notes", ODD]),
        (["TO"], ["release", "--to", ODD]),
        (["TO", "KEY"], ["release", "--to", ODD, "--key", ODD]),
    ],
)
def test_what_make_is_told_of_a_release_reaches_programs_as_text(
    tmp_path: Path, variables: list[str], arguments: list[str]
) -> None:
    """Neither make nor its shell runs anything of it."""
    python = tmp_path / "venv/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\nprintf '%s\\n' \"$@\"\n", encoding="utf-8")
    python.chmod(0o755)
    for name in ("requirements-dev.lock", "pyproject.toml", "venv/.installed"):
        (tmp_path / name).touch()
    before = sorted(tmp_path.rglob("*"))
    make = ["make", "--no-print-directory", f"--file={ROOT / 'Makefile'}", "VENV=venv"]
    told = [*make, arguments[0], *(f"{name}={ODD}" for name in variables)]
    ran = subprocess.run(told, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines() == ["-m", "tools.supply", *arguments]
    assert sorted(tmp_path.rglob("*")) == before


def test_programs_are_pinned_with_their_sums_and_not_built_with_the_others() -> None:
    folder = GO_MODULE / "release"
    versions = required(read_go_mod(folder))
    sums = (folder / "go.sum").read_text(encoding="utf-8")
    for module in ("github.com/sigstore/cosign/v3", "github.com/google/go-containerregistry"):
        assert f"{module} {versions[module]} h1:" in sums
    assert not {"cosign", "crane"} & set(tools())
