"""The command line of `kube-sync decisions`.

It imports no client of a server, since every other command pays for its imports too.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from urllib.parse import urlsplit, urlunsplit

import msgspec

from kube_sync.commandline import add_output, explain
from kube_sync.config import Settings
from kube_sync.config.addresses import check_url
from kube_sync.objects import ObjectKey

_PATH = "/v1/decisions"  # as stream.PATH, whose import is too slow here

WHAT = "print what is decided now of every resource, and what changes"

_DESCRIPTION = """\
Prints the decisions of a replicator, as the remediator gets them: one line for each resource,
with the clusters of its placement or the annotations that are decided, why there is no decision
where there is none, and what caused it. It reads the decision stream of the configuration
(decisions.url, token_file, ca_file) and changes nothing.
"""

_EXAMPLES = """\
examples:
  kube-sync decisions --config kube-sync.yaml
      what is decided now
  kube-sync decisions -n shop web
      of one resource; exit status 1 if nothing is decided of it
  kube-sync decisions --watch --url https://replicator:9400 --token-file token --ca-file ca.crt
      then one line for each change, for as long as it runs, through restarts of the replicator:
      12:03:04 shop/web  c1,c2 -> c1  (data: clusters fleet/c2; policy ab12cd)
  kube-sync decisions --watch -o json
      the records themselves, one JSON object a line

exit status: 0; 1 if the replicator does not answer, or nothing is decided of NAME; 2 if the command
line or the configuration is wrong; 130 if interrupted.
"""


@dataclass(frozen=True, slots=True)
class Request:
    """Which decisions to print, and how."""

    watch: bool = False
    json: bool = False
    namespace: str | None = None  # None: all
    name: str | None = None

    def wants(self, key: ObjectKey) -> bool:
        """Return whether the request includes an object."""
        return self.name in (None, key.name) and self.namespace in (None, key.namespace)


def declare(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command to a parser."""
    explain(parser, _DESCRIPTION, _EXAMPLES)
    parser.add_argument("name", nargs="?", metavar="NAME", help="of one resource only")
    parser.add_argument("-n", "--namespace", metavar="NAMESPACE", help="of one namespace only")
    parser.add_argument(
        "-w", "--watch", action="store_true", help="go on with what changes, until interrupted"
    )
    add_output(parser, "text", "json")
    parser.add_argument(
        "--url", help="of the replicator, as https://replicator:9400 (default: decisions.url)"
    )
    parser.add_argument(
        "--token-file", metavar="FILE", help="its bearer token (default: decisions.token_file)"
    )
    parser.add_argument(
        "--ca-file", metavar="FILE", help="whose certificates to trust (default: decisions.ca_file)"
    )


def requested(arguments: argparse.Namespace) -> Request:
    """Return the request on the command line."""
    return Request(
        watch=arguments.watch,
        json=arguments.output == "json",
        namespace=arguments.namespace,
        name=arguments.name,
    )


def pointed(arguments: argparse.Namespace, settings: Settings) -> Settings:
    """Return the settings with the command line's stream options. Raises Misconfigured."""
    said = {
        name: value
        for name in ("url", "token_file", "ca_file")
        if (value := getattr(arguments, name)) is not None
    }
    if "url" in said:
        check_url("--url", said["url"])
        parts = urlsplit(said["url"])
        if parts.path in ("", "/"):
            said["url"] = urlunsplit(parts._replace(path=_PATH))
    decisions = msgspec.structs.replace(settings.decisions, **said)
    return msgspec.structs.replace(settings, decisions=decisions)
