"""A built-in policy system in a live cluster: API server with ServiceAccount admission, OPA, we.

The API server is one of its own: with ServiceAccount admission pods are as in a cluster, and what
is registered here is asked about every pod.
"""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from kube_sync.certificates import issue, make_authority
from tests.fakes.manifests import build
from tools.demo.components import start_service
from tools.servers.errors import ToolError
from tools.servers.files import LOOPBACK, write_file, write_pair
from tools.servers.http import get, request
from tools.servers.running import Launcher, RunningServer, free_port
from tools.servers.stack import RunningStack, start_stack

ROOT = Path(__file__).resolve().parents[2]
MUTATING, VALIDATING = "mutatingwebhookconfigurations", "validatingwebhookconfigurations"
POLICIES = "schedulingpolicies.policy.kube-sync.io"
_DRY, _LAX, _AS = "--dry-run=server", "--validate=ignore", "--as="
# Off by default, and add tolerations to pods.
PLUGINS = "ExtendedResourceToleration,PodTolerationRestriction"
GLOBAL_DEFAULT = "common"  # the PriorityClass of pods that name none, once there is one


@dataclass
class World:
    """A cluster, and what the tests do to it."""

    stack: RunningStack
    services: dict[str, RunningServer]
    port: int
    authority: bytes
    folder: Path
    system: str = "scheduling"

    @property
    def name(self) -> str:
        """Of its registrations."""
        return f"kube-sync-{self.system}"

    def register(self, port: int | None = None) -> None:
        """Register the webhook at its port, or at another one."""
        for document in self.manifests():
            if document["kind"].endswith("WebhookConfiguration"):
                for webhook in document["webhooks"]:
                    path = webhook["clientConfig"]["service"]["path"]
                    url = f"https://127.0.0.1:{port or self.port}{path}"
                    bundle = base64.b64encode(self.authority).decode()
                    webhook["clientConfig"] = {"url": url, "caBundle": bundle}
            self.apply(document)

    def unregister(self) -> None:
        for kind in (MUTATING, VALIDATING):
            self.stack.api.delete(kind, self.name)

    def manifests(self) -> list[Any]:
        """Return what registers the webhook, to be changed as wanted."""
        return build(f"webhook-{self.system}")

    def rights(self) -> list[Any]:
        """Return the replicator's roles, without those by which policies come by themselves."""
        found = build(f"{self.system}-rbac")
        return [one for one in found if not one["metadata"]["name"].endswith("-defaults")]

    def defaults(self) -> None:
        """Let there be the policies and the rights that every cluster begins with."""
        self.stack.apply(ROOT / "manifests/scheduling")

    def no_policies(self) -> None:
        self.stack.api.delete_all(POLICIES)

    def policy(self, name: str, spec: dict[str, Any]) -> None:
        document = {"apiVersion": "policy.kube-sync.io/v1alpha1", "kind": "SchedulingPolicy"}
        self.apply(document | {"metadata": {"name": name}, "spec": spec})

    def may_use(self, namespace: str, account: str, *policies: str) -> None:
        """Let a service account use these policies, in its namespace; without any, none."""
        for kind in ("rolebindings", "roles"):
            self.stack.api.delete(kind, account, namespace)
        if not policies:
            return
        group = {"apiVersion": "rbac.authorization.k8s.io/v1"}
        metadata = {"name": account, "namespace": namespace}
        rule = {
            "apiGroups": ["policy.kube-sync.io"],
            "resources": ["schedulingpolicies"],
            "verbs": ["use"],
            "resourceNames": [*policies],
        }
        self.apply(group | {"kind": "Role", "metadata": metadata, "rules": [rule]})
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": account}
        subject = {"kind": "ServiceAccount", "name": account, "namespace": namespace}
        binding = {"kind": "RoleBinding", "roleRef": role, "subjects": [subject]}
        self.apply(group | binding | {"metadata": metadata})

    def apply(self, manifest: dict[str, Any]) -> None:
        self.stack.api.apply(manifest)

    def create(self, manifest: dict[str, Any], *options: str) -> Any:
        """Create it, with these options as kubectl has them, or as a user: `--as=…`.

        Returns what is stored. Raises ToolError with what the server says.
        """
        users = [one.removeprefix(_AS) for one in options if one.startswith(_AS)]
        assert {one for one in options if not one.startswith(_AS)} <= {_DRY, _LAX}
        dry_run, strict = _DRY in options, _LAX not in options
        if not users:
            return self.stack.api.create(manifest, dry_run=dry_run, strict=strict)
        kind, group = manifest["kind"], manifest["apiVersion"].rpartition("/")[0]
        called = f"{kind}.{group}" if group else kind
        path = self.stack.api.path(called, namespace=manifest["metadata"]["namespace"])
        asked = [("dryRun", "All")] * dry_run + [("fieldValidation", "Strict")] * strict
        return self.create_as(users[0], f"{path}?{urlencode(asked)}", manifest)

    def create_as(self, user: str, path: str, manifest: dict[str, Any]) -> Any:
        """Create it there as a user; return the answer. Raises ToolError as `create` does."""
        try:
            answer = request(
                "POST",
                self.stack.apiserver_url + path,
                ca_file=self.stack.apiserver_ca_file,
                token=self.stack.kube_tokens["admin"],
                body=json.dumps(manifest),
                more={"Impersonate-User": user},
            )
        except OSError as error:
            msg = f"POST {path} as {user}: {error!r}"
            raise ToolError(msg) from error
        found = json.loads(answer.body)
        if answer.status != HTTPStatus.CREATED:
            msg = f"POST {path} as {user}: {answer.status} {found.get('message')}"
            raise ToolError(msg)
        return found

    def refused(self, manifest: dict[str, Any], *options: str) -> str:
        """Create it in vain; return why."""
        try:
            self.create(manifest, *options)
        except ToolError as error:
            return str(error)
        msg = "it was admitted"
        raise AssertionError(msg)

    def failure_policies(self) -> set[str]:
        return {
            self.stack.api.get(kind, self.name)["webhooks"][0]["failurePolicy"]
            for kind in (MUTATING, VALIDATING)
        }

    def conditions(self, service: str) -> str:
        return get(self.services[service].url + "/readyz").body.decode()


