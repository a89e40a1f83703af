"""The command line of `kube-sync stage`; a module of its own, to import nothing slow."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Final, Literal, cast, get_args

Kind = Literal["configmap", "placementpolicy"]
Step = Literal["candidate", "shadow", "canary", "active", "revert"]

WHAT: Final = "take a policy to another stage, or take the last promotion back"


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a promotion: objects that may break, and the share of all that may move."""

    breaks: int = 0  # for each effect that breaks
    moves: float = 0.1  # share of all objects, from 0 to 1


@dataclass(frozen=True, slots=True)
class Request:
    """The requested step of a policy; without namespace: the first policy namespace."""

    name: str
    step: Step
    namespace: str | None = None
    limits: Limits = Limits()
    force: bool = False
    kind: Kind = "configmap"
    share: str | None = None  # of all objects, for a canary; None: unchanged
    namespaces: str | None = None  # namespaces, comma-separated, whose objects a canary decides on


def declare(command: argparse.ArgumentParser) -> None:
    """Add the arguments of `stage`."""
    command.add_argument(
        "name",
        type=_named,
        metavar="[KIND/]NAME",
        help="the ConfigMap; placementpolicy/NAME: the PlacementPolicy",
    )
    command.add_argument(
        "step",
        choices=get_args(Step),
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
        default=Limits().breaks,
        metavar="N",
        help="how many objects may be failed, refused, undecided or nowhere, of each, by what was"
        " counted; more halt a canary (default: %(default)s)",
    )
    command.add_argument(
        "--max-moves",
        type=_share,
        default=Limits().moves,
        metavar="SHARE",
        help="which share of all objects may move, of a canary of those that it decides on, from 0"
        " to 1 (default: %(default)s)",
    )


def requested(arguments: argparse.Namespace) -> Request:
    """Return the request on the command line."""
    limits = Limits(arguments.max_breaks, arguments.max_moves)
    step = cast("Step", arguments.step)
    kind, name = arguments.name
    return Request(
        name,
        step,
        arguments.namespace,
        limits,
        arguments.force,
        kind,
        arguments.share,
        arguments.namespaces,
    )


def _named(text: str) -> tuple[Kind, str]:
    kind, slash, name = text.rpartition("/")
    known: dict[str, Kind] = {found: found for found in get_args(Kind)}
    if not name or (slash and kind.lower() not in known):
        raise ValueError
    return known.get(kind.lower(), "configmap"), name


def _count(text: str) -> int:
    if (found := int(text)) < 0:
        raise ValueError
    return found


def _share(text: str) -> float:
    if not 0 <= (found := float(text)) <= 1:
        raise ValueError
    return found
