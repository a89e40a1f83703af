"""`kube-sync completion`: what a shell completes, made of the parser itself."""

from __future__ import annotations

import argparse
from typing import Final

from kube_sync.cli.options import explain
from kube_sync.cli.runner import printed

WHAT: Final = "print what completes kube-sync in bash, zsh or fish"

_DESCRIPTION: Final = """\
Prints a script by which a shell completes commands, options, their values and files. It asks no
cluster.
"""

_EXAMPLES: Final = """\
examples:
  source <(kube-sync completion bash)
      in ~/.bashrc; of zsh the same in ~/.zshrc, after `autoload -U compinit; compinit`
  kube-sync completion fish > ~/.config/fish/completions/kube-sync.fish
      for good
"""

FILES: Final = frozenset({"FILE", "PATH", "FOLDER", "DIR", "FILE|DIR"})  # metavars


def declare(command: argparse.ArgumentParser) -> None:
    """Teach a parser the arguments of `completion`."""
    explain(command, _DESCRIPTION, _EXAMPLES)
    command.add_argument("shell", choices=["bash", "zsh", "fish"], help="for which shell")


def script(whole: argparse.ArgumentParser, shell: str) -> str:
    """Return what completes a command line in a shell."""
    import shtab  # noqa: PLC0415 - only here

    _prepare(whole, shtab.FILE)
    text: str = shtab.complete(whole, shell)
    return text


def run(arguments: argparse.Namespace) -> int:
    """Print the script of a shell."""
    from kube_sync.cli import parser  # noqa: PLC0415 - it imports every command

    return printed(script(parser(), arguments.shell))


def _prepare(parser: argparse.ArgumentParser, files: object) -> None:
    for action in parser._actions:  # noqa: SLF001 - argparse has no other way
        if action.metavar in FILES:
            action.complete = files  # type: ignore[attr-defined]
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            action.help = None  # the help has its commands in groups of its own
            for below in action.choices.values():
                _prepare(below, files)
