"""Shows the demo's processes to the cluster as an installation, for `kubectl kube-sync`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tools.demo.components import Components
from tools.servers.installation import NAMESPACE, POD, Published, publish
from tools.servers.kubelet import Kubelet
from tools.servers.stack import RunningStack


def show_installation(
    stack: RunningStack, folder: Path, components: Components, remediate: Mapping[str, object]
) -> Kubelet:
    """Publish the processes, with a node whose stand-in for a kubelet forwards their ports."""
    client: Mapping[str, Any] = components.client
    ports = {
        "8181": int(stack.opa_url.rpartition(":")[2]),
        "9400": stack.endpoint.port,
        "9404": int(client["remediate"]["listen"].rpartition(":")[2]),
    }
    kubelet = Kubelet(stack, folder)
    kubelet.forward({f"{NAMESPACE}/{POD}": ports})
    token_files = {
        "kube-sync-decisions": stack.endpoint.token_file,
        "kube-sync-remediation": Path(client["remediate"]["token_file"]),
        "kube-sync-opa-replicator": stack.opa_token_files["replicator"],
    }
    secrets = {name: {"token": _text(file)} for name, file in token_files.items()}
    secrets["kube-sync-opa-tls"] = {"ca.crt": _text(stack.opa_ca_file)}
    # Its replicator serves the stream by TLS.
    stream = {
        "url": "https://127.0.0.1:9400/v1/decisions",
        "ca_file": "/etc/kube-sync/stream-ca.crt",
    }
    changes = {"decisions": stream, "remediate": remediate}
    authority = {"stream-ca.crt": _text(stack.endpoint.ca_file) + "\n"}
    publish(stack, Published(secrets, changes, authority))
    return kubelet


def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8").strip()
