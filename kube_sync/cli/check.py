"""What `kube-sync scheduling check` and `metadata check` share."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass

from kube_sync.cli.options import add_config, add_output, add_several, check_standard_input, note
from kube_sync.errors import Misconfigured


@dataclass(frozen=True, slots=True)
class CheckTexts:
    """The help texts of a `check` command."""

    check: str  # in the list of commands
    description: str
    examples: str
    objects: str  # the objects that it evaluates
    nameless: str  # objects that get the namespace
    sources: str  # what may be in the files of -f and --policies


def declare_check(
    parser: argparse.ArgumentParser,
    words: CheckTexts,
    function: Callable[[argparse.Namespace], int],
) -> argparse.ArgumentParser:
    """Add the command `check` to a parser, and return its parser for further arguments."""
    asks = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    check = asks.add_parser(
        "check",
        help=words.check,
        description=words.description,
        epilog=words.examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    check.set_defaults(command=function)
    add_config(check)
    note(check, words.sources)
    what = f"{words.objects}, - for standard input"
    add_several(check, "-f", "--filename", metavar="FILE", help=what, required=True)
    check.add_argument("-n", "--namespace", metavar="NS", help=words.nameless)
    what = "a file or folder of policies, instead of the cluster's"
    add_several(check, "--policies", metavar="PATH", help=what)
    check.add_argument(
        "--ignore-other-kinds",
        action="store_true",
        help="pass over objects of other kinds in --policies",
    )
    add_output(check, "text", "json", "yaml")
    return check


def check_sources(arguments: argparse.Namespace) -> None:
    """Check that every named file can be read. Raises Misconfigured."""
    old = getattr(arguments, "old", ())
    check_standard_input([*arguments.filename, *arguments.policies, *old])
    if arguments.ignore_other_kinds and not arguments.policies:
        msg = "--ignore-other-kinds: is about the files of --policies, of which there is none"
        raise Misconfigured(msg)
