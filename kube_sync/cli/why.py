"""`kube-sync why` and `why-not`: their arguments, also of the past."""

from __future__ import annotations

import argparse
import time
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from kube_sync.cli import plan
from kube_sync.cli.history import file_of, moment
from kube_sync.cli.installed import default_namespace, is_sought, reached
from kube_sync.cli.names import add_namespace, add_objects, discovered, kinds_of, references
from kube_sync.cli.options import add_output, explain, form_of, refuse
from kube_sync.cli.runner import answered, complain, run_async, settings_of, tell_progress
from kube_sync.errors import Misconfigured, SyncError
from kube_sync.kube.naming import lying_in

if TYPE_CHECKING:  # slow
    from kube_sync.config import Decisions, Settings
    from kube_sync.inspect.why.command import Question
    from kube_sync.inspect.why.past import PastRequest

WHY: Final = "tell why an object is placed where it is, and why not elsewhere"
WHY_NOT: Final = "tell why an object is not on a cluster, and what would put it there"

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
  kube-sync why rs web -n shop
      the decision, its rules and inputs, and all clusters
  kube-sync why shop/web shop/api
      the same of two objects, named as `kube-sync decisions` prints them
  kube-sync why replicaset/web -n shop -f new-policy.yaml
      the same as it would be with an edited policy
  kube-sync export > fleet.jsonl; kube-sync why replicaset/web -n shop --from fleet.jsonl -o json
      the same where no cluster is, for a program
  kube-sync why replicaset/web -n shop --at 2026-11-17T10:00:00Z --ledger ledger.db
      what was decided of it then, since when, by which rules, and what was written or held

exit status: 0 if it is told; 3 if it cannot be told (standard error says why: no such object, a
policy that does not compile, a server that does not answer, a time before the ledger begins;
nothing is printed); 64 if the command line or
the configuration is wrong; 130 if interrupted.
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
  kube-sync why-not replicaset/web c2 -n shop
      what speaks against c2, and what would have to be otherwise
  kube-sync why-not replicaset/web c2 -n shop --from fleet.jsonl --tries 1000
      the same from an export, with more patience

exit status: 0 if it is told, also where no change was found; 3 if it cannot be told (standard
error says why, and nothing is printed); 64 if the command line or
the configuration is wrong; 130 if interrupted.
"""

# What there would be is no question about what there was.
_EDITS: Final = {
    "filename": "-f",
    "instead": "--instead",
    "staged": "--staged",
    "remove_policy": "--remove-policy",
    "clusters": "--clusters",
    "set_cluster": "--set-cluster",
    "remove_cluster": "--remove-cluster",
    "exported": "--from",
    "cluster_scoped": "--cluster-scoped",
}


def declare_why(parser: argparse.ArgumentParser) -> None:
    """Teach a parser the arguments of `why`."""
    explain(parser, _WHY, _WHY_EXAMPLES)
    add_objects(parser, required=True)
    _declare(parser)
    declare_at(parser)


def declare_why_not(parser: argparse.ArgumentParser) -> None:
    """Teach a parser the arguments of `why-not`."""
    explain(parser, _WHY_NOT, _WHY_NOT_EXAMPLES)
    what = "an object, and then the cluster in question"
    add_objects(parser, required=True, metavar="NAME CLUSTER", help=what)
    parser.add_argument("--cluster", help=argparse.SUPPRESS)  # for one release; CLUSTER is the word
    parser.add_argument(
        "--tries",
        type=int,
        default=300,
        metavar="N",
        help="changes at most (default: %(default)s)",
    )
    _declare(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print why an object is where it is, or was."""
    settings = settings_of(arguments, log_level="error", of=plan.source_of(arguments))
    from kube_sync.inspect.why import command  # noqa: PLC0415 - slow

    if of_the_past(arguments):
        past = recalled(arguments, settings, time.time())
        return answered(run_async(command.run_past(past, settings)), arguments.output)
    question = asked(arguments, settings)
    with ExitStack() as stack:
        if settings.observe.tracing.enabled and not _edits(arguments):
            question = replace(question, stream=_stream(arguments, settings, stack))
        answer = run_async(command.run(question, settings, tell_progress))
    return answered(answer, arguments.output)


