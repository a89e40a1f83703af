"""What several commands have on their command lines."""

from __future__ import annotations

import argparse

import pytest

from kube_sync.cli.options import (
    add_config,
    add_output,
    add_several,
    check_standard_input,
    explain,
)
from kube_sync.errors import Misconfigured


def test_options_that_commands_share() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--config")
    below = parser.add_subparsers().add_parser("below")
    add_config(below)
    add_output(below, "text", "json")
    add_several(below, "-f", "--filename", metavar="FILE", help="a file")
    found = parser.parse_args(["--config", "c", "below", "-f", "a", "-f", "b"])
    assert vars(found) == {"config": "c", "output": "text", "filename": ["a", "b"]}
    assert "a file (repeatable)" in below.format_help()


def test_option_that_is_required_has_to_be_given(capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    add_several(parser, "-f", metavar="FILE", help="a file", required=True)
    with pytest.raises(SystemExit):
        parser.parse_args([])
    assert "required: -f" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("examples", "end"), [("examples:\n  one\n", "examples:\n  one\n\nend"), ("", "end")]
)
def test_examples_come_before_what_all_commands_end_with(examples: str, end: str) -> None:
    parser = argparse.ArgumentParser(epilog="end")
    explain(parser, "It does\nthis.", examples)
    assert parser.format_help().endswith(f"{end}\n")
    assert "It does\nthis." in parser.format_help()


def test_standard_input_is_there_once() -> None:
    check_standard_input(["-", None, "a"])
    with pytest.raises(Misconfigured, match="standard input can be read once only"):
        check_standard_input(["-", "-"])
