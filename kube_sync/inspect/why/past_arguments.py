"""The command line of `kube-sync why --at`: what can be asked of the past.

It imports nothing that talks to servers, since every other command pays for it too.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Final, Literal

from kube_sync.commandline import kind_and_name
from kube_sync.config import Settings
from kube_sync.errors import Misconfigured
from kube_sync.ledger.arguments import file_of, moment

Form = Literal["text", "json"]

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


@dataclass(frozen=True, slots=True)
class Recalled:
    """Of which object to tell what stood at which time, from which ledger."""

    file: str
    kind: str
    name: str
    namespace: str | None  # None: `default`, or none at all
    at: float  # Unix seconds
    form: Form = "text"


def declare_at(parser: argparse.ArgumentParser) -> None:
    """Teach the parser of `why` the arguments of the past."""
    parser.add_argument(
        "--at",
        metavar="TIME",
        help="what was decided of it then, by the ledger: 2026-11-17T10:00:00Z, or 2h ago as 2h",
    )
    parser.add_argument(
        "--ledger", metavar="FILE", help="with --at: the ledger (default: ledger.path)"
    )


def of_the_past(arguments: argparse.Namespace) -> bool:
    """Tell whether the past is asked about. Raises Misconfigured for options that do not fit."""
    if getattr(arguments, "at", None) is None:  # `why-not` has neither
        if getattr(arguments, "ledger", None) is not None:
            msg = "--ledger: goes with --at"
            raise Misconfigured(msg)
        return False
    if given := [option for name, option in _EDITS.items() if getattr(arguments, name, None)]:
        msg = f"--at: tells what was decided, not what would be: it goes without {', '.join(given)}"
        raise Misconfigured(msg)
    return True


def recalled(arguments: argparse.Namespace, settings: Settings, now: float) -> Recalled:
    """Return what is asked of the past; `now` is Unix seconds. Raises Misconfigured."""
    kind, name = kind_and_name(arguments.subject)
    file = file_of(arguments.ledger, settings, "--ledger")
    at = moment(arguments.at, now)
    if at > now:
        msg = f"--at: {arguments.at} is yet to come"
        raise Misconfigured(msg)
    return Recalled(file, kind, name, arguments.namespace, at, arguments.output)
