"""The webhook as a process with exactly its rights, registered with a real API server."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

from kube_sync.certificates import KeyPair, issue, make_authority
from tools.demo.components import start_service
from tools.demo.fleet import POLICIES, replica_set
from tools.demo.webhook import register_webhook
from tools.servers.files import LOOPBACK, write_file, write_pair
from tools.servers.http import get, request
from tools.servers.running import Launcher, RunningServer, free_port
from tools.servers.secured_opa import RunningOpa, start_opa
from tools.servers.stack import RunningStack

NAME = "kube-sync-placement"
KIND = "mutatingwebhookconfigurations"
BOTH = f"{KIND},validatingwebhookconfigurations"
POLICY = """
package io.k8s.federation.admission

errors contains "no cluster is certified" if input.metadata.labels.certified == "no"

annotations := {}
"""


@dataclass
class World:
    """A stack with the webhook on it, and what the tests do to both."""

    stack: RunningStack
    engine: RunningOpa
    webhook: RunningServer
    url: str
    authority: KeyPair
    ca_file: Path

    def register(self) -> None:
        register_webhook(self.stack, self.url, self.authority.cert_pem)

    def unregister(self) -> None:
        for kind in BOTH.split(","):
            self.stack.api.delete(kind, NAME)

    def policy(self) -> None:
        """Let there be a policy, which OPA has from elsewhere."""
        data = {"placement.rego": POLICY}
        metadata = {"name": "placement", "namespace": POLICIES}
        self.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})
        self.opa("PUT", POLICY)

    def no_policy(self) -> None:
        self.stack.api.delete_all("configmaps", POLICIES)

    def opa(self, method: str, body: str | None = None) -> None:
        token = self.engine.token_files["replicator"].read_text(encoding="utf-8")
        url = f"{self.engine.url}/v1/policies/{POLICIES}/placement/placement.rego"
        answer = request(method, url, ca_file=self.engine.ca_file, token=token, body=body)
        assert answer.status == HTTPStatus.OK, answer.body

    def apply(self, manifest: dict[str, Any], *options: str) -> None:
        if options and options != ("--dry-run=server",):
            text = json.dumps(manifest)
            self.stack.kubectl("apply", "--server-side", *options, "-f", "-", stdin=text)
        else:
            self.stack.api.apply(manifest, dry_run=bool(options))

    def patch(self, *operations: dict[str, Any]) -> None:
        """Change the configuration by hand."""
        self.stack.kubectl("patch", KIND, NAME, "--type=json", f"--patch={json.dumps(operations)}")

    def registered(self) -> Any:
        return self.stack.api.get(KIND, NAME)["webhooks"][0]

    def generation(self) -> Any:
        return self.stack.api.get(KIND, NAME)["metadata"]["generation"]

    def failure_policy(self) -> Any:
        return self.registered()["failurePolicy"]

    def failure_policies(self) -> set[Any]:
        """Return what both of its registrations say."""
        lists = [self.stack.api.get(kind)["items"] for kind in BOTH.split(",")]
        named = [one for found in lists for one in found if one["metadata"]["name"] == NAME]
        return {webhook["failurePolicy"] for one in named for webhook in one["webhooks"]}

    def events(self, namespace: str) -> list[Any]:
        found = self.stack.api.get("events.events.k8s.io", namespace=namespace)
        events: list[Any] = found["items"]
        return [e for e in events if e.get("reportingController") == "kube-sync.io/admission"]

    def conditions(self) -> str:
        return get(self.webhook.url + "/readyz").body.decode()

    def metrics(self) -> str:
        return get(self.webhook.url + "/metrics").body.decode()


def workload(name: str, namespace: str, **metadata: Any) -> dict[str, Any]:
    """Return a ReplicaSet that the policy refuses."""
    manifest = replica_set(name)
    manifest["metadata"] |= {"namespace": namespace} | metadata
    manifest["metadata"]["labels"] = {"app": name, "certified": "no"}
    return manifest


def deeply_managed(manifest: dict[str, Any], levels: int = 9_000) -> str:
    """Return the JSON of an object whose managedFields are nested so deeply."""
    entry = {"manager": "x", "operation": "Update", "apiVersion": manifest["apiVersion"]}
    entry |= {"time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1", "fieldsV1": "DEEP"}
    metadata = manifest["metadata"] | {"managedFields": [entry]}
    text = json.dumps(manifest | {"metadata": metadata})
    return text.replace('"DEEP"', '{"f:a":' * levels + "{}" + "}" * levels)


@contextmanager
def webhook_world(
    launcher: Launcher,
    stack: RunningStack,
    folder: Path,
    key_file: Path | None = None,
    resources: Sequence[object] = ("replicasets",),
) -> Iterator[World]:
    """Run the webhook until the block ends; no policy and no registration are left behind.

    With a `key_file`, notes count that are sealed; `resources` are those that are decided on.
    """
    engine = start_opa(launcher, folder / "opa", by_bundle=False)
    authority = make_authority("webhook")
    write_pair(folder, "tls", issue(authority, "kube-sync", LOOPBACK))
    ca_file = write_file(folder / "ca.crt", authority.cert_pem)
    port = free_port()
    configuration: dict[str, object] = {
        "kubernetes": {"kubeconfig": str(stack.kubeconfigs["admission"])},
        "placement": {
            "key_file": None if key_file is None else str(key_file),
            "resources": list(resources),
        },
        "opa": engine.settings() | {"token_file": str(engine.token_files["admission"])},
        "admission": {
            "listen": f"127.0.0.1:{port}",
            "cert_file": str(folder / "tls.crt"),
            "key_file": str(folder / "tls.key"),
            "registration": {"name": NAME, "ca_file": str(ca_file)},
        },
    }
    webhook = start_service("admit", folder / "admit", configuration)
    world = World(
        stack, engine, webhook, f"https://127.0.0.1:{port}/admit/placement", authority, ca_file
    )
    try:
        yield world
    finally:
        world.unregister()
        webhook.stop()
        world.no_policy()
        engine.server.stop()
