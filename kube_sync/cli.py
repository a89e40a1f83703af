"""The command line: arguments to settings, errors to exit statuses.

0: done, or stopped by a signal. 1: something outside is not as it should be. 2: the command line
or the configuration is wrong, in one line that says where.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kube_sync import __version__
from kube_sync.admission.metadata import arguments as metadata
from kube_sync.admission.scheduling import arguments as scheduling
from kube_sync.commandline import add_config
from kube_sync.config import (
    CONFIG_ENV,
    Settings,
    Source,
    effective,
    explained,
    fields,
    load_settings,
    parse_listen,
    source_of,
)
from kube_sync.decisions import arguments as stream
from kube_sync.errors import Misconfigured, SyncError, first_of
from kube_sync.inspect.plan import arguments as planning
from kube_sync.inspect.replay import arguments as replaying
from kube_sync.inspect.scenarios import arguments as scenarios
from kube_sync.inspect.survey.arguments import WHAT, declare, requested
from kube_sync.inspect.survey.topology import arguments as charting
from kube_sync.inspect.why import arguments as reasoning
from kube_sync.inspect.why import past_arguments as past
from kube_sync.ledger import arguments as ledger
from kube_sync.observability import healthcheck
from kube_sync.observability.logs import configure_logs
from kube_sync.observability.terminal import harmless
from kube_sync.policies.staging import arguments as staging
from kube_sync.provisioning import arguments as provisioning
from kube_sync.remediation import arguments as remediation

if TYPE_CHECKING:  # slow: see below
    from kube_sync.policykinds.printing import Answer

_ABOUT = "Makes Open Policy Agent (OPA) the placement brain of a Kubernetes fleet."

_EPILOG = f"""\
Configuration comes from one YAML file (--config, or the variable {CONFIG_ENV}); every field
can be overridden by an environment variable (`kube-sync config --variables` lists them).
"""

Run = Callable[..., Awaitable[None]]

Handler = Callable[[argparse.Namespace], int]

# Status 2 of what they print says that something moves: a word that was misspelt must not say so.
_ANSWERING, _NO_ANSWER = frozenset({"plan", "why", "why-not", "what-if", "test", "replay"}), 3
_INTERRUPTED = 130  # as of a program that SIGINT ends


def _runner(
    *, failed: int = 1, misconfigured: int = 2, by_line: bool = False
) -> Callable[[Handler], Handler]:
    """Have errors of a handler end as a message and an exit status.

    Of several errors each has a line; `by_line`: each line begins with the name of the program.
    """

    def of(handler: Handler) -> Handler:
        @wraps(handler)
        def run(arguments: argparse.Namespace) -> int:
            try:
                return handler(arguments)
            except SyncError as error:
                for line in str(error).splitlines() if by_line else [str(error)]:
                    _complain(line)
                return misconfigured if isinstance(error, Misconfigured) else failed
            except KeyboardInterrupt:  # of a person who does not want to wait: nothing to explain
                return _INTERRUPTED

        return run

    return of


_answering = _runner(failed=_NO_ANSWER, misconfigured=_NO_ANSWER, by_line=True)


def main(argv: Sequence[str] | None = None) -> None:
    """Run one command and exit with its status."""
    arguments = _parsed(sys.argv[1:] if argv is None else argv)
    try:
        status = arguments.command(arguments)
    except* Misconfigured as group:
        # Also from within a running service: a file that was there at the start and is not now.
        _complain(str(first_of(group)))
        status = 2
    sys.exit(status)


def _parsed(argv: Sequence[str]) -> argparse.Namespace:
    try:
        return _parser().parse_args(argv)
    except SystemExit as error:
        if error.code and next(iter(argv), None) in _ANSWERING:
            sys.exit(_NO_ANSWER)
        raise


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "kube-sync",
        usage="kube-sync [--version] COMMAND ...",
        description="\n\n".join([_ABOUT, *_listed()]),
        epilog="`kube-sync COMMAND --help` tells more of a command.\n" + _EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"kube-sync {__version__}")
    parser.set_defaults(command=partial(_help, parser))
    # Listed above, in groups.
    commands = parser.add_subparsers(prog="kube-sync", metavar="COMMAND", help=argparse.SUPPRESS)
    for group in _COMMANDS.values():
        for name, command in group.items():
            _add(commands, name, command)
    return parser


def _listed() -> Iterator[str]:
    """Yield each group of commands, a line a command."""
    for title, group in _COMMANDS.items():
        lines = (f"  {name:12} {command.what}" for name, command in group.items())
        yield "\n".join([f"{title}:", *lines])


def _help(parser: argparse.ArgumentParser, _arguments: argparse.Namespace) -> int:
    _print(parser.format_help().rstrip())
    return 0


@dataclass(frozen=True, slots=True)
class _Command:
    """A command: what it is for, what carries it out, and its arguments."""

    what: str
    function: Handler
    declare: Callable[[argparse.ArgumentParser], None] = lambda _command: None
    service: bool = False  # runs until it is stopped


def _add(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], name: str, command: _Command
) -> None:
    parser = commands.add_parser(name, description=_sentence(command.what), epilog=_EPILOG)
    parser.add_argument(
        "--config", metavar="FILE", help=f"the configuration file (default: ${CONFIG_ENV})"
    )
    parser.set_defaults(command=command.function)
    if command.service:
        parser.set_defaults(service=name)
        _declare_service(parser)
    command.declare(parser)


def _sentence(what: str) -> str:
    return what[:1].upper() + what[1:] + "."


def _declare_service(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--wait",
        action="store_true",
        help="wait for files that are missing or wrong at the start, and say so on the readiness "
        "page, instead of ending with status 2",
    )
    command.add_argument(
        "--log-level",
        choices=["debug", "info", "warning", "error"],
        default="info",
        help="how much a service logs to standard error (default: %(default)s)",
    )


def _declare_policy_sync(command: argparse.ArgumentParser) -> None:
    asks = command.add_subparsers(title="of one that runs", metavar="ASK")
    what = "let through removals that wait, by the name that the readiness page gives"
    approve = asks.add_parser("approve", help=what, description=_sentence(what))
    add_config(approve)
    approve.add_argument("names", nargs="+", metavar="NAME", help="as in moves-0123456789abcdef")
    approve.set_defaults(command=_approve_removals)


def _declare_config(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--variables", action="store_true", help="list the environment variable of each field"
    )
    command.add_argument(
        "--explain",
        nargs="?",
        const="",
        metavar="KEY",
        help="say what a key is for, as in admission.engine, or what each of them is for",
    )


def _declare_certs(command: argparse.ArgumentParser) -> None:
    command.add_argument("--out", required=True, metavar="DIR", help="where the files go")
    command.add_argument(
        "--host",
        required=True,
        action="append",
        metavar="NAME",
        help="a DNS name or IP address that the certificate is for (repeatable)",
    )


def _declare_health(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--url",
        help="the page (default: at observe.listen, or whichever command's port answers here)",
    )


def _service(arguments: argparse.Namespace) -> int:
    source = source_of(arguments.config, os.environ)
    content = source.read()
    settings = source.load(content)
    configure_logs(arguments.log_level)
    # Imported here: what talks to servers costs half a second that `config` need not pay.
    from kube_sync.observability import metrics  # noqa: PLC0415
    from kube_sync.processes import commands  # noqa: PLC0415

    services: dict[str, Run] = {
        "replicate": partial(commands.run_replicate, source=source),
        "remediate": commands.run_remediate,
        "admit": commands.run_admit,
        "run": partial(commands.run_all, source=source),
        "topology": commands.run_topology,
        "policy-sync": commands.run_policy_sync,
    }
    metrics.build_info.labels(__version__, arguments.service).set(1)
    run = services[arguments.service]
    if arguments.wait:
        # Until services run nothing else ends a process with id 1, for which there are no defaults.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        # Another configuration is for another process.
        run = partial(run, patience=lambda: source.read() == content)
    asyncio.run(_awaited(run(settings)))
    return 0


@_runner()
def _remediation(arguments: argparse.Namespace) -> int:
    settings = _settings(arguments)
    from kube_sync.processes.approving import run_approve  # noqa: PLC0415 - slow, as above

    return _printed(arguments.ask(arguments, settings, run_approve))


@_runner()
def _stage(arguments: argparse.Namespace) -> int:
    settings = _settings(arguments)
    from kube_sync.processes.staging import run_stage  # noqa: PLC0415 - slow, as above

    return _printed(asyncio.run(_said(run_stage(settings, staging.requested(arguments)))))


@_runner()
def _approve_removals(arguments: argparse.Namespace) -> int:
    settings = _settings(arguments)
    from kube_sync.processes.approving import run_approve_removals  # noqa: PLC0415 - slow, as above

    return _printed(asyncio.run(_said(run_approve_removals(settings, arguments.names))))


async def _said(awaitable: Awaitable[str]) -> str:
    return await awaitable


async def _awaited(awaitable: Awaitable[None]) -> None:
    await awaitable


@_runner()
def _analyze(arguments: argparse.Namespace) -> int:
    request = requested(arguments)
    settings = _settings(arguments)
    from kube_sync.inspect.survey import command  # noqa: PLC0415 - slow, as `app` is

    answer = asyncio.run(command.run(request, settings, _complain))
    return _printed(answer.text, complaints=answer.complaints)


def _topology(arguments: argparse.Namespace) -> int:
    charting.requested(arguments)  # what is wrong with it is so of either
    return _service(arguments) if arguments.live else _charted(arguments)


@_runner()
def _charted(arguments: argparse.Namespace) -> int:
    from kube_sync.inspect.survey.topology import command  # noqa: PLC0415 - only here

    settings = load_settings(arguments.config, os.environ)
    answer = command.run(charting.requested(arguments), _complain, settings.topology)
    return _printed(answer.text, complaints=answer.complaints)


@_answering
def _plan(arguments: argparse.Namespace) -> int:
    settings = _settings(arguments, log_level="error")
    from kube_sync.inspect.plan import command  # noqa: PLC0415 - slow, as `app` is

    return _answered(command.run(planning.requested(arguments), settings, _complain))


@_answering
def _why(arguments: argparse.Namespace) -> int:
    settings = _settings(arguments, log_level="error")
    from kube_sync.inspect.why import command  # noqa: PLC0415 - slow, as `app` is

    if past.of_the_past(arguments):
        recalled = past.recalled(arguments, settings, time.time())
        return _answered(command.run_past(recalled, settings))
    return _answered(command.run(reasoning.asked(arguments), settings, _complain))


@_runner()
def _export(arguments: argparse.Namespace) -> int:
    settings = _settings(arguments)
    from kube_sync.inspect.plan import command  # noqa: PLC0415 - slow, as `app` is

    with _while_read():
        asyncio.run(command.export(settings, _complain, _say))
    return 0


@_answering
def _test(arguments: argparse.Namespace) -> int:
    settings = _settings(arguments, log_level="error")
    from kube_sync.inspect.scenarios import command  # noqa: PLC0415 - slow, as `app` is

    color = scenarios.wants_color(os.environ, terminal=sys.stdout.isatty())
    run = command.run(scenarios.requested(arguments), settings, _complain, color=color)
    return _answered(run, painted=color)


@_runner()
def _decisions(arguments: argparse.Namespace) -> int:
    request = stream.requested(arguments)
    settings = stream.pointed(arguments, _settings(arguments))
    from kube_sync.decisions import command  # noqa: PLC0415 - slow, as `app` is

    with _while_read():
        asyncio.run(command.run(request, settings, _say, _complain))
    return 0


@_runner()
def _history(arguments: argparse.Namespace) -> int:
    settings = load_settings(arguments.config, os.environ)
    request = ledger.requested(arguments, settings, time.time())
    from kube_sync.ledger import command  # noqa: PLC0415 - only here

    with _while_read():
        command.history(request, _say, _complain)
    return 0


@_runner()
def _verify(arguments: argparse.Namespace) -> int:
    settings = _settings(arguments)
    file, anchors = ledger.file_of(arguments.file, settings), ledger.anchors_of(arguments)
    from kube_sync.ledger import command  # noqa: PLC0415 - only here
    from kube_sync.processes.ledger import noted_elsewhere  # noqa: PLC0415 - slow, as `app` is

    # Before the file is read: what is noted meanwhile may be newer than that.
    noted = asyncio.run(noted_elsewhere(settings, anchors, offline=arguments.offline))
    required = arguments.require_head
    return 0 if command.check(file, noted, _print, _complain, required=required) else 1


@_answering
def _replay(arguments: argparse.Namespace) -> int:
    settings = _settings(arguments, log_level="error")
    from kube_sync.inspect.replay import command  # noqa: PLC0415 - slow, as `app` is

    request = replaying.requested(arguments, settings, time.time())
    return _answered(command.run(request, settings, _complain))


@_runner(failed=2)  # neither admitted nor denied
def _scheduling(arguments: argparse.Namespace) -> int:
    request = scheduling.requested(arguments)
    settings = _settings(arguments)
    from kube_sync.admission.scheduling import check  # noqa: PLC0415 - slow, as `app` is

    return _answered(check.run(request, settings))


@_runner(failed=2)  # neither good nor bad
def _metadata(arguments: argparse.Namespace) -> int:
    request = metadata.requested(arguments)
    settings = _settings(arguments)
    from kube_sync.admission.metadata import check  # noqa: PLC0415 - slow, as `app` is

    return _answered(check.run(request, settings))


@_runner()
def _config(arguments: argparse.Namespace) -> int:
    if arguments.explain is not None:  # whatever the file says
        return _printed(explained(arguments.explain or None))
    settings = load_settings(arguments.config, os.environ)
    with _while_read():
        if arguments.variables:
            for field in fields():
                _say(f"{field.variable:45} {field.path}")
        else:
            _say(effective(settings), end="")
    return 0


@_runner()
def _provision(arguments: argparse.Namespace) -> int:
    settings = _settings(arguments)
    from kube_sync.processes.provisioning import run_provision  # noqa: PLC0415 - slow, as above

    done = asyncio.run(run_provision(settings, tokens_only=arguments.tokens_only))
    return _printed("\n".join(done) or "nothing to do")


def _certs(arguments: argparse.Namespace) -> int:
    from kube_sync.certificates import write_certificates  # noqa: PLC0415 - slow, and only here

    try:
        written = write_certificates(Path(arguments.out), arguments.host)
    except OSError as error:
        _complain(f"{error.filename or error}: {error.strerror or 'exists already'}")
        return 1
    except (TypeError, ValueError) as error:  # a host that is no name, or ca.key is no such key
        _complain(f"no certificate for {', '.join(arguments.host)} in {arguments.out}: {error}")
        return 1
    for file in written:
        _say(str(file))
    return 0


def _health(arguments: argparse.Namespace) -> int:
    url: str | None = arguments.url
    health = healthcheck.asked(url) if url else healthcheck.found(_pages(arguments.config))
    if health.good:
        _say(health.said, end="")
        return 0
    _complain(health.said)
    return 1


def _pages(config: str | None) -> list[str]:
    """Return where the command beside this one shows its readiness.

    A file that is wrong now says nothing of a process that began with a good one.
    """
    for source in (source_of(config, os.environ), Source(None, os.environ)):
        with suppress(Misconfigured):
            listen = source.load(source.read()).observe.listen
            if listen is not None:
                return [healthcheck.page(parse_listen("observe.listen", listen))]
    return healthcheck.usual_pages()


def _settings(arguments: argparse.Namespace, log_level: str = "warning") -> Settings:
    """Return the settings of a command that asks something; `log_level` is of what it logs."""
    settings = load_settings(arguments.config, os.environ)
    configure_logs(log_level)
    return settings


def _answered(run: Coroutine[Any, Any, Answer], *, painted: bool = False) -> int:
    """Print what a command answers, and return the exit status that it gives."""
    answer = asyncio.run(run)
    _print(answer.text, painted=painted)
    return answer.status


def _printed(text: str, *, complaints: Sequence[str] = ()) -> int:
    """Print a text and what there is against it, and return the exit status."""
    _print(text)
    for complaint in complaints:
        _complain(complaint)
    return 1 if complaints else 0


def _print(text: str, *, painted: bool = False) -> None:
    """Print a text whose reader need not read all of it: the exit status is what it was."""
    with _while_read():
        _say(text, painted=painted)


def _say(line: str, *, end: str = "\n", painted: bool = False) -> None:
    shown = harmless(line, painted=painted)
    print(shown, end=end, flush=True)  # noqa: T201 - the command's output, which may go to a pipe


@contextmanager
def _while_read() -> Iterator[None]:
    """Go on after this where whoever reads the output, as `| head`, has seen enough."""
    try:
        yield
    except BrokenPipeError:
        _stop_printing()


def _stop_printing() -> None:
    """Take note that `| head` has seen enough; nothing is to be said at exit either."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _complain(line: str) -> None:
    print(f"kube-sync: {harmless(line)}", file=sys.stderr)  # noqa: T201 - for the person who typed


