"""`kube-sync history` and `kube-sync verify`: their arguments, and times as people write them."""

from __future__ import annotations

import argparse
import re
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from kube_sync.cli.installed import is_sought, load
from kube_sync.cli.names import add_namespace, add_objects, kinds_of, references
from kube_sync.cli.options import add_output, explain, refuse
from kube_sync.cli.runner import (
    complain,
    run_async,
    say,
    settings_of,
    show,
    while_read,
)
from kube_sync.errors import Misconfigured

if TYPE_CHECKING:  # slow
    from kube_sync.config import Settings
    from kube_sync.ledger.command import Request

HISTORY = "print what was decided and written, now or as of a time"
VERIFY = "tell whether the ledger is what was written, or which row is not"

_DESCRIPTION = """\
Prints what the ledger of a replicator has: each change of a decision with the policy and the
cause, each write with what became of it and who let it through, oldest first. It reads the file
(ledger.path of the configuration, or --file) while the replicator writes it, or a copy of it.
It has no -l: the ledger has no labels, and those of today need not be those of then.
"""

_EXAMPLES = """\
examples:
  kube-sync history --since 2h
      what happened in the last two hours
  kube-sync history replicaset/web -n shop
      what happened to one object
  kube-sync history replicaset/web -n shop --at 2026-11-17T10:00:00Z
      what stood of it last Tuesday at ten, since when, by which policy and why

TIME: as 2026-11-17, 2026-11-17T10:00:00Z (UTC where it does not say) or 30s, 5m, 2h, 7d ago.

exit status: 0; 1 if there is no ledger, or nothing in it of what was named, or it cannot be read;
64 if the command line or the configuration is wrong.
"""

_VERIFYING = """\
Checks every row of the ledger against its hash and the row before it, and every text that a row
names, and what stands of each object against the rows. Rows that were cut off at the end, and a
chain that was made anew, show by a head that was noted elsewhere: it compares with the one on the
replicator's Lease and with those in Events about halted canaries, where the API server of the
configuration answers, and says so where it does not; and with one that an earlier run printed.

exit status: 0; 1 if a row is not what was written, which is named, or --require-head is not met;
64 if the command line or the configuration is wrong.
"""

_AGO = re.compile(r"([0-9]{1,9})([smhd])")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_HEAD = re.compile(r"([0-9]{1,18}):([0-9a-f]{64})")


def declare(parser: argparse.ArgumentParser) -> None:
    """Teach a parser the arguments of `history`."""
    explain(parser, _DESCRIPTION, _EXAMPLES)
    add_objects(parser)
    add_namespace(parser, "of one namespace (of a NAME: default)", every=True)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--since", metavar="TIME", help="only what happened since then")
    which.add_argument("--at", metavar="TIME", help="what stood of an object then, and why")
    parser.add_argument(
        "--limit", type=int, default=1_000, metavar="N", help="the newest N (default: %(default)s)"
    )
    _file(parser)
    add_output(parser, "text", "wide", "json", "yaml", "name")


def declare_verify(parser: argparse.ArgumentParser) -> None:
    """Teach a parser the arguments of `verify`."""
    explain(parser, _VERIFYING)
    parser.add_argument("--head", metavar="ROW:HASH", help="as an earlier run printed it")
    parser.add_argument(
        "--require-head", action="store_true", help="fail where no head could be compared with"
    )
    parser.add_argument("--offline", action="store_true", help="ask no API server for heads")
    _file(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print what the ledger has."""
    settings = load(arguments)
    request = requested(arguments, settings, time.time())
    from kube_sync.ledger import command  # noqa: PLC0415 - slow

    with while_read():
        command.history(request, say, complain)
    return 0


def check(arguments: argparse.Namespace) -> int:
    """Print whether the ledger is what was written."""
    settings = settings_of(arguments)
    file = file_of(arguments.file, settings, elsewhere=is_sought(arguments))
    anchors = anchors_of(arguments)
    from kube_sync.ledger import command  # noqa: PLC0415 - slow
    from kube_sync.processes.ledger import noted_elsewhere  # noqa: PLC0415 - slow

    # Before the file is read: what is noted meanwhile may be newer than that.
    noted = run_async(noted_elsewhere(settings, anchors, offline=arguments.offline))
    required = arguments.require_head
    return 0 if command.check(file, noted, show, complain, required=required) else 1


def requested(arguments: argparse.Namespace, settings: Settings, now: float) -> Request:
    """Return what `history` is asked for. Raises Misconfigured."""
    namespace = arguments.namespace
    kinds = kinds_of(settings)
    found = references(arguments.objects, kinds, namespace, listing=arguments.at is None)
    refuse(arguments.at is not None and not found, "--at: name an object, as replicaset/web")
    refuse(arguments.limit < 1, f"--limit: {arguments.limit} is less than 1")
    since, at = (
        None if text is None else moment(text, now) for text in (arguments.since, arguments.at)
    )
    from kube_sync.ledger import command  # noqa: PLC0415 - slow

    return command.Request(
        file_of(arguments.file, settings, elsewhere=is_sought(arguments)),
        found,
        namespace,
        since or 0.0,
        at,
        arguments.limit,
        arguments.output,
    )


def anchors_of(arguments: argparse.Namespace) -> list[tuple[int, str]]:
    """Return the heads that whoever asks has noted. Raises Misconfigured."""
    if arguments.head is None:
        return []
    if (found := _HEAD.fullmatch(arguments.head)) is None:
        msg = f'--head: "{arguments.head}" is not ROW:HASH as `kube-sync verify` prints it'
        raise Misconfigured(msg)
    return [(int(found[1]), found[2])]


def file_of(
    given: str | None, settings: Settings, option: str = "--file", *, elsewhere: bool = False
) -> str:
    """Return where the ledger is. Raises Misconfigured where nobody says.

    `elsewhere`: the settings are of an installation in a cluster, and so is its file.
    """
    if elsewhere and not given and settings.ledger.path is not None:
        msg = (
            f"{option}: the ledger is a file of the replicator's pod; ask there, as in `kubectl"
            f" exec -n {settings.coordination.namespace} deploy/kube-sync -c replicator --"
            " kube-sync history`, or name a copy"
        )
        raise Misconfigured(msg)
    found = given or settings.ledger.path
    if found is None:
        msg = (
            f"ledger.path: not set, so no ledger is kept (docs/ledger.md); or name one by {option}"
        )
        raise Misconfigured(msg)
    return found


def moment(text: str, now: float) -> float:
    """Return the time that is meant, in Unix seconds. Raises Misconfigured."""
    if (ago := _AGO.fullmatch(text)) is not None:
        return now - int(ago[1]) * _UNITS[ago[2]]
    try:
        found = datetime.fromisoformat(text)
        return (found if found.tzinfo is not None else found.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError) as error:
        msg = f'TIME: "{text}" is none, as 2026-11-17T10:00:00Z or 2h is'
        raise Misconfigured(msg) from error


def _file(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--file", metavar="FILE", help="the ledger (default: ledger.path)")
