"""`kubectl_complete-kube_sync`: what kubectl completes after `kubectl kube-sync`.

kubectl runs this program with the words of the command line, the last one as far as it is typed,
and reads a choice a line and then a directive of Cobra's (kubectl's plugin_completion.go). It is
made of the parser itself, and asks no cluster.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from kube_sync.cli.completion import FILES
from kube_sync.cli.runner import say

_FILES, _NO_FILES = ":0", ":4"  # ShellCompDirectiveDefault, ShellCompDirectiveNoFileComp
_HIDDEN: Final = {  # that every command takes; those of connections are in no help
    "--kubeconfig": "the kubeconfig file",
    "--context": "the context of the kubeconfig",
    "--installation": "the namespace of the installation",
}


def main() -> None:
    """Print what completes the words of this program's command line."""
    for line in completed(sys.argv[1:]):
        say(line)


def completed(words: Sequence[str]) -> Iterator[str]:
    """Yield choices for the last word, each with its help after a tab, then a directive."""
    from kube_sync.cli import parser  # noqa: PLC0415 - it imports every command

    *typed, last = words or [""]
    command, before = _command(parser(), typed)
    option = _awaiting(command, before)
    if option is not None:
        yield from _beginning(last, _values(option))
        yield _directive([option])
    elif last.startswith("-"):
        yield from _beginning(last, _options(command))
        yield _NO_FILES
    else:
        positionals = [action for action in _actions(command) if not action.option_strings]
        yield from _beginning(last, (value for one in positionals for value in _values(one)))
        yield _directive(positionals)


def _command(
    whole: argparse.ArgumentParser, typed: Sequence[str]
) -> tuple[argparse.ArgumentParser, str]:
    """Return the parser of the command that is typed, and the word before the last one."""
    command = whole
    for before, word in zip(("", *typed), typed, strict=False):
        if _awaiting(command, before) is not None:
            continue  # it is the value of an option
        for action in _actions(command):
            if isinstance(action, argparse._SubParsersAction) and word in action.choices:  # noqa: SLF001 - no public name
                command = action.choices[word]
                break
    return command, typed[-1] if typed else ""


def _awaiting(command: argparse.ArgumentParser, word: str) -> argparse.Action | None:
    """Return the option whose value comes after a word."""
    options = (action for action in _actions(command) if word in action.option_strings)
    return next((action for action in options if action.nargs != 0), None)


def _options(command: argparse.ArgumentParser) -> Iterator[str]:
    for action in _actions(command):
        for name in action.option_strings:
            if action.help != argparse.SUPPRESS:
                yield f"{name}\t{(action.help or '') % {'default': action.default, 'prog': ''}}"
            elif name in _HIDDEN:
                yield f"{name}\t{_HIDDEN[name]}"


def _values(action: argparse.Action) -> Iterator[str]:
    if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - no public name
        helps = {one.dest: one.help for one in action._choices_actions}  # noqa: SLF001
        yield from (f"{name}\t{helps.get(name) or ''}" for name in action.choices)
    else:
        yield from map(str, action.choices or ())


def _beginning(last: str, choices: Iterable[str]) -> Iterator[str]:
    return (choice for choice in choices if choice.startswith(last))


def _directive(actions: Iterable[argparse.Action]) -> str:
    files = any(action.metavar in FILES or action.dest == "kubeconfig" for action in actions)
    return _FILES if files else _NO_FILES


def _actions(command: argparse.ArgumentParser) -> list[argparse.Action]:
    return command._actions  # noqa: SLF001 - argparse has no other way
