"""Argo CD's ApplicationSet controller in a cluster: what a release installs for it, and itself."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tools.servers.apiserver import write_kubeconfig
from tools.servers.argocd import argocd_kinds, argocd_manifests, ensure_argocd
from tools.servers.kubeapi import KubeApi
from tools.servers.manifests import manifests_of
from tools.servers.processes import ProcessLauncher
from tools.servers.running import RunningServer, ServerSpec, free_port, launch_on_free_port
from tools.servers.stack import install_kinds

NAMESPACE = "argocd"
CONTROLLER = "argocd-applicationset-controller"
_PART_OF = {"app.kubernetes.io/part-of": "argocd"}
_TEN_HOURS = 36_000  # seconds


def install_argocd(api: KubeApi, namespace: str = NAMESPACE) -> None:
    """Create what Argo CD's installation has for the controller: kinds, role, settings, project."""
    install_kinds(api, argocd_kinds())
    api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    folder = argocd_manifests()
    names = [f"applicationset-controller/{CONTROLLER}-{part}" for part in ("sa", "role")]
    names += [f"applicationset-controller/{CONTROLLER}-rolebinding", "config/argocd-cm"]
    for name in names:
        for found in manifests_of(folder / f"{name}.yaml"):
            api.apply(_within(found, namespace))
    api.apply(plain_secret("argocd-secret", {"server.secretkey": secrets.token_hex(16)}, namespace))
    api.apply(_project(namespace))


def _within(manifest: Mapping[str, Any], namespace: str) -> dict[str, Any]:
    """Return a manifest in a namespace, as kustomize puts it there."""
    found = {**manifest, "metadata": {**manifest["metadata"], "namespace": namespace}}
    if "subjects" in found:
        found["subjects"] = [{**one, "namespace": namespace} for one in found["subjects"]]
    return found


def plain_secret(
    name: str, values: Mapping[str, str], namespace: str = NAMESPACE
) -> dict[str, Any]:
    """Return a Secret that Argo CD reads."""
    metadata = {"name": name, "namespace": namespace, "labels": dict(_PART_OF)}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": metadata,
        "stringData": dict(values),
    }


def _project(namespace: str) -> dict[str, Any]:
    anything = {"group": "*", "kind": "*"}
    return {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "AppProject",
        "metadata": {"name": "default", "namespace": namespace},
        "spec": {
            "sourceRepos": ["*"],
            "destinations": [{"namespace": "*", "server": "*"}],
            "clusterResourceWhitelist": [anything],
        },
    }


def cluster_secret(
    name: str,
    labels: Mapping[str, str] | None = None,
    *,
    called: str | None = None,
    namespace: str = NAMESPACE,
) -> dict[str, Any]:
    """Return the Secret by which Argo CD knows a cluster; `called` is the cluster's name in it."""
    document = plain_secret(
        f"cluster-{name}",
        {"name": called or name, "server": f"https://{name}.example.com", "config": "{}"},
        namespace,
    )
    document["metadata"]["labels"] = {
        "argocd.argoproj.io/secret-type": "cluster",
        **(labels or {}),
    }
    return document


def application_set(name: str, generator: Mapping[str, Any]) -> dict[str, Any]:
    """Return an ApplicationSet with one generator."""
    return {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "ApplicationSet",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "goTemplate": True,
            "goTemplateOptions": ["missingkey=error"],
            "generators": [dict(generator)],
            # Nothing runs here that would finish the deletion of what was deployed.
            "syncPolicy": {"preserveResourcesOnDeletion": True},
            "template": {
                "metadata": {"name": f"{name}-{{{{.name}}}}"},
                "spec": {
                    "project": "default",
                    "source": {
                        "repoURL": "https://git.example.com/web.git",
                        "targetRevision": "HEAD",
                        "path": "deploy",
                    },
                    "destination": {"server": "{{.server}}", "namespace": "web"},
                },
            },
        },
    }


def start_argocd(
    api: KubeApi,
    folder: Path,
    ca_file: Path | None = None,
    namespace: str = NAMESPACE,
    *,
    quick: bool = False,
) -> RunningServer:
    """Start the controller with its account and its released flags, and wait until it runs.

    `ca_file` is an authority that it trusts beside the system's; `quick` lets it send more than 50
    requests a second. `install_argocd` comes before.
    """
    program = ensure_argocd()
    token = api.ask(
        "POST",
        f"{api.path('serviceaccounts', CONTROLLER, namespace)}/token",
        {"spec": {"expirationSeconds": _TEN_HOURS}},
    )["status"]["token"]
    folder.mkdir(parents=True, exist_ok=True)
    kubeconfig = write_kubeconfig(folder, CONTROLLER, api.url, api.ca_file, token)
    trusted = {} if ca_file is None else {"SSL_CERT_FILE": str(ca_file)}
    faster = {"ARGOCD_K8S_CLIENT_QPS": "1000"} if quick else {}
    own = {"ARGOCD_BINARY_NAME": CONTROLLER, "KUBECONFIG": str(kubeconfig)}
    environment = {**own, **trusted, **faster}

    def spec() -> ServerSpec:
        metrics, probes, webhook = (free_port() for _ in range(3))
        return ServerSpec(
            name=CONTROLLER,
            program=str(program),
            arguments=(
                f"--namespace={namespace}",
                f"--metrics-addr=127.0.0.1:{metrics}",
                f"--probe-addr=127.0.0.1:{probes}",
                f"--webhook-addr=127.0.0.1:{webhook}",
            ),
            folder=folder,
            url=f"http://127.0.0.1:{metrics}",
            ready_paths=("/metrics",),
            environment=environment,
        )

    return launch_on_free_port(ProcessLauncher(), spec)
