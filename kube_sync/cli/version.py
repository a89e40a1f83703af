"""`kube-sync version`: its arguments, and where it asks."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Final

from kube_sync.cli.installed import load, reached
from kube_sync.cli.options import add_output, explain
from kube_sync.cli.runner import printed, run_async
from kube_sync.errors import SyncError
from kube_sync.observability.printing import indented

if TYPE_CHECKING:  # slow
    from kube_sync.inspect.versions import Server, Versions

WHAT: Final = "print the versions of client, servers, OPA and policies"

_DESCRIPTION: Final = """\
Prints the version of this program and of its OPA (opa.binary), of the API server, of the replicator
and of the OPA beside it, and the revision of the policies in force, as decisions have it. The
replicator is the one of the configuration (decisions.url), or of the installation in the cluster.
What does not answer has its reason on its line.
"""

_EXAMPLES: Final = """\
examples:
  kubectl kube-sync version
      of this program, and of the installation that the cluster has
  kube-sync version --client
      of this program alone, asking nobody
  kube-sync version --config kube-sync.yaml -o yaml
      for a report of a fault

exit status: 0, whatever did not answer; 64 if the command line or the configuration is wrong.
"""


def declare(parser: argparse.ArgumentParser) -> None:
    """Teach a parser the arguments of `version`."""
    explain(parser, _DESCRIPTION, _EXAMPLES)
    parser.add_argument("--client", action="store_true", help="of this program and its OPA only")
    add_output(parser, "text", "json", "yaml")


def run(arguments: argparse.Namespace) -> int:
    """Print versions."""
    from kube_sync.observability import logs  # noqa: PLC0415 - slow

    logs.configure_logs("error")
    from kube_sync.inspect.versions import as_text  # noqa: PLC0415 - slow

    found = _asked(arguments)
    text = as_text(found) if arguments.output == "text" else indented(found)
    return printed(text, arguments.output)


def _asked(arguments: argparse.Namespace) -> Versions:
    from kube_sync.inspect import versions  # noqa: PLC0415 - slow

    local = load(arguments, of=None)
    client = run_async(versions.of_client(local))
    if arguments.client:
        return versions.Versions(client)
    kubernetes, server = run_async(versions.of_api_server(local.kubernetes)), _server(arguments)
    return versions.Versions(client, kubernetes, server.server, server.opa, server.policies)


def _server(arguments: argparse.Namespace) -> Server:
    from kube_sync.inspect import versions  # noqa: PLC0415 - slow

    try:
        settings = load(arguments)
        with reached(arguments, settings, "decisions") as found:
            return run_async(versions.of_replicator(found.decisions))
    except SyncError as error:
        return versions.unknown(str(error))
