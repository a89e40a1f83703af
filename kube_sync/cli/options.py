"""What several commands have on their command lines, declared in one way.

It imports nothing that is slow, since every command pays for it.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import Any

from kube_sync.errors import Misconfigured


def explain(parser: argparse.ArgumentParser, description: str, examples: str = "") -> None:
    """Give a parser its description, and examples before what all commands end with."""
    parser.description = description
    parser.epilog = f"{examples}\n{parser.epilog or ''}" if examples else parser.epilog
    parser.formatter_class = argparse.RawDescriptionHelpFormatter


def note(parser: argparse.ArgumentParser, text: str) -> None:
    """Add a paragraph to a parser's description: what an option's help has no room for."""
    parser.description = f"{(parser.description or '').rstrip()}\n\n{text}"
    parser.formatter_class = argparse.RawDescriptionHelpFormatter


def sentence(what: str) -> str:
    """Return a line of the list of commands as a sentence."""
    return what[:1].upper() + what[1:] + "."


def add_output(parser: argparse.ArgumentParser, *forms: str) -> None:
    """Declare `-o`, in one of these forms, by default the first."""
    what = "how it is printed (default: %(default)s)"
    parser.add_argument("-o", "--output", choices=forms, default=forms[0], type=_form, help=what)


def form_of(arguments: argparse.Namespace) -> Any:  # noqa: ANN401 - a Literal of each command
    """Return the form of `-o` to ask for: YAML is made of JSON, where it is printed."""
    return "json" if arguments.output == "yaml" else arguments.output


def _form(word: str) -> str:
    return "text" if word in ("table", "tree") else word  # for one release


def add_sarif(parser: argparse.ArgumentParser) -> None:
    """Declare `--sarif`."""
    what = "write a report for code scanning to this file (SARIF 2.1.0)"
    parser.add_argument("--sarif", metavar="FILE", help=what)


def add_several(
    parser: argparse.ArgumentParser,
    *names: str,
    metavar: str,
    help: str,  # noqa: A002 - as argparse has it
    required: bool = False,
) -> None:
    """Declare an option that may be given several times, and says so."""
    what = f"{help} (repeatable)"
    parser.add_argument(
        *names, action="append", default=[], metavar=metavar, help=what, required=required
    )


def add_config(parser: argparse.ArgumentParser) -> None:
    """Declare `--config` again, after the word of a command below another."""
    # Suppressed, or what was said before the word would be forgotten.
    what = "the configuration file"
    parser.add_argument("--config", metavar="FILE", default=argparse.SUPPRESS, help=what)
    add_installation(parser)


def add_installation(parser: argparse.ArgumentParser) -> None:
    """Declare which cluster and installation is meant, which a help says once for all commands."""
    for name in ("--kubeconfig", "--context", "--installation"):
        parser.add_argument(name, default=argparse.SUPPRESS, help=argparse.SUPPRESS)


def refuse(wrong: object, why: str) -> None:
    """Raise Misconfigured if something is wrong."""
    if wrong:
        raise Misconfigured(why)


def check_standard_input(files: Iterable[str | None]) -> None:
    """Check that "-" is there once at most. Raises Misconfigured."""
    if list(files).count("-") > 1:
        msg = "-: standard input can be read once only; write one of them into a file"
        raise Misconfigured(msg)
