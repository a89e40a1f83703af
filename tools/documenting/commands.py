"""docs/cli.md: every command with its arguments, rendered from the argument parser.

The text depends neither on the terminal nor on the version of Python: argparse's own help does.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Mapping
from textwrap import dedent
from typing import Final

from kube_sync.cli import parser as root_parser

_HEAD: Final = """\
# Command line
This page lists every command of `kube-sync` with its arguments and exit statuses. It is written by
`python -m tools.documenting` from the argument parser; do not edit. `kube-sync COMMAND --help`
prints the same in a terminal.

```text
{groups}
```

Every command takes `-h`, `--help`. Configuration comes from one YAML file and from environment
variables: see [Configure](configure.md). `kubectl kube-sync` has the same commands, and finds the
configuration in the cluster; `--kubeconfig FILE`, `--context NAME` and `--installation NAMESPACE`
of every command are explained [there](kubectl.md).

## Exit statuses
A command whose section names no exit statuses has these:

| status | meaning |
|---|---|
| 0 | done, or a service was stopped by a signal |
| 1 | something outside is not as it should be: a server, a file, an object |
| 64 | the command line or the configuration is wrong; one line on standard error says where |
| 130 | interrupted (Ctrl-C), but not a service |
"""
_COLUMNS: Final = "| argument | meaning |\n|---|---|"
_STATUSES: Final = "exit status: "
_EXAMPLES: Final = "examples:\n"
_REPEATED: Final[Mapping[object, str]] = {
    argparse.ONE_OR_MORE: "{} …",
    argparse.ZERO_OR_MORE: "[{} …]",
    argparse.OPTIONAL: "[{}]",
}
_CODE: Final = re.compile(r"(`[^`]*`)")


def rendered() -> str:
    """Return the page."""
    root = root_parser()
    groups = (root.description or "").partition("\n\n")[2]
    return "\n".join([_HEAD.format(groups=groups), *sections(root, common=root.epilog or "")])


def sections(parser: argparse.ArgumentParser, common: str) -> Iterator[str]:
    """Yield the section of each command below a parser; `common` is an epilog said only once."""
    for command in _subcommands(parser):
        yield _section(command, common)
        yield from sections(command, common)


def _subcommands(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    for action in _actions(parser):
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - no public name
            yield from action.choices.values()


def _section(command: argparse.ArgumentParser, common: str) -> str:
    arguments = [action for action in _actions(command) if not _is_left_out(action)]
    rows = [f"| `{_names(action)}` | {_meaning(action)} |" for action in arguments]
    title = f"{'#' * command.prog.count(' ')}# `{command.prog}`"
    parts = [
        f"{title}\n{_prose((command.description or '').strip())}",
        "\n".join([_COLUMNS, *rows]) if rows else "",
        *map(_paragraph, _paragraphs(command.epilog or "", common)),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _actions(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    return parser._actions  # noqa: SLF001 - argparse shows them in its help only


def _is_left_out(action: argparse.Action) -> bool:
    is_help = isinstance(action, argparse._HelpAction)  # noqa: SLF001 - no public name
    return is_help or action.help == argparse.SUPPRESS


def _names(action: argparse.Action) -> str:
    """Return how an argument is typed, as `-n NS, --namespace NS`."""
    choices = "{" + ",".join(map(str, action.choices)) + "}" if action.choices else ""
    metavar = action.metavar if isinstance(action.metavar, str) else ""
    value = metavar or choices or action.dest.upper()
    value = _REPEATED.get(action.nargs, "{}").format(value).replace("|", "\\|")
    if not action.option_strings:
        return value
    names = action.option_strings
    return ", ".join(names if action.nargs == 0 else [f"{name} {value}" for name in names])


def _meaning(action: argparse.Action) -> str:
    text = (action.help or "") % {"default": action.default, "prog": "kube-sync"}
    if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - no public name
        text = "one of " + ", ".join(f"`{name}`" for name in action.choices)
    if isinstance(action.choices, list | tuple) and action.metavar is not None:
        text += f" ({', '.join(map(str, action.choices))})"
    return _prose(text + ("; required" if action.required and action.option_strings else ""))


def _paragraphs(epilog: str, common: str) -> Iterator[str]:
    known = {part.strip() for part in re.split(r"\n\n|(?<=\.)\n", common)}
    for part in epilog.strip().split("\n\n"):
        if part.strip() and part.strip() not in known:
            yield part.strip()


def _paragraph(text: str) -> str:
    if text.startswith(_EXAMPLES):
        return f"```text\n{dedent(text.removeprefix(_EXAMPLES))}\n```"
    if text.startswith(_STATUSES):
        return f"**Exit status**: {_prose(text.removeprefix(_STATUSES))}"
    return _prose(text)


def _prose(text: str) -> str:
    """Return a text whose signs that Markdown or a table reads otherwise are escaped."""
    parts = _CODE.split(text)
    parts[::2] = [re.sub(r"([*<|\[\]])", r"\\\1", part) for part in parts[::2]]
    return "".join(parts)
