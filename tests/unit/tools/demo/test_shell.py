from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tools.demo import shell
from tools.demo.shell import write_shell


@pytest.fixture(autouse=True)
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have programs, and a kube-sync, that print what they are called with."""
    own = tmp_path / "bin of ours"
    own.mkdir()
    for name in ("kube-sync", "elsewhere"):
        file = own / name
        file.write_text(f'#!/bin/sh\necho "{name} $@"\n', encoding="utf-8")
        file.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(own / "python"))
    monkeypatch.setattr(shell, "ensure_binary", lambda name: own / name)


def _run(env: Path, command: str) -> str:
    ran = subprocess.run(
        ["/bin/sh", "-euc", f". '{env}'; {command}"],
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=True,
    )
    return ran.stdout.strip()


def test_shell_has_the_configuration_of_the_person(tmp_path: Path) -> None:
    env = write_shell(tmp_path, tmp_path / "kubeconfig", {"ledger": {"path": "/l.db"}})
    config = Path(_run(env, "echo $KUBE_SYNC_CONFIG"))
    assert yaml.safe_load(config.read_text(encoding="utf-8")) == {
        "kubernetes": {"kubeconfig": str(tmp_path / "kubeconfig")},
        "ledger": {"path": "/l.db"},
    }
    assert _run(env, "kube-sync history") == "kube-sync history"


@pytest.mark.parametrize(
    ("command", "where"),
    [
        ("history", "elsewhere kube-sync"),
        ("history replicaset/web -n shop", "elsewhere kube-sync"),
        ("verify", "elsewhere kube-sync"),
        ("replay --since 1h", "elsewhere kube-sync"),
        ("why replicaset/web --at 0s", "elsewhere kube-sync"),
        ("why replicaset/web --at=0s", "elsewhere kube-sync"),
        ("why replicaset/web", "kube-sync"),
        ("decisions", "kube-sync"),
    ],
)
def test_command_that_reads_a_ledger_in_a_volume_runs_there_and_no_other(
    tmp_path: Path, command: str, where: str
) -> None:
    program = str(tmp_path / "bin of ours/elsewhere")
    env = write_shell(tmp_path, tmp_path / "kubeconfig", {}, (program,))
    assert _run(env, f"kube-sync {command}") == f"{where} {command}"
