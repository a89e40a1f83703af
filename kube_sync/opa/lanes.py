"""Where the lanes of staged policies lie in OPA: below one root, by the name of the stage.

A lane is a whole set of policies with the staged ones in place, each package moved below the
lane's prefix, so that one OPA, over one copy of the data, can be asked for a second decision.
"""

from __future__ import annotations

from typing import Final, Literal, get_args

from kube_sync.opa.paths import DataPath

Lane = Literal["shadow", "canary"]

LANES: Final[tuple[Lane, ...]] = get_args(Lane)
ROOT: Final = "kube_sync_stage"  # no policy may say that its package lies there


def prefix(lane: Lane) -> DataPath:
    """Return what lies before each package of a lane."""
    return (ROOT, lane)


def lane_path(lane: Lane, path: str) -> str:
    """Return where a lane keeps the decision at `path`, as in `io/k8s/federation/admission`."""
    return "/".join((*prefix(lane), path))


def batch_id(lane: Lane) -> str:
    """Return the id of the module that asks a lane for many decisions."""
    return f"{ROOT}/{lane}/batch"


def batch_package(lane: Lane) -> DataPath:
    """Return its package; no lane is called so."""
    return (ROOT, "batch", lane)


def is_of_a_lane(policy_id: str) -> bool:
    """Tell whether a module is part of any lane."""
    return policy_id.startswith(f"{ROOT}/")


def lane_id(lane: Lane, policy_id: str) -> str:
    """Return the id in a lane of the module `<namespace>/<name>/<key>`.

    It has three parts, since OPA's authorization lets the replicator put no others; what it is made
    of can be told apart again: no name of a namespace or a ConfigMap has an underscore.
    """
    return "/".join((ROOT, lane, policy_id.replace("/", "__")))
