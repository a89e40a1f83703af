"""Managers of Kueue, run beside API servers: of a MultiKueue manager cluster, and of its workers.

Each runs as in Kueue's own installation but for what a cluster of pods brings: certificates are
files, webhooks are called by URL (those of Jobs and of Kueue's own kinds), leader election, metrics
and the visibility API are off. There are no nodes: quota is admitted without pods.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kube_sync.certificates import issue, make_authority
from tools.servers.files import LOOPBACK, write_file, write_pair
from tools.servers.kubeapi import KubeApi
from tools.servers.kueue import PROGRAM, ensure_kueue, kueue_source
from tools.servers.manifests import documents_of
from tools.servers.processes import ProcessLauncher
from tools.servers.running import RunningServer, ServerSpec, free_port
from tools.servers.stack import install_kinds

NAMESPACE: Final = "kueue-system"
ALL_AT_ONCE: Final = "kueue.x-k8s.io/multikueue-dispatcher-all-at-once"
INCREMENTAL: Final = "kueue.x-k8s.io/multikueue-dispatcher-incremental"
EXTERNAL: Final = "kube-sync.io/remediator"
_GROUP = "kueue.x-k8s.io/v1beta1"
_WEBHOOKS = ("jobs", "clusterqueues", "resourceflavors", "cohorts", "workloads")


@dataclass(frozen=True, slots=True)
class Queue:
    """A LocalQueue and its ClusterQueue, both of this name, with a quota of CPUs."""

    name: str
    namespace: str
    cpus: int


def install_kueue_kinds(api: KubeApi) -> None:
    """Install the kinds of Kueue and wait until they are served."""
    install_kinds(api, kueue_source() / "config/components/crd/bases")


def start_kueue(
    folder: Path, api: KubeApi, kubeconfig: Path, dispatcher: str = ALL_AT_ONCE
) -> RunningServer:
    """Start the manager of a cluster that has Kueue's kinds, below an empty or missing folder.

    `kubeconfig` is an administrator's.
    """
    folder = folder.resolve()
    authority = make_authority("kueue webhook")
    write_pair(folder / "certs", "tls", issue(authority, "kueue", LOOPBACK))
    webhook, health = free_port(), free_port()
    api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    # Its certificate rotator fills it, and waits for it.
    name = {"name": "kueue-webhook-server-cert", "namespace": NAMESPACE}
    api.apply({"apiVersion": "v1", "kind": "Secret", "metadata": name})
    configuration = _configuration(folder, webhook, health, dispatcher)
    file = write_file(folder / "config.yaml", json.dumps(configuration, indent=2).encode())
    server = ProcessLauncher().launch(
        ServerSpec(
            name=PROGRAM,
            program=str(ensure_kueue()),
            arguments=(f"--config={file}", "--zap-log-level=2"),
            folder=folder,
            url=f"http://127.0.0.1:{health}",
            ready_paths=("/readyz",),
            environment={"KUBECONFIG": str(kubeconfig)},
        )
    )
    for manifest in _webhooks(f"https://127.0.0.1:{webhook}", authority.cert_pem):
        api.apply(manifest)
    return server


def _configuration(folder: Path, webhook: int, health: int, dispatcher: str) -> dict[str, Any]:
    return {
        "apiVersion": "config.kueue.x-k8s.io/v1beta1",
        "kind": "Configuration",
        "namespace": NAMESPACE,
        "health": {"healthProbeBindAddress": f"127.0.0.1:{health}"},
        "metrics": {"bindAddress": "0"},
        "webhook": {"host": "127.0.0.1", "port": webhook, "certDir": str(folder / "certs")},
        "leaderElection": {"leaderElect": False},
        "clientConnection": {"qps": 500, "burst": 1000},
        "integrations": {"frameworks": ["batch/job"], "labelKeysToCopy": ["team", "region"]},
        "multiKueue": {"dispatcherName": dispatcher, "gcInterval": "10s"},
        "featureGates": {"VisibilityOnDemand": False},
    }


def _webhooks(url: str, authority: bytes) -> Iterator[dict[str, Any]]:
    """Yield its own registrations, of the kinds that are there, by URL."""
    text = (kueue_source() / "config/components/webhook/manifests.yaml").read_text(encoding="utf-8")
    for manifest in documents_of(text):
        kept = [one for one in manifest["webhooks"] if _is_used(one)]
        for one in kept:
            path = one["clientConfig"]["service"]["path"]
            bundle = base64.b64encode(authority).decode()
            one["clientConfig"] = {"url": url + path, "caBundle": bundle}
        # Not the names by which its rotator would put its own authority into them.
        manifest["metadata"] = {"name": f"loopback-{manifest['metadata']['name']}"}
        yield {**manifest, "webhooks": kept}


def _is_used(webhook: Mapping[str, Any]) -> bool:
    resources = (name for rule in webhook["rules"] for name in rule["resources"])
    return all(name.partition("/")[0] in _WEBHOOKS for name in resources)


def add_queue(api: KubeApi, queue: Queue, check: str | None = None) -> None:
    """Make a queue; with an admission check on the manager cluster, without one on a worker."""
    quota = [{"name": "cpu", "nominalQuota": queue.cpus}]
    flavors = [{"name": "default", "resources": quota}]
    spec: dict[str, Any] = {
        "namespaceSelector": {},
        "resourceGroups": [{"coveredResources": ["cpu"], "flavors": flavors}],
    }
    if check is not None:
        spec["admissionChecks"] = [check]
    api.apply(_object("ResourceFlavor", "default", {}))
    api.apply(_object("ClusterQueue", queue.name, spec))
    local = _object("LocalQueue", queue.name, {"clusterQueue": queue.name})
    local["metadata"]["namespace"] = queue.namespace
    api.apply(local)


def add_workers(api: KubeApi, check: str, kubeconfigs: Mapping[str, Path]) -> None:
    """Make worker clusters known on the manager cluster, and an admission check that names them.

    `kubeconfigs` are those of administrators, by the name of the cluster.
    """
    for name, kubeconfig in kubeconfigs.items():
        secret = {"name": f"{name}-kubeconfig", "namespace": NAMESPACE}
        text = {"kubeconfig": kubeconfig.read_text(encoding="utf-8")}
        api.apply({"apiVersion": "v1", "kind": "Secret", "metadata": secret, "stringData": text})
        where = {"locationType": "Secret", "location": secret["name"]}
        api.apply(_object("MultiKueueCluster", name, {"kubeConfig": where}))
    api.apply(_object("MultiKueueConfig", check, {"clusters": sorted(kubeconfigs)}))
    named = {"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": check}
    spec = {"controllerName": "kueue.x-k8s.io/multikueue", "parameters": named}
    api.apply(_object("AdmissionCheck", check, spec))


def job(
    name: str, queue: Queue, labels: Mapping[str, str] | None = None, *, cpus: int = 1
) -> dict[str, Any]:
    """Return a Job for a queue; its labels `team` and `region` are those of its Workload, too."""
    requests = {"requests": {"cpu": cpus}}
    container = {"name": "main", "image": "example.com/main", "resources": requests}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": queue.namespace,
            "labels": {"kueue.x-k8s.io/queue-name": queue.name, **(labels or {})},
        },
        "spec": {"template": {"spec": {"containers": [container], "restartPolicy": "Never"}}},
    }


def _object(kind: str, name: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    return {"apiVersion": _GROUP, "kind": kind, "metadata": {"name": name}, "spec": dict(spec)}
