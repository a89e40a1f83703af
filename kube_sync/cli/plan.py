"""`kube-sync plan`, `what-if` and `export`: their arguments, and which cannot go together."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import TYPE_CHECKING

from kube_sync.cli.names import add_namespace, add_objects, add_selector, discovered, references
from kube_sync.cli.options import (
    add_output,
    add_sarif,
    add_several,
    check_standard_input,
    explain,
    form_of,
    note,
    refuse,
)
from kube_sync.cli.runner import (
    answered,
    run_async,
    say,
    settings_of,
    tell_progress,
    while_read,
)
from kube_sync.errors import Misconfigured
from kube_sync.inspect.plan.request import Request

if TYPE_CHECKING:  # slow
    from kube_sync.config import Settings

WHAT = "tell what an edit of policies or clusters would do to every workload"
WHAT_IF = "tell what would move if clusters had other attributes"
EXPORT = "print what plan, why and analyze need where no cluster is"

_DESCRIPTION = """\
Evaluates the placement decision of every workload as things are and as they would be, in OPAs of
its own, and tells which workloads would move, be refused or have no cluster, by which rule, and
when the brakes would let them go. Nothing is written, and the OPA that serves is not asked.
"""

_EXAMPLES = """\
examples:
  kube-sync plan --config kube-sync.yaml -f new-policy.yaml
      what a policy ConfigMap would do if it were applied
  kube-sync plan --set-cluster c1.labels.pci-certified=false --remove-cluster fleet/c2
      what would move if a cluster lost a label and another one left
  kube-sync plan -f new-policy.yaml rs/web -n shop
      what it would do to one workload; -l team=a: to those with this label
  kube-sync export > fleet.jsonl; kube-sync plan --from fleet.jsonl -f policies/ -o markdown
      the same in CI, where no cluster is, for a pull request

exit status: 0 if nothing changes; 2 if something moves, is added or changes; 3 if a workload would
be refused, have no cluster or not be decided any more, or if there is no plan (standard error says
why, and nothing is printed); 64 if the command line or
the configuration is wrong; 130 if interrupted.
"""

_WHAT_IF = """\
Tells what would become of every workload if clusters had other attributes: the same as
`kube-sync plan --set-cluster NAME.PATH=VALUE`, in its form and with its exit statuses.
"""

_WHAT_IF_EXAMPLES = """\
examples:
  kube-sync what-if c1.labels.pci-certified=false
      how far it reaches if a cluster loses a property
  kube-sync what-if c1.labels.zone-
      the same if the label goes

