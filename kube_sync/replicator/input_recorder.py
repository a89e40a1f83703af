"""Build the InputReader that records decision inputs, from this replicator's configuration.

It knows what OPA holds of each collection, and which collections contain Secrets.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from kube_sync.config import Settings
from kube_sync.decisions.input_reader import Fields, InputReader
from kube_sync.objects import GroupVersionResource
from kube_sync.opa.analysis.result import Reads
from kube_sync.replicator.mirror import Mirror


def input_reader(settings: Callable[[], Settings], mirrors: Sequence[Mirror]) -> InputReader | None:
    """Return the InputReader of one epoch, None if inputs are not recorded.

    `settings` returns the current settings.
    """
    begun = settings()
    if begun.ledger.path is None or not begun.ledger.inputs:
        return None

    def targets() -> dict[str, GroupVersionResource]:
        return {resource.name: resource.gvr for resource in settings().targets()}

    def secrets() -> Collection[str]:
        return {found.name for found in settings().replicate.resources if found.holds_secrets}

    def count(name: str) -> int:
        return next((one.object_count for one in mirrors if one.name == name), 0)

    lacks = {"policies": "OPA has some from elsewhere"} if begun.policies.static else {}
    replicate, path = begun.replicate, begun.placement.path
    return InputReader(
        replicate.root,
        path,
        targets=targets,
        fields_of=lambda name, reads: _fields(settings(), name, reads),
        count_of=count,
        secrets=secrets,
        lacks=lacks,
    )


def _fields(settings: Settings, name: str, reads: Reads) -> Fields:
    """Return the fields of a resource's objects to record, None: all that OPA holds."""
    found = next((one for one in settings.replicate.resources if one.name == name), None)
    if found is None:
        return None  # the topology, whose records are stored as they are
    if not settings.replicate.is_auto(found):
        return found.paths
    if reads.gave_up is not None or name not in reads.resources:
        return None
    # OPA may hold more fields, needed by other policies.
    is_target = any(target.name == name for target in settings.targets())
    return reads.target_paths(name) if is_target else reads.resources[name].paths
