"""`kube-sync analyze`: its arguments, and which of them cannot go together."""

from __future__ import annotations

import argparse
import re
from contextlib import nullcontext
from typing import TYPE_CHECKING

from kube_sync.cli.installed import reached
from kube_sync.cli.options import add_output, add_sarif, add_several, explain, form_of, refuse
from kube_sync.cli.runner import answered, complain, run_async, settings_of

if TYPE_CHECKING:  # slow
    from kube_sync.inspect.survey.command import Request

WHAT = "print which fields policies read, and what replicating these saves"

_DESCRIPTION = """\
Prints which fields the placement decision can read: of its input, and of each replicated
resource. What is read whole, and so has to be replicated whole, is named with the file, row
and rule that reads it. Test files (*_test.rego) are left out. Policies that do not compile
together, but folder by folder, are analysed folder by folder.

Exported objects (--objects) are a Kubernetes List (`kubectl get replicasets -A -o json`), a JSON
list, or one object a line. --cluster-scoped names a resource, by its name in OPA, whose objects lie
in no namespace; it is needed neither with --cluster nor for the kinds that Kubernetes brings.
"""

_EXAMPLES = """\
examples:
  kube-sync analyze rego/examples/eu_pci --max-whole 3
      what this policy reads, for a check in CI: exit status 1 as soon as more than three
      fields are read whole, 0 otherwise
  kube-sync analyze --live --cluster --config kube-sync.yaml -o json
      what the policies of the configured OPA read, how many bytes the objects of the
      configured cluster would have in OPA, and how many decisions differ; nothing is written

exit status: 0; 1 if --max-whole is exceeded, or a policy does not compile, or a server does not
answer; 64 if the command line or the configuration is wrong.
"""

_PATH = re.compile(r"[^/\s]+(/[^/\s]+)*")  # as settings.Placement


def declare(parser: argparse.ArgumentParser) -> None:
    """Teach a parser the arguments of the command."""
    explain(parser, _DESCRIPTION, _EXAMPLES)
    parser.add_argument("paths", nargs="*", metavar="FOLDER", help="folders or files of Rego")
    parser.add_argument(
        "--live", action="store_true", help="analyse the policies of the configured OPA instead"
    )
    parser.add_argument(
        "--decision",
        metavar="PATH",
        help="as io/k8s/federation/admission (default: placement.path)",
    )
    add_output(parser, "text", "json", "yaml")
    parser.add_argument(
        "--max-whole",
        type=int,
        metavar="N",
        help="exit with 1 if more fields than that are read whole",
    )
    parser.add_argument(
        "--cluster", action="store_true", help="measure the objects of the configured cluster"
    )
    parser.add_argument(
        "--objects",
        metavar="FILE",
        help="measure exported objects, - for standard input",
    )
    what = "a resource that has no namespaces"
    add_several(parser, "--cluster-scoped", metavar="NAME", help=what)
    add_sarif(parser)


def run(arguments: argparse.Namespace) -> int:
    """Analyse policies, and print what they read."""
    request = requested(arguments)
    from_cluster = arguments.live or arguments.cluster
    settings = settings_of(arguments, of="replicate" if from_cluster else None)
    from kube_sync.inspect.survey import command  # noqa: PLC0415 - slow

    with reached(arguments, settings, "opa") if arguments.live else nullcontext(settings) as found:
        answer = run_async(command.run(request, found, complain))
    return answered(answer, arguments.output)


def requested(arguments: argparse.Namespace) -> Request:
    """Return what is asked for. Raises Misconfigured."""
    _check(arguments)
    from kube_sync.inspect.survey import command  # noqa: PLC0415 - slow

    return command.Request(
        paths=tuple(arguments.paths),
        decision=arguments.decision,
        json=form_of(arguments) == "json",
        max_whole=arguments.max_whole,
        cluster=arguments.cluster,
        objects=arguments.objects,
        cluster_scoped=frozenset(arguments.cluster_scoped),
        sarif=arguments.sarif,
    )


def _check(arguments: argparse.Namespace) -> None:
    refuse(
        bool(arguments.paths) == arguments.live,
        "analyze: say what, either a FOLDER of policies or --live",
    )
    refuse(arguments.cluster and arguments.objects, "--objects: not together with --cluster")
    refuse(
        arguments.cluster and arguments.cluster_scoped,
        "--cluster-scoped: not together with --cluster, which asks the API server",
    )
    refuse((arguments.max_whole or 0) < 0, f"--max-whole: {arguments.max_whole} is less than none")
    refuse(
        arguments.decision is not None and not _PATH.fullmatch(arguments.decision),
        f'--decision: "{arguments.decision}" is no path such as io/k8s/federation/admission',
    )
