"""The command lines of `kube-sync why`, `why-not` and `what-if`: what can be asked for.

Keeps true: a Question can be answered. It imports nothing that talks to servers, since every other
command pays for it too.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from kube_sync.commandline import add_output, explain
from kube_sync.errors import Misconfigured
from kube_sync.inspect.plan import arguments as planning
from kube_sync.inspect.plan.arguments import Request
from kube_sync.inspect.why.past_arguments import declare_at

WHY: Final = "tell why an object is placed where it is, and why not elsewhere"
WHY_NOT: Final = "tell why an object is not on a cluster, and what would put it there"
WHAT_IF: Final = "tell what would move if clusters had other attributes"
TRIES: Final = 300

_WHY = """\
Tells what is decided of an object, by which rules (file and row), from which values, whether the
object has it, and for each cluster that it is chosen or what speaks against it: what the policy
says itself (`reasons[cluster]`) and, where it says nothing, the expressions of its rules that do
not hold for this cluster and hold for those that are chosen (or the other way round).
An object on the side of a canary that decides is told by the canary's policies, and so it says.
Nothing is written, and the OPA that serves is not asked: an OPA of its own is.
"""

_WHY_EXAMPLES = """\
examples:
  kube-sync why replicaset/web -n shop
      the decision, its rules and inputs, and all clusters
  kube-sync why replicaset/web -n shop -f new-policy.yaml
      the same as it would be with an edited policy
  kube-sync export > fleet.jsonl; kube-sync why replicaset/web -n shop --from fleet.jsonl -o json
      the same where no cluster is, for a program
  kube-sync why replicaset/web -n shop --at 2026-11-17T10:00:00Z --ledger ledger.db
      what was decided of it then, since when, by which rules, and what was written or held

exit status: 0 if it is told; 3 if it cannot be told (standard error says why: no such object, a
policy that does not compile, a server that does not answer, a time before the ledger begins;
nothing is printed); 130 if interrupted.
"""

_WHY_NOT = """\
Tells what speaks against one cluster, and looks for the smallest single change of an attribute of
this cluster or of the object that would put the object there: it tries what the decision reads,
with values that others have, that rules compare with, or that are one step beyond. Each try is
evaluated in an OPA of its own, and what is printed was seen to turn the decision. Nothing is
written.
"""

_WHY_NOT_EXAMPLES = """\
examples:
  kube-sync why-not replicaset/web -n shop --cluster c2
      what speaks against c2, and what would have to be otherwise
  kube-sync why-not replicaset/web -n shop --cluster c2 --from fleet.jsonl --tries 1000
      the same from an export, with more patience

exit status: 0 if it is told, also where no change was found; 3 if it cannot be told (standard
error says why, and nothing is printed); 130 if interrupted.
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
be refused, have no cluster or not be decided any more, or if it cannot be told; 130 if interrupted.
"""

Form = Literal["text", "json"]


@dataclass(frozen=True, slots=True)
class Question:
    """What to ask about which object, in which world, and how to print the answer."""

    subject: str  # kind/name
    namespace: str | None = None
    cluster: str | None = None  # None: all of them, without a search
    tries: int = TRIES
    form: Form = "text"
    world: Request = field(default_factory=Request)


def declare_why(parser: argparse.ArgumentParser) -> None:
    """Teach a parser the arguments of `why`."""
    explain(parser, _WHY, _WHY_EXAMPLES)
    _declare(parser)
    declare_at(parser)


def declare_why_not(parser: argparse.ArgumentParser) -> None:
    """Teach a parser the arguments of `why-not`."""
    explain(parser, _WHY_NOT, _WHY_NOT_EXAMPLES)
    parser.add_argument("--cluster", required=True, metavar="NAME", help="the cluster in question")
    parser.add_argument(
        "--tries",
        type=int,
        default=TRIES,
        metavar="N",
        help="changes at most (default: %(default)s)",
    )
    _declare(parser)


def declare_what_if(parser: argparse.ArgumentParser) -> None:
    """Teach a parser the arguments of `what-if`."""
    explain(parser, _WHAT_IF, _WHAT_IF_EXAMPLES)
    what = "an attribute of a cluster, as c1.labels.zone=eu; c1.labels.zone- takes it away"
    parser.add_argument("set_cluster", nargs="+", metavar="NAME.PATH=VALUE", help=what)
    planning.declare_source(parser)
    planning.declare_output(parser)
    parser.set_defaults(filename=[], instead=False, staged=False, candidate=[], remove_policy=[])
    parser.set_defaults(clusters=[], remove_cluster=[])


def asked(arguments: argparse.Namespace) -> Question:
    """Return what is asked for. Raises Misconfigured."""
    found = Question(
        arguments.subject,
        arguments.namespace,
        form=arguments.output,
        world=planning.edited(arguments),
    )
    if "cluster" not in arguments:
        return found
    if arguments.tries < 0:
        msg = "--tries: expected a number of changes, 0 for none"
        raise Misconfigured(msg)
    return replace(found, cluster=arguments.cluster, tries=arguments.tries)


def _declare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("subject", metavar="KIND/NAME", help="the object, as in replicaset/web")
    parser.add_argument(
        "-n", "--namespace", metavar="NAMESPACE", help="where it lies (default: default)"
    )
    planning.declare_policies(parser)
    planning.declare_clusters(parser)
    planning.declare_source(parser)
    add_output(parser, "text", "json")
