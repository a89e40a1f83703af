from __future__ import annotations

import argparse

import pytest

from tools.documenting.commands import rendered, sections
from tools.documenting.readers import COMMANDS, ROOT

PAGE = (ROOT / "docs/cli.md").read_text(encoding="utf-8")


def test_the_page_is_what_the_parser_says_now() -> None:
    assert rendered() == PAGE


def test_every_command_that_reads_the_configuration_has_a_section() -> None:
    assert [name for name in COMMANDS if f"\n## `kube-sync {name}`\n" not in PAGE] == []
    assert "\n### `kube-sync remediate approve`\n" in PAGE


def test_the_width_of_the_terminal_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    assert rendered() == PAGE


def _section(common: str = "", epilog: str = "") -> str:
    """Return the section of a command with an argument of each form."""
    root = argparse.ArgumentParser("x")
    command = root.add_subparsers().add_parser("do", description="Does *it*.", epilog=epilog)
    command.add_argument("name", nargs="?", metavar="A|B", help="a name")
    command.add_argument("files", nargs="+", metavar="FILE", help="files")
    command.add_argument(
        "-o", "--output", choices=["a", "b"], default="a", help="default: %(default)s"
    )
    command.add_argument("--level", metavar="N", choices=["1", "2"], required=True, help="how much")
    command.add_argument("--all", action="store_true", help="all of them")
    command.add_argument("--explain", nargs="?", metavar="KEY", help="a key")
    command.add_argument("--hidden", help=argparse.SUPPRESS)
    (section,) = sections(root, common)
    return section


def test_every_form_of_an_argument_is_shown_as_it_is_typed() -> None:
    assert (
        _section()
        == """\
## `x do`
Does \\*it\\*.

| argument | meaning |
|---|---|
| `[A\\|B]` | a name |
| `FILE …` | files |
| `-o {a,b}, --output {a,b}` | default: a |
| `--level N` | how much (1, 2); required |
| `--all` | all of them |
| `--explain [KEY]` | a key |
"""
    )


def test_examples_and_exit_statuses_are_kept_and_what_all_commands_say_is_left_out() -> None:
    epilog = "examples:\n  x do a\n      does it\n\nexit status: 0 if <done>\n\nMore.\n\nOf all.\n"
    assert _section("Read more.\nOf all.\n", epilog).endswith(
        "```text\nx do a\n    does it\n```\n\n**Exit status**: 0 if \\<done>\n\nMore.\n"
    )
