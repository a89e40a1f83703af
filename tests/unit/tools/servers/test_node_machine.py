from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tools.servers import node_machine
from tools.servers.errors import ToolError
from tools.servers.node_machine import Machine, remove_cgroups
from tools.servers.pids import children


def test_who_is_not_root_is_told_so_and_nothing_is_made(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(ToolError, match="needs root"):
        Machine(tmp_path, Path("pause"))
    assert [*tmp_path.iterdir()] == []


def test_children_are_those_that_run() -> None:
    waiting = "import sys; sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", waiting], stdin=subprocess.PIPE) as child:
        assert child.pid in children(os.getpid())
        child.communicate()
    assert child.pid not in children(os.getpid())


def test_cgroups_that_are_busy_for_a_moment_are_removed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cgroup = tmp_path / "node"
    (cgroup / "pods/one").mkdir(parents=True)
    process = cgroup / "pods/process"  # a folder with a file can be removed as little
    process.touch()
    monkeypatch.setattr(time, "sleep", lambda _: process.unlink())
    remove_cgroups(cgroup)
    assert not cgroup.exists()


def test_cgroup_that_stays_busy_is_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "process").touch()
    monkeypatch.setattr(node_machine, "_PATIENCE", 0.0)
    with pytest.raises(OSError, match=str(tmp_path)):
        remove_cgroups(tmp_path)
