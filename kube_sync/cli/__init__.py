"""The command line. Each command has its arguments and its handler in a module here.

Every command pays for what these modules import, `--help` too: what is slow (the configuration,
asyncio, structlog, HTTP) is imported by the handlers.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from typing import Final, NoReturn

from kube_sync import CONFIG_ENV, __version__
from kube_sync.cli import (
    analyze,
    completion,
    decisions,
    history,
    metadata,
    operate,
    plan,
    policy,
    remediate,
    replay,
    scenarios,
    scheduling,
    schema,
    services,
    stage,
    topology,
    version,
    why,
)
from kube_sync.cli.options import add_installation, sentence
from kube_sync.cli.runner import (
    FAILED,
    MISCONFIGURED,
    NO_ANSWER,
    UNDECIDED,
    Handler,
    complain,
    run,
    show,
)

_ABOUT = "Makes Open Policy Agent (OPA) the placement brain of a Kubernetes fleet."

_EPILOG = f"""\
Configuration comes from one YAML file (--config, or the variable {CONFIG_ENV}), of which
`kubectl kube-sync` finds that of the installation in the cluster; every field can be overridden by
an environment variable (`kube-sync config --variables` lists them).

Every command also takes --kubeconfig FILE and --context NAME, as kubectl does, and --installation
NAMESPACE, which asks the installation there for its configuration (docs/kubectl.md).
"""


# Options with a value that may come before the command.
_WITH_VALUE = frozenset(
    [
        "--config",
        "--kubeconfig",
        "--context",
        "--installation",
        "-n",
        "--namespace",
        "-l",
        "--selector",
    ]
)


def main(argv: Sequence[str] | None = None, *, plugin: bool = False) -> None:
    """Run one command and exit with its status; `plugin`: as `kubectl kube-sync`."""
    sys.exit(run(lambda: _parsed(sys.argv[1:] if argv is None else argv, plugin=plugin)))


def _parsed(argv: Sequence[str], *, plugin: bool) -> argparse.Namespace:
    """Parse a command line whose names may go on after an option, as kubectl has it."""
    named, words = _command_first(argv)
    whole = parser(named, "kubectl kube-sync" if plugin else "kube-sync")
    whole.set_defaults(plugin=plugin)
    if named and not any(named in group for group in COMMANDS.values()):
        whole.error(f'unknown command "{named}"{_meant(named)}')
    arguments, rest = whole.parse_known_args(words)
    if rest and (any(word.startswith("-") for word in rest) or "objects" not in arguments):
        arguments.parser.error(f"unrecognized arguments: {' '.join(rest)}")
    if rest:
        arguments.objects = [*arguments.objects, *rest]
    return arguments


class _Parser(argparse.ArgumentParser):
    """A parser that complains in a line, and exits with the status of what is typed wrongly."""

    def error(self, message: str) -> NoReturn:
        complain(f"{message} (see `{self.prog} --help`)")
        sys.exit(MISCONFIGURED)


def _command_first(argv: Sequence[str]) -> tuple[str, list[str]]:
    """Return the command of a command line, and all words with its names before the options.

    As of kubectl, options may come before it. `help why` is `why --help`.
    """
    words = ["--help" if at == 0 and word == "help" else word for at, word in enumerate(argv)]
    before = 0
    while before < len(words) and words[before].startswith("-"):
        before += 2 if words[before] in _WITH_VALUE else 1
    options, rest = words[:before], words[before:]
    names = [*takewhile(lambda word: not word.startswith("-"), rest)]
    return (rest[0] if rest else ""), [*names, *options, *rest[len(names) :]]


def _meant(word: str) -> str:
    from difflib import get_close_matches  # noqa: PLC0415 - for who mistypes

    near = get_close_matches(word, [name for group in COMMANDS.values() for name in group])
    return f"; did you mean {' or '.join(near)}?" if near else ""


def parser(named: str | None = None, program: str = "kube-sync") -> argparse.ArgumentParser:
    """Build the parser of the command line; only the `named` command has arguments, None: all."""
    whole = _Parser(
        program,
        usage=f"{program} [--version] COMMAND ...",
        description="\n\n".join([_ABOUT, *_listed()]),
        epilog=f"`{program} COMMAND --help` tells more of a command.\n" + _EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    whole.add_argument("--version", action="version", version=f"kube-sync {__version__}")
    add_installation(whole)
    whole.set_defaults(command=partial(_help, whole), parser=whole)
    # Listed above, in groups.
    commands = whole.add_subparsers(prog=program, metavar="COMMAND", help=argparse.SUPPRESS)
    for group in COMMANDS.values():
        for name, command in group.items():
            if named in (None, name):
                _add(commands, name, command)
    return whole


def _listed() -> Iterator[str]:
    """Yield each group of commands, a line a command."""
    for title, group in COMMANDS.items():
        lines = (f"  {name:12} {command.what}" for name, command in group.items())
        yield "\n".join([f"{title}:", *lines])


def _help(whole: argparse.ArgumentParser, _arguments: argparse.Namespace) -> int:
    show(whole.format_help().rstrip())
    return 0


@dataclass(frozen=True, slots=True)
class Command:
    """A command: what it is for, what carries it out, and its arguments."""

    what: str
    function: Handler
    declare: Callable[[argparse.ArgumentParser], None] = lambda _command: None
    service: bool = False  # runs until it is stopped
    failed: int = FAILED  # exit status of an error that is none of the command line


def _add(commands: argparse._SubParsersAction[_Parser], name: str, command: Command) -> None:
    description = sentence(command.what)
    own = commands.add_parser(name, help=command.what, description=description, epilog=_EPILOG)
    own.add_argument(
        "--config", metavar="FILE", help=f"the configuration file (default: ${CONFIG_ENV})"
    )
    add_installation(own)
    own.set_defaults(command=command.function, failed=command.failed, parser=own)
    command.declare(own)
    if command.service:
        own.set_defaults(service=name)
        services.declare(own)


COMMANDS: Final[Mapping[str, Mapping[str, Command]]] = {  # as `--help` lists them
    "Servers": {
        "replicate": Command(
            "mirror Kubernetes into OPA and serve the decision stream", services.run, service=True
        ),
        "remediate": Command(
            "patch the resources whose decision changed",
            services.run,
            remediate.declare,
            service=True,
        ),
        "admit": Command(
            "serve the webhook that asks OPA before an object is stored", services.run, service=True
        ),
        "run": Command(
            "the three of them in one process, for a laptop", services.run, service=True
        ),
        "policy-sync": Command(
            "bring the policies of a hub to its spokes, and statuses back",
            services.run,
            services.declare_policy_sync,
            service=True,
        ),
    },
    "Look": {
        "decisions": Command(decisions.WHAT, decisions.run, decisions.declare),
        "why": Command(why.WHY, why.run, why.declare_why, failed=NO_ANSWER),
        "why-not": Command(why.WHY_NOT, why.run, why.declare_why_not, failed=NO_ANSWER),
        "history": Command(history.HISTORY, history.run, history.declare),
        "replay": Command(replay.WHAT, replay.run, replay.declare, failed=NO_ANSWER),
        "topology": Command(topology.WHAT, topology.run, topology.declare, service=True),
    },
    "Write a policy": {
        "test": Command(scenarios.WHAT, scenarios.run, scenarios.declare, failed=NO_ANSWER),
        "analyze": Command(analyze.WHAT, analyze.run, analyze.declare),
        "plan": Command(plan.WHAT, plan.run, plan.declare, failed=NO_ANSWER),
        "what-if": Command(plan.WHAT_IF, plan.run, plan.declare_what_if, failed=NO_ANSWER),
        "stage": Command(stage.WHAT, stage.run, stage.declare),
        "policy": Command(policy.WHAT, policy.packs, policy.declare),
        "scheduling": Command(
            scheduling.WHAT, scheduling.run, scheduling.declare, failed=UNDECIDED
        ),
        "metadata": Command(metadata.WHAT, metadata.run, metadata.declare, failed=UNDECIDED),
        "export": Command(plan.EXPORT, plan.export, plan.declare_export),
        "schema": Command(schema.WHAT, schema.run, schema.declare),
    },
    "Operate": {
        "version": Command(version.WHAT, version.run, version.declare),
        "config": Command(operate.CONFIG, operate.config, operate.declare_config),
        "provision": Command(operate.PROVISION, operate.provision, operate.declare_provision),
        "completion": Command(completion.WHAT, completion.run, completion.declare),
        "certs": Command(operate.CERTS, operate.certs, operate.declare_certs),
        "verify": Command(history.VERIFY, history.check, history.declare_verify),
        "healthcheck": Command(operate.HEALTH, operate.health, operate.declare_health),
    },
}
