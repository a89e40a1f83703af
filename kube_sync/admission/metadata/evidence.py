"""Reads the MetadataPolicies from files or a cluster, in the shape of OPA's data.

Invariant: it only reads a cluster, and only the given namespaces.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from kube_sync.kube.client import KubeClient
from kube_sync.policykinds.kinds import METADATA
from kube_sync.policykinds.policyfiles import Expected, listed, read_policies

Policies = dict[str, dict[str, Any]]  # by namespace and name


def _is_spec(spec: object) -> bool:
    rules = spec.get("rules") if isinstance(spec, dict) else None
    return isinstance(rules, list) and any(
        isinstance(rule, dict) and not {"policyPredicate", "policyAction"}.isdisjoint(rule)
        for rule in rules
    )


EXPECTED: Final = Expected(METADATA, {METADATA.kind: METADATA.gvr}, _is_spec)


def of_files(
    paths: Sequence[str], namespace: str | None, *, ignore_others: bool = False
) -> Policies:
    """Return the policies in these files; `namespace` is the default namespace.

    Raises Misconfigured.
    """
    found: Policies = {}
    for document in read_policies(paths, EXPECTED, ignore_others=ignore_others):
        own = document.metadata.get("namespace")
        where = document.namespace(None if own else namespace)
        # As stored: findings about a policy depend on the others of its namespace.
        metadata = {**document.metadata, "namespace": where}
        found.setdefault(where, {})[document.name()] = {**document.object, "metadata": metadata}
    return found


async def of_cluster(client: KubeClient, namespaces: Iterable[str]) -> Policies:
    """Return the policies of these namespaces of a cluster. Raises SyncError."""
    found: Policies = {}
    for namespace in namespaces:
        for key, policy in await listed(client, METADATA.gvr, namespace):
            found.setdefault(key.namespace, {})[key.name] = policy
    return found
