"""What the `check` commands of our policy kinds can all be asked for.

It imports nothing that talks to servers, since every other command pays for it too.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass

from kube_sync.errors import Misconfigured


@dataclass(frozen=True, slots=True)
class Words:
    """What a `check` command says of itself."""

    check: str  # in the list of commands
    description: str
    examples: str
    objects: str  # that it judges
    nameless: str  # objects that the namespace is for
    policies: str  # that may be files instead of the cluster's


def declare_check(
    parser: argparse.ArgumentParser,
    words: Words,
    function: Callable[[argparse.Namespace], int],
) -> argparse.ArgumentParser:
    """Teach a parser the command `check`, and return its parser for what is its own."""
    asks = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    check = asks.add_parser(
        "check",
        help=words.check,
        description=words.description,
        epilog=words.examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    check.set_defaults(command=function)
    # Suppressed, or what was said before the word would be forgotten.
    check.add_argument(
        "--config", metavar="FILE", default=argparse.SUPPRESS, help="the configuration file"
    )
    _declare_sources(check, words)
    check.add_argument(
        "-o", "--output", choices=["text", "json"], default="text", help="default: %(default)s"
    )
    return check


def _declare_sources(check: argparse.ArgumentParser, words: Words) -> None:
    check.add_argument(
        "-f",
        "--filename",
        action="append",
        required=True,
        metavar="FILE",
        help=f"{words.objects}; YAML or JSON, - for standard input (repeatable)",
    )
    check.add_argument("-n", "--namespace", metavar="NS", help=words.nameless)
    check.add_argument(
        "--policies",
        action="append",
        default=[],
        metavar="PATH",
        help=f"a file or folder of {words.policies}, instead of the cluster's; what cannot be read"
        " is an error (repeatable)",
    )
    check.add_argument(
        "--ignore-other-kinds",
        action="store_true",
        help="pass over objects of other kinds in --policies; what looks like a policy and is not"
        " one is an error still",
    )


def check_sources(arguments: argparse.Namespace) -> None:
    """Check that every file can be read as it was named. Raises Misconfigured."""
    files = [*arguments.filename, *arguments.policies, *getattr(arguments, "old", ())]
    if files.count("-") > 1:
        msg = "-: standard input can be read once only; write one of them into a file"
        raise Misconfigured(msg)
    if arguments.ignore_other_kinds and not arguments.policies:
        msg = "--ignore-other-kinds: is about the files of --policies, of which there is none"
        raise Misconfigured(msg)
