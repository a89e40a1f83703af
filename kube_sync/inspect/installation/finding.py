"""Finds the pods of the installation, and which of them runs what. Only reads.

Pods are found by their label, and told apart by what their containers run, so that names, which a
chart may change, do not matter. A Service is not needed: the decision stream has none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from kube_sync.config import ENV_PREFIX
from kube_sync.errors import NO_JSON, Misconfigured, NotFound, Refused, SyncError
from kube_sync.kube.client import KubeClient
from kube_sync.kube.lease import LEASES
from kube_sync.kube.pods import Container, Pod, list_pods

LABEL: Final = "app.kubernetes.io/name=kube-sync"
NAMESPACE: Final = "kube-sync"  # of coordination.namespace by default
_NAMESPACE_VARIABLE: Final = f"{ENV_PREFIX}COORDINATION_NAMESPACE"
_LEASE: Final = "kube-sync-remediator"
EVERYTHING: Final = "run"  # the command that runs all of them
_OPA_OPTION: Final = "--server"  # of `opa run`, beside the replicator


@dataclass(frozen=True, slots=True)
class Running:
    """A container that runs one of our commands."""

    pod: Pod
    container: Container

    def __str__(self) -> str:
        """Format for people."""
        return f"pod {self.pod.key}"


class _LeaseSpec(msgspec.Struct, rename="camel"):
    holder_identity: str | None = None


class _Lease(msgspec.Struct):
    spec: _LeaseSpec


async def find_pods(
    client: KubeClient, namespace: str | None, environment: Mapping[str, str]
) -> list[Pod]:
    """Return the pods of the only installation, or of the one in a namespace.

    Whoever may not list the pods of all namespaces gets those of the usual one, or of the one that
    the variable of `coordination.namespace` names. Raises SyncError: NotFound where there is none,
    Misconfigured where there are several.
    """
    namespace = namespace or environment.get(_NAMESPACE_VARIABLE)
    try:
        pods = await list_pods(client, namespace, LABEL)
    except Refused:
        if namespace is not None:
            raise
        namespace = NAMESPACE
        pods = await list_pods(client, namespace, LABEL)
    namespaces = sorted({pod.key.namespace for pod in pods})
    if len(namespaces) > 1:
        msg = f"--installation: kube-sync is installed in {' and in '.join(namespaces)}; say which"
        raise Misconfigured(msg)
    if not pods:
        where = f"in namespace {namespace}" if namespace else "in this cluster"
        msg = (
            f"there is no pod with the label {LABEL} {where}: install kube-sync (docs/install.md),"
            " or name the namespace of the installation by --installation, or a file by --config"
        )
        raise NotFound(msg)
    return pods


async def find_running(client: KubeClient, pods: list[Pod], command: str) -> Running:
    """Return the container that runs a command: of the leader, or of a pod that is ready.

    Raises NotFound.
    """
    found = [
        Running(pod, container)
        for pod in pods
        for container in pod.containers
        if _runs(container, command)
    ]
    if not found:
        where = pods[0].key.namespace
        msg = f"no container of the pods with the label {LABEL} in {where} runs `{command}`"
        raise NotFound(msg)
    leader = await _leader(client, pods) if command == "remediate" and len(found) > 1 else None
    return min(found, key=lambda one: (one.pod.key.name != leader, not one.pod.ready, one.pod.key))


def _runs(container: Container, command: str) -> bool:
    """Tell whether a container runs a command, alone or with all others; `opa run` is none."""
    words = container.words
    return command in words or (EVERYTHING in words and _OPA_OPTION not in words)


async def _leader(client: KubeClient, pods: list[Pod]) -> str | None:
    """Return the name of the pod that holds the remediator's Lease, None if it is not known."""
    try:
        body = await client.request("GET", LEASES.path(pods[0].key.namespace, _LEASE))
        holder = msgspec.json.decode(body, type=_Lease).spec.holder_identity or ""
    except (SyncError, *NO_JSON):  # who may not read it asks any of them
        return None
    return holder.rpartition("_")[0] or None
