"""What shells complete, by the shells themselves."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from kube_sync.cli import parser
from kube_sync.cli.completion import script
from tests.commandline import kube_sync

_ASK = """
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
_shtab_kube_sync
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        (["wh"], {"why", "why-not", "what-if"}),
        (["why", "--names"], {"--namespace"}),
        (["decisions", "-o", ""], {"text", "wide", "json", "yaml", "name"}),
        (["remediate", "ap"], {"apply", "approve"}),
        (["completion", ""], {"bash", "zsh", "fish"}),
        (["config", "--config", "kub"], {"kube.yaml"}),
    ],
)
def test_bash_completes_commands_options_values_and_files(
    tmp_path: Path, words: list[str], completed: set[str]
) -> None:
    (tmp_path / "kube.yaml").touch()
    file = tmp_path / "script"
    file.write_text(script(parser(), "bash"), encoding="utf-8")
    bash = shutil.which("bash")
    assert bash is not None
    asked = [bash, "-c", _ASK, "bash", str(file), "kube-sync", *words]
    finished = subprocess.run(
        asked, cwd=tmp_path, capture_output=True, text=True, timeout=30, check=True
    )
    assert set(finished.stdout.split()) == completed


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_script_is_one_that_the_shell_understands(tmp_path: Path, shell: str) -> None:
    text = kube_sync("completion", shell).stdout
    assert "why-not" in text
    if (program := shutil.which(shell)) is not None:
        file = tmp_path / "script"
        file.write_text(text, encoding="utf-8")
        checked = subprocess.run(
            [program, "-n", str(file)], capture_output=True, text=True, timeout=30, check=False
        )
        assert (checked.returncode, checked.stderr) == (0, "")
