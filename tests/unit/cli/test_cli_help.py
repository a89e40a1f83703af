"""Help texts are short; what takes longer is in the description of a command."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import pytest

from kube_sync.cli import parser
from kube_sync.cli.options import explain, note

LONGEST = 70


def _texts(of: argparse.ArgumentParser) -> Iterator[tuple[str, str]]:
    """Yield each help text below a parser, with what it is about."""
    for action in of._actions:  # noqa: SLF001 - argparse has no other way
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            for listed in action._choices_actions:  # noqa: SLF001
                yield f"{of.prog} {listed.dest}", listed.help or ""
            for below in action.choices.values():
                yield from _texts(below)
        elif action.help != argparse.SUPPRESS:
            name = "/".join(action.option_strings) or str(action.metavar or action.dest)
            values = {"default": action.default, "prog": of.prog}
            yield f"{of.prog} {name}", (action.help or "") % values


TEXTS = sorted(set(_texts(parser())))


def test_every_command_and_its_options_are_looked_at() -> None:
    assert {"kube-sync why", "kube-sync remediate apply", "kube-sync plan -f/--filename"} <= {
        of for of, _ in TEXTS
    }


@pytest.mark.parametrize(("of", "text"), TEXTS, ids=[of for of, _ in TEXTS])
def test_help_is_there_and_fits_a_line(of: str, text: str) -> None:
    assert 0 < len(text) <= LONGEST, of
    assert "\n" not in text


def test_note_comes_after_what_a_command_does() -> None:
    command = argparse.ArgumentParser(epilog="end")
    explain(command, "It does this.\n", "examples:\n")
    note(command, "More of an option.\n")
    shown = command.format_help()
    assert "It does this.\n\nMore of an option.\n" in shown
    assert shown.index("More of an option") < shown.index("examples:")
