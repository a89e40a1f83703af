"""`kube-sync topology`: its arguments, and which of them cannot go together."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from kube_sync.cli import services
from kube_sync.cli.installed import load
from kube_sync.cli.options import add_output, check_standard_input, explain, form_of, refuse
from kube_sync.cli.runner import answered, complain
from kube_sync.errors import Misconfigured

if TYPE_CHECKING:  # slow
    from kube_sync.inspect.survey.topology.command import Request

WHAT = "tell what policies apply on each path; --live: as a controller"

_DESCRIPTION = """\
With -f, builds the topology of the Gateway API objects and policies of manifests, without a
cluster: classes, gateways, listeners, routes, their rules, services and their ports, and the
policies that target them. A path is what a request goes through; its effective policy is what all
policies on it come to, by defaults, overrides and merge strategies. docs/topology.md explains it.
With --plain, ports of parentRefs, hostnames, allowedRoutes and ReferenceGrants are disregarded.

With --live, runs as a controller beside a cluster until it is stopped: the same topology, of what
the API server holds, written into the statuses of policies and of what they affect, and as a
picture into a ConfigMap. One of several replicas writes, the one that holds the Lease.
"""

_EXAMPLES = """\
examples:
  kube-sync topology -f manifests/
      what there is, what it is below, and what is wrong with it
  kube-sync topology -f manifests/ --effective ColorPolicy
      each path, each rule that applies on it, and the policy that it is from
  kube-sync topology -f manifests/ -o json --strict
      for CI: exit status 1 if a policy contradicts another of its target, or is not accepted
  kube-sync topology -f manifests/ -o svg > topology.svg
      a picture (-o dot for Graphviz)
  kube-sync topology -f manifests/ --from gatewayclass.gateway.networking.k8s.io:lab \\
      --to httproute.gateway.networking.k8s.io:shop/web#rule-1
      the paths between two locators, as the JSON has them
  kube-sync topology --live --config kube-sync.yaml
      the controller

exit status: 0; 1 if a manifest cannot be read, or --strict has something against it; 64 if the
command line or the configuration is wrong.
"""


def declare(parser: argparse.ArgumentParser) -> None:
    """Teach a parser the arguments of the command."""
    explain(parser, _DESCRIPTION, _EXAMPLES)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "-f",
        "--files",
        default=[],
        action="append",
        metavar="DIR",
        help="a folder or file of YAML or JSON, - for standard input (repeatable)",
    )
    source.add_argument(
        "--live", action="store_true", help="run as the controller of a cluster until stopped"
    )
    _declare_printed(parser)
    parser.add_argument(
        "--plain",
        action="store_true",
        help="link whatever is named, also what is not allowed",
    )
    parser.add_argument(
        "--strict",
        action="store_true",
        help="exit with 1 if policies contradict each other or one is not accepted",
    )
    parser.add_argument(
        "-n",
        "--namespace",
        default="default",
        metavar="NAMESPACE",
        help="of objects that do not say theirs (default: %(default)s)",
    )


def _declare_printed(parser: argparse.ArgumentParser) -> None:
    add_output(parser, "text", "json", "yaml", "dot", "svg")
    parser.add_argument(
        "--effective", metavar="KIND", help="the effective policies of that kind, by path"
    )
    parser.add_argument(
        "--from", dest="start", metavar="LOCATOR", help="paths from there (default: every root)"
    )
    parser.add_argument(
        "--to", dest="end", metavar="LOCATOR", help="paths to there (default: every leaf)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Print the topology of manifests, or run as a controller."""
    requested(arguments)  # what is wrong with it is so of either
    return services.run(arguments) if arguments.live else _print(arguments)


def _print(arguments: argparse.Namespace) -> int:
    from kube_sync.inspect.survey.topology import command  # noqa: PLC0415 - slow

    settings = load(arguments, of=None)  # it is about files
    answer = command.run(requested(arguments), complain, settings.topology)
    return answered(answer, arguments.output)


def requested(arguments: argparse.Namespace) -> Request:
    """Return what is asked for of manifests. Raises Misconfigured."""
    from kube_sync.inspect.survey.topology import command  # noqa: PLC0415 - slow

    request = command.Request(
        files=tuple(arguments.files),
        output=form_of(arguments),
        effective=arguments.effective,
        start=arguments.start,
        end=arguments.end,
        plain=arguments.plain,
        strict=arguments.strict,
        namespace=arguments.namespace,
    )
    _check(request)
    if arguments.live and request != command.Request(()):
        msg = "--live: the controller prints nothing: leave the options of what is printed out"
        raise Misconfigured(msg)
    return request


def _check(request: Request) -> None:
    check_standard_input(request.files)
    picture = request.output in ("dot", "svg")
    between = request.start is not None or request.end is not None
    refuse(
        picture and request.effective is not None,
        f"--effective: not together with -o {request.output}",
    )
    refuse(picture and between, f"--from and --to: not together with -o {request.output}")
    refuse(
        between and request.effective is not None and request.output == "text",
        "--effective: goes with --from and --to only in -o json and yaml",
    )