def service_account(name: str, namespace: str) -> dict[str, Any]:
    """Return a service account."""
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}


def pod(name: str, namespace: str, /, **spec: Any) -> dict[str, Any]:
    """Return a pod of one container."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"containers": [{"name": "main", "image": "registry.example/main"}]} | spec,
    }


@contextmanager
def scheduling_world(launcher: Launcher, folder: Path) -> Iterator[World]:
    """Run it all, without any policy, until the block ends."""
    section: dict[str, object] = {"global_default_priority_class": GLOBAL_DEFAULT}
    with system_world(launcher, folder, "scheduling", section) as world:
        yield world


@contextmanager
def system_world(
    launcher: Launcher, folder: Path, system: str, section: dict[str, object]
) -> Iterator[World]:
    """Run a system with its section of the configuration, without any policy."""
    with cluster_of(launcher, folder, system) as world, running(world, {system: section}):
        yield world


@contextmanager
def cluster_of(launcher: Launcher, folder: Path, *systems: str) -> Iterator[World]:
    """Run a cluster with the roles that systems need; the world is of the first of them."""
    arguments = ("--disable-admission-plugins=", f"--enable-admission-plugins={PLUGINS}")
    stack = start_stack(launcher, folder / "stack", apiserver_arguments=arguments)
    with ExitStack() as ending:
        ending.callback(shutil.rmtree, stack.etcd.spec.folder / "data")
        ending.callback(stack.stop)
        stack.furnish()
        stack.api.create(service_account("default", "kube-system"))
        authority, port = make_authority("webhook"), free_port()
        write_pair(folder, "tls", issue(authority, "kube-sync", LOOPBACK))
        write_file(folder / "ca.crt", authority.cert_pem)
        worlds = [World(stack, {}, port, authority.cert_pem, folder, one) for one in systems]
        for world in worlds:
            for document in (*world.manifests(), *world.rights()):
                if document["kind"].startswith("ClusterRole"):
                    world.apply(document)
        yield worlds[0]


@contextmanager
def running(world: World, sections: dict[str, dict[str, object]]) -> Iterator[None]:
    """Run replicator and webhook with these systems, each with its section of the configuration."""
    built_in: dict[str, object] = {"builtin": [*sections], **sections}
    ca_file = world.folder / "ca.crt"
    found = _configurations(world.stack, world.folder, world.port, ca_file)
    with ExitStack() as ending:
        for command, configuration in found.items():
            service = start_service(command, world.folder / command, configuration | built_in)
            ending.callback(service.stop)
            world.services[command] = service
        yield


def _configurations(
    stack: RunningStack, folder: Path, port: int, ca_file: Path
) -> dict[str, dict[str, object]]:
    token = {"token_file": str(stack.opa_token_files["admission"])}
    return {
        "replicate": {
            "kubernetes": {"kubeconfig": str(stack.kubeconfigs["replicator"])},
            "opa": stack.opa_settings(),
            "decisions": stack.endpoint.server(),
        },
        "admit": {
            "kubernetes": {"kubeconfig": str(stack.kubeconfigs["admission"])},
            "opa": stack.opa_settings() | token,
            "admission": {
                "listen": f"127.0.0.1:{port}",
                "cert_file": str(folder / "tls.crt"),
                "key_file": str(folder / "tls.key"),
                "drain_seconds": 0.5,
                "registration": {"name": "kube-sync-placement", "ca_file": str(ca_file)},
            },
        },
    }