def _stream(
    arguments: argparse.Namespace, settings: Settings, stack: ExitStack
) -> Decisions | None:
    """Return where the decision stream is, to look up traces; None if it cannot be reached."""
    try:
        return stack.enter_context(reached(arguments, settings, "decisions")).decisions
    except SyncError as error:
        complain(f"the trace is not known: {error}")
        return None


def asked(arguments: argparse.Namespace, settings: Settings) -> Question:
    """Return what is asked for. Raises Misconfigured; SyncError where discovery is needed."""
    world = plan.edited(arguments)
    words, cluster = arguments.objects, None
    if "cluster" in arguments:
        words, cluster = _with_cluster(arguments)
    kinds = discovered(settings, words, offline=world.exported is not None)
    found = references(words, kinds, arguments.namespace)
    if world.exported is None and (default := default_namespace(arguments)) is not None:
        found = tuple(lying_in(one, default) for one in found)
    first, *others = found
    from kube_sync.inspect.why.command import Question  # noqa: PLC0415 - slow

    question = Question(
        first,
        arguments.namespace,
        form=form_of(arguments),
        world=world,
        others=tuple(others),
        kinds=kinds,
    )
    if cluster is None:
        return question
    return replace(question, cluster=cluster, tries=arguments.tries)


def _with_cluster(arguments: argparse.Namespace) -> tuple[list[str], str]:
    """Return the words that name an object, and the cluster after them. Raises Misconfigured."""
    refuse(arguments.tries < 0, "--tries: expected a number of changes, 0 for none")
    if arguments.cluster is not None:
        return arguments.objects, arguments.cluster
    *words, cluster = arguments.objects
    refuse(not words, f"{cluster}: name an object and a cluster, as in replicaset/web c2")
    return words, cluster


def _declare(parser: argparse.ArgumentParser) -> None:
    add_namespace(parser, "where it lies (default: default)")
    plan.declare_policies(parser)
    plan.declare_clusters(parser)
    plan.declare_source(parser)
    add_output(parser, "text", "json", "yaml")


def declare_at(parser: argparse.ArgumentParser) -> None:
    """Teach the parser of `why` the arguments of the past."""
    parser.add_argument(
        "--at",
        metavar="TIME",
        help="what was decided then: 2026-11-17T10:00:00Z, or 2h for 2h ago",
    )
    parser.add_argument(
        "--ledger", metavar="FILE", help="with --at: the ledger (default: ledger.path)"
    )


def of_the_past(arguments: argparse.Namespace) -> bool:
    """Tell whether the past is asked about. Raises Misconfigured for options that do not fit."""
    if getattr(arguments, "at", None) is None:  # `why-not` has neither
        refuse(getattr(arguments, "ledger", None) is not None, "--ledger: goes with --at")
        return False
    if given := _edits(arguments):
        msg = f"--at: tells what was decided, not what would be: it goes without {', '.join(given)}"
        raise Misconfigured(msg)
    return True


def _edits(arguments: argparse.Namespace) -> list[str]:
    """Return the options that ask about what there would be, or is elsewhere."""
    return [option for name, option in _EDITS.items() if getattr(arguments, name, None)]


def recalled(arguments: argparse.Namespace, settings: Settings, now: float) -> list[PastRequest]:
    """Return what is asked of the past; `now` is Unix seconds. Raises Misconfigured."""
    file = file_of(arguments.ledger, settings, "--ledger", elsewhere=is_sought(arguments))
    at = moment(arguments.at, now)
    refuse(at > now, f"--at: {arguments.at} is yet to come")
    from kube_sync.inspect.why.past import PastRequest  # noqa: PLC0415 - slow

    namespace, form = arguments.namespace, form_of(arguments)
    found = references(arguments.objects, kinds_of(settings), namespace)
    return [PastRequest(file, of, namespace, at, form) for of in found]
