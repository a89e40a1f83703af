"""The hooks, as the real pre-commit installs and runs them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tools.servers.binaries import ensure_binary

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

ROOT = Path(__file__).resolve().parents[2]
SCENARIO = "placement.scenario.yaml"


class Repository:
    """A repository of somebody with policies, and with our hooks."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        programs = [str(ensure_binary("opa").parent), str(Path(sys.executable).parent)]
        self.environment = os.environ | {
            "PATH": os.pathsep.join([*programs, os.environ["PATH"]]),
            "PRE_COMMIT_HOME": str(folder.parent / "installed"),
        }

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )

    def hooks(self) -> tuple[int, str]:
        assert self.run("git", "add", "--all").returncode == 0
        ended = self.run("pre-commit", "run", "--all-files", "--color=never")
        return ended.returncode, ended.stdout + ended.stderr


def test_hooks_run_scenarios_and_format_rego(tmp_path: Path) -> None:
    repository = Repository(tmp_path / "policies")
    shutil.copytree(ROOT / "tests/scenarios/eu_pci", repository.folder)
    policy = repository.folder / "eu_pci.rego"
    formatted = (ROOT / "rego/examples/eu_pci/eu_pci.rego").read_text(encoding="utf-8")
    policy.write_text(formatted.replace("\t", "    "))
    scenario = repository.folder / SCENARIO
    scenario.write_text(scenario.read_text().replace("../../../rego/examples/eu_pci", policy.name))
    repository.run("git", "init", "--quiet")
    revision = repository.run("git", "-C", str(ROOT), "rev-parse", "HEAD").stdout.strip()
    hooks = [{"id": "kube-sync-test"}, {"id": "opa-fmt"}]
    config = {"repos": [{"repo": str(ROOT), "rev": revision, "hooks": hooks}]}
    (repository.folder / ".pre-commit-config.yaml").write_text(yaml.safe_dump(config))

    status, said = repository.hooks()
    assert status == 1, said
    assert "files were modified by this hook" in said
    assert policy.read_text() == formatted
    status, said = repository.hooks()
    assert (status, said.count("Passed")) == (0, 2), said

    scenario.write_text(scenario.read_text().replace("west2: 1", "west2: 2", 1))
    status, said = repository.hooks()
    assert status == 1
    assert f"FAIL  {SCENARIO}:" in said
