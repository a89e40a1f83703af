"""The project's own clients, connected to the fakes: what most tests over HTTP begin with."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from kube_sync.config import Kubernetes, Opa
from kube_sync.kube.client import KubeClient, kube_client
from kube_sync.objects import GroupVersionResource, ObjectKey
from kube_sync.opa.client import OpaClient, opa_client
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.opa import FakeOpa

REPLICASETS = GroupVersionResource("apps", "v1", "replicasets")
CLUSTERS = GroupVersionResource("multicluster.x-k8s.io", "v1alpha1", "clusterprofiles")
CONFIGMAPS = GroupVersionResource("", "v1", "configmaps")
SECRETS = GroupVersionResource("", "v1", "secrets")


def key(name: str, namespace: str = "default") -> ObjectKey:
    return ObjectKey(namespace, name)


@asynccontextmanager
async def kube_of(
    api: FakeApiServer, folder: Path, user: dict[str, Any] | None = None
) -> AsyncGenerator[KubeClient]:
    """Connect to a fake API server, as a kubeconfig says; `user` is who we are in it."""
    kubeconfig = api.kubeconfig(folder / "kubeconfig", user)
    async with kube_client(Kubernetes(kubeconfig=kubeconfig)) as client:
        yield client


@asynccontextmanager
async def opa_of(opa: FakeOpa, token_file: str | None = None) -> AsyncGenerator[OpaClient]:
    """Connect to a fake OPA."""
    async with opa_client(Opa(url=opa.http.url, token_file=token_file)) as client:
        yield client