exit status: 0 if nothing changes; 2 if something moves, is added or changes; 3 if a workload would
be refused, have no cluster or not be decided any more, or if it cannot be told; 64 if the
command line or the configuration is wrong; 130 if interrupted.
"""

_EXPORT = """\
Prints the objects of all replicated resources and the policy ConfigMaps, one JSON object a line, as
`kube-sync plan --from` reads them. Values of Secrets and bookkeeping are left out.
"""


_CHOSEN = """\
Names, -n and -l say which workloads are printed, and count for the exit status. All are planned, so
that the brakes count all moves.
"""

_CANDIDATES = """\
Candidates are policy ConfigMaps, ConfigMaps of JSON data or PlacementPolicies (YAML, JSON), files
of Rego, or folders of these (-f), or the policies that are staged as candidates (--staged: the
label kube-sync.io/stage=candidate, or spec.stage). --candidate names one of these, a
PlacementPolicy as NAMESPACE/NAME.PlacementPolicy.
"""

_EXPORTED = """\
--from reads what `kube-sync export` printed. --cluster-scoped names a resource in it, by its name
in OPA, whose objects lie in no namespace.
"""


def declare(parser: argparse.ArgumentParser) -> None:
    """Teach a parser the arguments of `plan`."""
    explain(parser, _DESCRIPTION, _EXAMPLES)
    note(parser, _CHOSEN)
    add_objects(parser)
    declare_policies(parser)
    declare_clusters(parser)
    declare_source(parser)
    declare_output(parser)
    add_sarif(parser)


def declare_what_if(parser: argparse.ArgumentParser) -> None:
    """Teach a parser the arguments of `what-if`."""
    explain(parser, _WHAT_IF, _WHAT_IF_EXAMPLES)
    what = "as c1.labels.zone=eu; c1.labels.zone- removes the attribute"
    parser.add_argument("set_cluster", nargs="+", metavar="NAME.PATH=VALUE", help=what)
    declare_source(parser)
    declare_output(parser)
    parser.set_defaults(filename=[], instead=False, staged=False, candidate=[], remove_policy=[])
    parser.set_defaults(clusters=[], remove_cluster=[], sarif=None)


def declare_output(parser: argparse.ArgumentParser) -> None:
    """Teach a parser how a plan is printed."""
    add_namespace(parser, "only the workloads of this namespace", every=True)
    add_selector(parser)
    add_output(parser, "text", "wide", "json", "yaml", "name", "markdown", "summary")
    parser.add_argument("--all", action="store_true", help="all workloads, not the first 40")


def declare_policies(parser: argparse.ArgumentParser) -> None:
    """Teach a parser what says which policies there would be."""
    note(parser, _CANDIDATES)
    what = "candidate policies: YAML, JSON, Rego, or a folder"
    add_several(parser, "-f", "--filename", metavar="FILE", help=what)
    parser.add_argument(
        "--instead", action="store_true", help="the candidates are all policies that there are then"
    )
    parser.add_argument(
        "--staged",
        action="store_true",
        help="candidates are the policies of the stage `candidate`",
    )
    what = "with --staged: only this one, NAMESPACE/NAME"
    add_several(parser, "--candidate", metavar="NAME", help=what)
    what = "a policy ConfigMap that leaves"
    add_several(parser, "--remove-policy", metavar="NAME", help=what)


def declare_clusters(parser: argparse.ArgumentParser) -> None:
    """Teach a parser what says which clusters there would be."""
    what = "clusters that replace those of their names, or join"
    add_several(parser, "--clusters", metavar="FILE", help=what)
    what = "a field, as c1.labels.zone=eu; c1.labels.zone- removes it"
    add_several(parser, "--set-cluster", metavar="NAME.PATH=VALUE", help=what)
    add_several(parser, "--remove-cluster", metavar="NAME", help="a cluster that leaves")


def declare_source(parser: argparse.ArgumentParser) -> None:
    """Teach a parser where objects and policies are from."""
    note(parser, _EXPORTED)
    parser.add_argument(
        "--from",
        dest="exported",
        metavar="FILE",
        help="an export instead of the cluster, - for standard input",
    )
    what = "with --from: a resource that has no namespaces"
    add_several(parser, "--cluster-scoped", metavar="NAME", help=what)


def declare_export(parser: argparse.ArgumentParser) -> None:
    """Teach a parser the arguments of `export`."""
    parser.description = _EXPORT


def run(arguments: argparse.Namespace) -> int:
    """Print what an edit would do."""
    settings = settings_of(arguments, log_level="error", of=source_of(arguments))
    from kube_sync.inspect.plan import command  # noqa: PLC0415 - slow

    request = chosen(requested(arguments), arguments, settings)
    return answered(run_async(command.run(request, settings, tell_progress)), arguments.output)


def export(arguments: argparse.Namespace) -> int:
    """Print the objects of the cluster."""
    settings = settings_of(arguments)
    from kube_sync.inspect.plan import command  # noqa: PLC0415 - slow

    with while_read():
        run_async(command.export(settings, tell_progress, say))
    return 0


def source_of(arguments: argparse.Namespace) -> str | None:
    """Return whose configuration is asked for: with an export nobody's, no cluster is needed."""
    return "replicate" if arguments.exported is None else None


def requested(arguments: argparse.Namespace) -> Request:
    """Return what is asked for. Raises Misconfigured."""
    request = edited(arguments)
    policies = request.files or request.staged or request.unloaded
    if not (policies or request.clusters or request.fields or request.removed):
        options = "--remove-policy, --clusters, --set-cluster or --remove-cluster"
        msg = f"plan: say what would be otherwise: -f, --staged, {options}"
        raise Misconfigured(msg)
    return replace(request, form=form_of(arguments), every=arguments.all, sarif=arguments.sarif)


def chosen(request: Request, arguments: argparse.Namespace, settings: Settings) -> Request:
    """Return the request with the workloads that it is about. Raises Misconfigured, SyncError."""
    words = getattr(arguments, "objects", [])  # `what-if` has none
    kinds = discovered(settings, words, offline=request.exported is not None)
    from kube_sync.guard.labelselectors import parse_labels  # noqa: PLC0415 - slow

    return replace(
        request,
        of=references(words, kinds, arguments.namespace, listing=True),
        namespace=arguments.namespace,
        labels=() if arguments.selector is None else parse_labels(arguments.selector),
    )


def edited(arguments: argparse.Namespace) -> Request:
    """Return what would be otherwise, perhaps nothing, and than what. Raises Misconfigured."""
    request = Request(
        files=tuple(arguments.filename),
        instead=arguments.instead,
        staged=arguments.staged,
        candidates=tuple(arguments.candidate),
        unloaded=tuple(arguments.remove_policy),
        clusters=tuple(arguments.clusters),
        fields=tuple(arguments.set_cluster),
        removed=tuple(arguments.remove_cluster),
        exported=arguments.exported,
        cluster_scoped=frozenset(arguments.cluster_scoped),
    )
    check(request)
    return request


def check(request: Request) -> None:
    """Make sure that options go together. Raises Misconfigured."""
    refuse(
        request.instead and not (request.files or request.staged),
        "--instead: goes with -f or --staged",
    )
    refuse(
        request.instead and request.unloaded,
        "--remove-policy: goes without --instead, which leaves none but the candidates",
    )
    refuse(request.candidates and not request.staged, "--candidate: goes with --staged")
    refuse(
        request.cluster_scoped and request.exported is None,
        "--cluster-scoped: goes with --from; a cluster's API server knows",
    )
    check_standard_input([request.exported, *request.files, *request.clusters])
