from __future__ import annotations

import pytest

from kube_sync.cli import COMMANDS
from kube_sync.cli.completing import completed

FILES, NO_FILES = ":0", ":4"


def names(*words: str) -> list[str]:
    return [line.partition("\t")[0] for line in completed(words)]


def test_every_command_is_completed_with_what_it_is_for() -> None:
    *lines, directive = completed([""])
    every = {name: one.what for group in COMMANDS.values() for name, one in group.items()}
    assert dict(line.split("\t") for line in lines) == every
    assert directive == NO_FILES


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["wh"], ["why", "why-not", "what-if", NO_FILES]),
        (["why", "--names"], ["--namespace", NO_FILES]),
        (["decisions", "-o", ""], ["text", "wide", "json", "yaml", "name", NO_FILES]),
        (["decisions", "rs/web", "-o", "ya"], ["yaml", NO_FILES]),
        (["remediate", "ap"], ["apply", "approve", NO_FILES]),
        (["remediate", "status", "-o", "n"], ["name", NO_FILES]),
        (["completion", "z"], ["zsh", NO_FILES]),
        (["why", "--kube"], ["--kubeconfig", NO_FILES]),
        (["why", "--kubeconfig", ""], [FILES]),
        (["why", "--context", ""], [NO_FILES]),
        (["--context", ""], [NO_FILES]),
        (["--kubeconfig", ""], [FILES]),
        (["--context", "why", "wh"], ["why", "why-not", "what-if", NO_FILES]),
        (["plan", "-f", "po"], [FILES]),
        (["why", "rs/we"], [NO_FILES]),
        (["nonsense", ""], None),
    ],
)
def test_commands_options_values_and_files_are_completed(
    words: list[str], found: list[str] | None
) -> None:
    assert names(*words) == (found if found is not None else names(""))


def test_nothing_typed_is_completed_as_an_empty_word() -> None:
    assert names() == names("")
