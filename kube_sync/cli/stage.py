"""`kube-sync stage`: its arguments."""

from __future__ import annotations

import argparse
import asyncio
from typing import TYPE_CHECKING, Final

from kube_sync.cli.runner import printed, runner, settings_of

if TYPE_CHECKING:  # slow
    from kube_sync.policies.staging.promotion import Request


WHAT: Final = "take a policy to another stage, or take the last promotion back"


_KINDS: Final = ("configmap", "placementpolicy")
_STEPS: Final = ("candidate", "shadow", "canary", "active", "revert")


def declare(command: argparse.ArgumentParser) -> None:
    """Add what `stage` takes."""
    command.add_argument(
        "name",
        type=_named,
        metavar="[KIND/]NAME",
        help="the ConfigMap; placementpolicy/NAME: the PlacementPolicy",
    )
    command.add_argument(
        "step",
        choices=_STEPS,
        help="canary: let it decide on some objects; active: put it in place of what it stands for;"
        " revert: put back what was there",
    )
    command.add_argument(
        "--share", help="of all objects, that a canary is to decide on, from 0 to 1"
    )
    command.add_argument(
        "--namespaces", metavar="A,B", help="whose objects a canary is to decide on, all of them"
    )
    command.add_argument("-n", "--namespace", help="where it is (default: of policies)")
    _declare_limits(command)
    command.add_argument(
        "--force",
        action="store_true",
        help="whatever was counted, and also where it takes a policy out of force",
    )


def _declare_limits(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--max-breaks",
        type=_count,
        default=0,
        metavar="N",
        help="how many objects may be failed, refused, undecided or nowhere, of each, by what was"
        " counted; more halt a canary (default: %(default)s)",
    )
    command.add_argument(
        "--max-moves",
        type=_share,
        default=0.1,
        metavar="SHARE",
        help="which share of all objects may move, of a canary of those that it decides on, from 0"
        " to 1 (default: %(default)s)",
    )


@runner()
def run(arguments: argparse.Namespace) -> int:
    """Take a policy to another stage."""
    settings = settings_of(arguments)
    from kube_sync.processes.staging import run_stage  # noqa: PLC0415 - slow

    return printed(asyncio.run(run_stage(settings, requested(arguments))))


def requested(arguments: argparse.Namespace) -> Request:
    """Return what the command line asks for."""
    from kube_sync.policies.staging.promotion import Limits, Request  # noqa: PLC0415 - slow

    limits = Limits(arguments.max_breaks, arguments.max_moves)
    kind, name = arguments.name
    return Request(
        name,
        arguments.step,
        arguments.namespace,
        limits,
        arguments.force,
        kind,
        arguments.share,
        arguments.namespaces,
    )


def _named(text: str) -> tuple[str, str]:
    kind, slash, name = text.rpartition("/")
    kind = kind.lower() if slash else _KINDS[0]
    if not name or kind not in _KINDS:
        raise ValueError
    return kind, name


def _count(text: str) -> int:
    if (found := int(text)) < 0:
        raise ValueError
    return found


def _share(text: str) -> float:
    if not 0 <= (found := float(text)) <= 1:
        raise ValueError
    return found