_COMMANDS: Final[Mapping[str, Mapping[str, _Command]]] = {  # as `--help` lists them
    "Servers": {
        "replicate": _Command(
            "mirror Kubernetes into OPA and serve the decision stream", _service, service=True
        ),
        "remediate": _Command(
            "patch the resources whose decision changed",
            _service,
            partial(remediation.declare, function=_remediation),
            service=True,
        ),
        "admit": _Command(
            "serve the webhook that asks OPA before an object is stored", _service, service=True
        ),
        "run": _Command("the three of them in one process, for a laptop", _service, service=True),
        "policy-sync": _Command(
            "bring the policies of a hub to its spokes, and statuses back",
            _service,
            _declare_policy_sync,
            service=True,
        ),
    },
    "Look": {
        "decisions": _Command(stream.WHAT, _decisions, stream.declare),
        "why": _Command(reasoning.WHY, _why, reasoning.declare_why),
        "why-not": _Command(reasoning.WHY_NOT, _why, reasoning.declare_why_not),
        "history": _Command(ledger.HISTORY, _history, ledger.declare),
        "replay": _Command(replaying.WHAT, _replay, replaying.declare),
        "topology": _Command(charting.WHAT, _topology, charting.declare, service=True),
    },
    "Write a policy": {
        "test": _Command(scenarios.WHAT, _test, scenarios.declare),
        "analyze": _Command(WHAT, _analyze, declare),
        "plan": _Command(planning.WHAT, _plan, planning.declare),
        "what-if": _Command(reasoning.WHAT_IF, _plan, reasoning.declare_what_if),
        "stage": _Command(staging.WHAT, _stage, staging.declare),
        "scheduling": _Command(
            scheduling.WHAT, _scheduling, partial(scheduling.declare, function=_scheduling)
        ),
        "metadata": _Command(
            metadata.WHAT, _metadata, partial(metadata.declare, function=_metadata)
        ),
        "export": _Command(planning.EXPORT, _export, planning.declare_export),
    },
    "Operate": {
        "config": _Command(
            "print the effective configuration, secrets masked", _config, _declare_config
        ),
        "provision": _Command(provisioning.WHAT, _provision, provisioning.declare),
        "certs": _Command(
            "make a certificate authority and a server certificate", _certs, _declare_certs
        ),
        "verify": _Command(ledger.VERIFY, _verify, ledger.declare_verify),
        "healthcheck": _Command("exit 0 if a readiness page says ready", _health, _declare_health),
    },
}
