"""`kube-sync stage`: its arguments."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, cast

from kube_sync.cli.names import add_namespace, add_objects, references
from kube_sync.cli.options import explain, refuse
from kube_sync.cli.runner import (
    confirmed,
    printed,
    run_async,
    say,
    settings_of,
    tell_progress,
)
from kube_sync.errors import Misconfigured, Terminal
from kube_sync.kube.naming import is_built_in, spellings
from kube_sync.objects import GroupVersionResource

if TYPE_CHECKING:  # slow
    from kube_sync.config import Settings
    from kube_sync.policies.staging.promotion import Kind, Request


WHAT: Final = "take a policy to another stage, or take the last promotion back"


_DESCRIPTION: Final = """\
Takes a policy, a ConfigMap or a PlacementPolicy, to another stage: candidate: it is compiled;
shadow: what it would change is counted; canary: it decides on some objects; active: it takes the
place of what it stands for; revert: what was there is put back.

By what was counted, at most --max-breaks objects may be failed, refused, undecided or nowhere, of
each of these, and at most the share --max-moves may move: of all objects, of a canary of those that
it decides on. More keep a policy from being promoted, and halt a canary.

Before a policy is made active, it prints which workloads would be decided otherwise, as `kube-sync
plan` tells it, and asks. Without a terminal it needs --yes, which does neither.
"""

_EXAMPLES: Final = """\
examples:
  kube-sync stage placement-candidate canary --share 0.1
      let a ConfigMap decide on a tenth of all objects
  kube-sync stage placementpolicy/eu-pci-candidate active -n policies
      put a PlacementPolicy in the place of what it stands for, once you agreed
  kube-sync stage placement-candidate active --yes
      put a ConfigMap in the place of what it stands for, in a script

exit status: 0; 1 if it was refused, by what was counted or by you, or a server does not answer; 64
if the command line or the configuration is wrong, or nobody can be asked; 130 if interrupted.
"""

_KINDS: Final[Mapping[str, frozenset[str]]] = {
    "configmap": spellings(GroupVersionResource("", "v1", "configmaps")),
    "placementpolicy": spellings(
        GroupVersionResource("policy.kube-sync.io", "v1alpha1", "placementpolicies")
    ),
}
_STEPS: Final = ("candidate", "shadow", "canary", "active", "revert")


def declare(command: argparse.ArgumentParser) -> None:
    """Add what `stage` takes."""
    explain(command, _DESCRIPTION, _EXAMPLES)
    what = "the policy, and then its stage"
    add_objects(command, required=True, metavar="NAME STAGE", help=what)
    command.add_argument(
        "--share", help="of all objects, that a canary is to decide on, from 0 to 1"
    )
    command.add_argument(
        "--namespaces", metavar="A,B", help="whose objects a canary is to decide on, all of them"
    )
    add_namespace(command, "where it is (default: of policies)")
    _declare_limits(command)
    command.add_argument(
        "--force",
        action="store_true",
        help="whatever was counted, and also where it takes a policy out of force",
    )
    command.add_argument("--yes", action="store_true", help="make it active without asking")


def _declare_limits(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--max-breaks",
        type=_count,
        default=0,
        metavar="N",
        help="how many objects may break, of each effect (default: %(default)s)",
    )
    command.add_argument(
        "--max-moves",
        type=_share,
        default=0.1,
        metavar="SHARE",
        help="which share of the objects may move, 0 to 1 (default: %(default)s)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Take a policy to another stage."""
    request = requested(arguments)
    if request.step == "active" and not arguments.yes and not sys.stdin.isatty():
        msg = "stage: active asks before objects move, and there is no terminal: say --yes"
        raise Misconfigured(msg)
    settings = settings_of(arguments)
    from kube_sync.processes.staging import run_stage  # noqa: PLC0415 - slow

    if request.step == "active" and not arguments.yes:
        request = _agreed(request, settings)
    return printed(run_async(run_stage(settings, request)))


def _agreed(request: Request, settings: Settings) -> Request:
    """Return the request of the version that a person agrees to. Raises Terminal, SyncError."""
    from kube_sync.inspect.plan.promotion_preview import preview  # noqa: PLC0415 - slow
    from kube_sync.processes.staging import consider  # noqa: PLC0415 - slow

    considered = run_async(consider(settings, request))
    if considered is None:
        return request
    for line in (*considered.said, *run_async(preview(settings, considered.policy, tell_progress))):
        say(line)
    if not confirmed("Make it active?"):
        msg = "not promoted: nothing was written"
        raise Terminal(msg)
    return replace(request, seen=considered.modules)


def requested(arguments: argparse.Namespace) -> Request:
    """Return what the command line asks for."""
    *words, step = arguments.objects
    if step not in _STEPS or not words:
        msg = f"{step}: expected a policy and a stage, as in placement canary: {', '.join(_STEPS)}"
        raise Misconfigured(msg)
    kind, namespace, name = named(words, arguments.namespace)
    from kube_sync.policies.staging.promotion import Limits, Request  # noqa: PLC0415 - slow

    limits = Limits(arguments.max_breaks, arguments.max_moves)
    return Request(
        name,
        step,
        namespace,
        limits,
        arguments.force,
        kind,
        arguments.share,
        arguments.namespaces,
    )


def named(words: Sequence[str], namespace: str | None) -> tuple[Kind, str | None, str]:
    """Return the kind, namespace and name of the policy that is meant. Raises Misconfigured."""
    found, *others = references(words, _KINDS, namespace)
    refuse(others, f"{' '.join(words)}: one policy at a time")
    for one in found:
        for kind, names in _KINDS.items():
            if one.name and (one.kind or kind).lower() in names:
                return cast("Kind", kind), one.namespace or namespace, one.name
        if one.kind is not None and is_built_in(one.kind):
            break
    msg = f"{found[0].text}: no policy; as in placement or placementpolicy/placement"
    raise Misconfigured(msg)


def _count(text: str) -> int:
    if (found := int(text)) < 0:
        raise ValueError
    return found


def _share(text: str) -> float:
    if not 0 <= (found := float(text)) <= 1:
        raise ValueError
    return found
