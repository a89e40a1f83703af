"""`kube-sync decisions`: its arguments, and the stream that they name."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from kube_sync.cli.installed import reached
from kube_sync.cli.names import add_namespace, add_objects, add_selector, kinds_of, references
from kube_sync.cli.options import add_output, explain
from kube_sync.cli.runner import complain, run_async, say, settings_of, while_read
from kube_sync.errors import Misconfigured

if TYPE_CHECKING:  # slow
    from kube_sync.config import Settings
    from kube_sync.decisions.printing import Request

_PATH = "/v1/decisions"  # as stream.PATH, whose import is too slow here

WHAT = "print what is decided now of every resource, and what changes"

_DESCRIPTION = """\
Prints the decisions of a replicator, as the remediator gets them: one line for each resource,
with the clusters of its placement or the annotations that are decided, why there is no decision
where there is none, and what caused it. It reads the decision stream of the configuration
(decisions.url, token_file, ca_file) and changes nothing.

Decisions do not carry the labels of their objects. For -l, the API server of the configuration is
asked which objects have these labels now; it goes without --watch.
"""

_EXAMPLES = """\
examples:
  kube-sync decisions --config kube-sync.yaml
      what is decided now
  kube-sync decisions replicaset web -n shop
      of one object; exit status 1 if nothing is decided of it
  kube-sync decisions rs -o name | xargs kube-sync why
      names that all other commands take
  kube-sync decisions --watch --url https://replicator:9400 --token-file token --ca-file ca.crt
      then one line for each change, for as long as it runs, through restarts of the replicator:
      12:03:04 shop/web  c1,c2 -> c1  (data: clusters fleet/c2; policy ab12cd)
  kube-sync decisions --watch -o json
      the records themselves, one JSON object a line

exit status: 0; 1 if the replicator does not answer, or nothing is decided of NAME; 64 if the
command line or the configuration is wrong; 130 if interrupted.
"""


def declare(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command to a parser."""
    explain(parser, _DESCRIPTION, _EXAMPLES)
    add_objects(parser)
    add_namespace(parser, "of one namespace only", every=True)
    add_selector(parser)
    parser.add_argument(
        "-w", "--watch", action="store_true", help="go on with what changes, until interrupted"
    )
    add_output(parser, "text", "wide", "json", "yaml", "name")
    parser.add_argument(
        "--url", help="of the replicator, as https://replicator:9400 (default: decisions.url)"
    )
    parser.add_argument(
        "--token-file", metavar="FILE", help="its bearer token (default: decisions.token_file)"
    )
    parser.add_argument(
        "--ca-file", metavar="FILE", help="whose certificates to trust (default: decisions.ca_file)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Print decisions until all are printed, or for ever."""
    settings = settings_of(arguments)
    request = requested(arguments, settings)
    from kube_sync.decisions import command  # noqa: PLC0415 - slow

    with while_read(), reached(arguments, settings, "decisions") as found:
        run_async(command.run(request, pointed(arguments, found), say, complain))
    return 0


def requested(arguments: argparse.Namespace, settings: Settings) -> Request:
    """Return what is asked for. Raises Misconfigured; SyncError where labels are asked for."""
    from kube_sync.decisions import printing  # noqa: PLC0415 - slow

    found = printing.Request(
        watch=arguments.watch,
        form=arguments.output,
        namespace=arguments.namespace,
        of=references(arguments.objects, kinds_of(settings), arguments.namespace, listing=True),
    )
    if arguments.selector is None:
        return found
    if arguments.watch:
        msg = "--selector: goes without --watch; labels change, and the stream does not say so"
        raise Misconfigured(msg)
    from kube_sync.cli.labelled import labelled  # noqa: PLC0415 - slow

    return replace(found, labelled=labelled(settings, arguments.selector, arguments.namespace))


def pointed(arguments: argparse.Namespace, settings: Settings) -> Settings:
    """Return the settings with the command line's stream options. Raises Misconfigured."""
    said = {
        name: value
        for name in ("url", "token_file", "ca_file")
        if (value := getattr(arguments, name)) is not None
    }
    if "url" in said:
        from urllib.parse import urlsplit, urlunsplit  # noqa: PLC0415 - slow

        from kube_sync.config.addresses import check_url  # noqa: PLC0415 - slow

        check_url("--url", said["url"])
        parts = urlsplit(said["url"])
        if parts.path in ("", "/"):
            said["url"] = urlunsplit(parts._replace(path=_PATH))
    decisions = msgspec.structs.replace(settings.decisions, **said)
    return msgspec.structs.replace(settings, decisions=decisions)
