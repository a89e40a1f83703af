"""`kube-sync replicate`, `remediate`, `admit`, `run`, `policy-sync`, and `topology --live`."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from kube_sync import __version__
from kube_sync.cli.installed import environment_of, is_sought
from kube_sync.cli.options import add_config, note, sentence
from kube_sync.cli.runner import ENVIRONMENT, awaited, printed, run_async, settings_of

if TYPE_CHECKING:  # slow
    from kube_sync.config import Settings
    from kube_sync.processes.workers import Crew

Run = Callable[..., Awaitable[None]]

_WAITING: Final = """\
With --wait, a service that finds a file missing or wrong at the start says so on its readiness page
until the file is right, instead of ending with status 64.
"""


def declare(command: argparse.ArgumentParser) -> None:
    """Teach a parser what every service takes."""
    note(command, _WAITING)
    command.add_argument(
        "--wait",
        action="store_true",
        help="wait at the start for files that are missing or wrong",
    )
    command.add_argument(
        "--log-level",
        choices=["debug", "info", "warning", "error"],
        default="info",
        help="how much a service logs to standard error (default: %(default)s)",
    )


def declare_policy_sync(command: argparse.ArgumentParser) -> None:
    """Teach a parser `policy-sync approve`."""
    asks = command.add_subparsers(title="of one that runs", metavar="ASK")
    what = "let through removals that wait, as the readiness page names them"
    approve = asks.add_parser("approve", help=what, description=sentence(what))
    add_config(approve)
    approve.add_argument("names", nargs="+", metavar="NAME", help="as in moves-0123456789abcdef")
    approve.set_defaults(command=_approve)


def run(arguments: argparse.Namespace) -> int:
    """Run a service until it is stopped. Raises SyncError, in groups too."""
    service: str = arguments.service
    # Imported here: what talks to servers costs half a second that `config` need not pay.
    from kube_sync.config import source_of  # noqa: PLC0415
    from kube_sync.observability import logs  # noqa: PLC0415

    if getattr(arguments, "installation", None) or (service != "run" and is_sought(arguments)):
        arguments.parser.error(
            "a service that runs here has a configuration of its own: name its file by --config"
        )
    source = source_of(arguments.config, environment_of(arguments))
    content = source.read()
    settings = source.load(content)
    logs.configure_logs(arguments.log_level)
    from kube_sync.runtime.imports import import_aiohttp, without_collections  # noqa: PLC0415

    with without_collections():
        import_aiohttp(ENVIRONMENT)
        from kube_sync.observability import metrics, tracing  # noqa: PLC0415
        from kube_sync.processes import commands  # noqa: PLC0415

    services: dict[str, Run] = {
        "replicate": partial(commands.run_replicate, source=source),
        "remediate": commands.run_remediate,
        "admit": commands.run_admit,
        "run": partial(commands.run_all, source=source),
        "topology": commands.run_topology,
        "policy-sync": commands.run_policy_sync,
    }
    metrics.build_info.labels(__version__, service).set(1)
    start = services[service]
    if service == "admit" and settings.admission.workers > 1:
        start = partial(start, crew=_forked(settings))
    if arguments.wait:
        # Until services run nothing else ends a process with id 1, for which there are no defaults.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        # Another configuration is for another process.
        start = partial(start, patience=lambda: source.read() == content)
    with tracing.traced(settings.observe.tracing, service):
        run_async(awaited(start(settings)))
    return 0


def _forked(settings: Settings) -> Crew:
    """Start the other processes of the webhook; return what this one is."""
    from kube_sync.processes.workers import fork  # noqa: PLC0415 - slow, as above

    return fork(settings)


def _approve(arguments: argparse.Namespace) -> int:
    settings = settings_of(arguments, of="policy-sync")
    from kube_sync.processes.approving import run_approve_removals  # noqa: PLC0415 - slow, as above

    return printed(run_async(run_approve_removals(settings, arguments.names)))
