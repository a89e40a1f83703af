"""Paths and ids of the lanes of staged policies in OPA: below one root, by the stage's name.

A lane is a complete set of policies that includes the staged ones, each package moved below the
lane's prefix, so that one OPA, over one copy of the data, can evaluate a second decision.
"""

from __future__ import annotations

from typing import Final, Literal, get_args

from kube_sync.opa.paths import DataPath

Lane = Literal["shadow", "canary"]

LANES: Final[tuple[Lane, ...]] = get_args(Lane)
ROOT: Final = "kube_sync_stage"  # no policy may have a package below it


def prefix(lane: Lane) -> DataPath:
    """Return the prefix of each package of a lane."""
    return (ROOT, lane)


def lane_path(lane: Lane, path: str) -> str:
    """Return the path of a lane's decision for `path`, as in `io/k8s/federation/admission`."""
    return "/".join((*prefix(lane), path))


def batch_id(lane: Lane) -> str:
    """Return the id of the module that evaluates a lane's decision on many objects."""
    return f"{ROOT}/{lane}/batch"


def batch_package(lane: Lane) -> DataPath:
    """Return the package of that module; no lane has this name."""
    return (ROOT, "batch", lane)


def is_of_a_lane(policy_id: str) -> bool:
    """Return whether a module is part of any lane."""
    return policy_id.startswith(f"{ROOT}/")


def lane_id(lane: Lane, policy_id: str) -> str:
    """Return the id in a lane of the module `<namespace>/<name>/<key>`.

    It has three parts, since OPA's authorization lets the replicator put no others; it can be
    split again: no name of a namespace or a ConfigMap has an underscore.
    """
    return "/".join((ROOT, lane, policy_id.replace("/", "__")))
