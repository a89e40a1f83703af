"""The servers: API server, OPA, replicator, remediator, and Argo CD's ApplicationSet controller.

Keeps true: our services and the controller have exactly the rights of their manifests. Our two
reach the API server by a proxy, so that their connections can hang.
"""

from __future__ import annotations

import asyncio
import json
import re
import secrets
import ssl
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from kube_sync.certificates import issue, make_authority
from tests.faults.proxy import FaultProxy
from tools.demo.components import GUARD_OFF, start_service
from tools.demo.fleet import FLEET, PREFERENCES
from tools.servers.accounts import token_of
from tools.servers.apiserver import write_kubeconfig
from tools.servers.argocd_controller import NAMESPACE, install_argocd, start_argocd
from tools.servers.errors import ToolError
from tools.servers.files import LOOPBACK, write_file, write_pair, write_private
from tools.servers.http import get
from tools.servers.kubeapi import KubeApi
from tools.servers.running import RunningServer, free_port
from tools.servers.stack import RunningStack
from tools.soak.argocd.fleet import PLACEMENT, REPLICATE, generator_objects

ROOT = Path(__file__).resolve().parents[3]
REPLICATOR, REMEDIATOR = "replicate", "remediate"
# Every move waits for an approval; nothing else is limited but what always is.
EVERY_MOVE_WAITS: Mapping[str, float] = {
    **GUARD_OFF,
    "shrink_share": 0.3,
    "mass_share": 0,
    "mass_floor": 0,
}
_ROLES = {REPLICATOR: "replicator", REMEDIATOR: "remediator"}
_RECONCILED = re.compile(
    r'^argocd_appset_reconcile_count\{name="([^"]+)",[^}]*\} (\S+)', re.MULTILINE
)
_REFRESH = "argocd.argoproj.io/application-set-refresh"
_PAUSE = 0.05  # seconds
_PATIENCE = 120.0


@dataclass
class Scene:
    """Everything that runs."""

    stack: RunningStack
    folder: Path
    proxy: FaultProxy
    token: str  # of the generator
    guard: Mapping[str, object]
    moves: Mapping[str, object] = field(default_factory=dict)  # keys of the section `remediate`
    ports: Mapping[str, int] = field(
        default_factory=lambda: {"generator": free_port(), "status": free_port()}
    )
    services: dict[str, RunningServer] = field(default_factory=dict)
    controller: RunningServer | None = None

    @property
    def api(self) -> KubeApi:
        """The API server, as the admin."""
        return self.stack.api

    def start(self, command: str) -> None:
        """Start one of our services, with a new token of its account."""
        if (before := self.services.pop(command, None)) is not None:
            before.stop()
        role, folder = _ROLES[command], self.folder / command
        token = token_of(self.api, f"kube-sync-{role}")
        kubeconfig = write_kubeconfig(
            folder, role, f"https://127.0.0.1:{self.proxy.port}", self.folder / "ca.crt", token
        )
        configuration: dict[str, object] = {
            "kubernetes": {"kubeconfig": str(kubeconfig)},
            "replicate": dict(REPLICATE),
            "placement": dict(PLACEMENT),
        }
        if command == REPLICATOR:
            configuration |= {
                "opa": self.stack.opa_settings(),
                "decisions": self.stack.endpoint.server(),
            }
        else:
            configuration |= {
                "decisions": self.stack.endpoint.client(),
                "remediate": self._remediate(),
            }
        self.services[command] = start_service(command, folder, configuration)

    def _remediate(self) -> dict[str, object]:
        return {
            "listen": f"127.0.0.1:{self.ports['status']}",
            "guard": dict(self.guard),
            "sinks": {"ocm_placement_decisions": {"enabled": True, "namespace": NAMESPACE}},
            "argocd": {
                "listen": f"127.0.0.1:{self.ports['generator']}",
                "token_file": str(self.folder / "generator.token"),
                "cert_file": str(self.folder / "tls.crt"),
                "key_file": str(self.folder / "tls.key"),
            },
            **self.moves,
        }

    def start_controller(self) -> None:
        """Start Argo CD's controller, which trusts the authority of the generator."""
        self.controller = start_argocd(
            self.api, self.folder / "argocd", self.folder / "ca.crt", quick=True
        )

    def stop(self) -> None:
        """End what was started."""
        for server in (*self.services.values(), *filter(None, [self.controller])):
            server.stop()

    def applications(self) -> dict[str, str]:
        """Return the uid of each Application that is not being deleted, by name."""
        items = self.api.get("applications.argoproj.io", namespace=NAMESPACE)["items"]
        return {
            one["metadata"]["name"]: one["metadata"]["uid"]
            for one in items
            if "deletionTimestamp" not in one["metadata"]
        }

    def application_set(self, name: str) -> Any:
        """Return an ApplicationSet."""
        return self.api.get("applicationsets.argoproj.io", name, NAMESPACE)

    def error(self, name: str) -> str:
        """Return the error that Argo CD shows on an ApplicationSet, "" if there is none."""
        conditions = self.application_set(name).get("status", {}).get("conditions", ())
        errors = (one for one in conditions if one["type"] == "ErrorOccurred")
        return next((one["message"] for one in errors if one["status"] == "True"), "")

    def placement(self, name: str) -> str | None:
        """Return the placement that an ApplicationSet carries."""
        annotations = self.application_set(name)["metadata"].get("annotations", {})
        found: str | None = annotations.get(PREFERENCES)
        return found

    def waiting(self) -> list[Any]:
        """Return what the remediator holds, as its status has it."""
        answer = get(f"http://127.0.0.1:{self.ports['status']}/v1/remediation/status")
        found: list[Any] = json.loads(answer.body)["waiting"]
        return found

    async def reconciled(self, names: Iterable[str]) -> None:
        """Return once the controller has reconciled each of these from now on."""
        wanted = list(names)
        # A reconcile that runs already may have read what was: the second one has not.
        for _ in range(2):
            before = self._counts()
            for name in wanted:
                change = {_REFRESH: secrets.token_hex(4)}
                await asyncio.to_thread(
                    self.api.annotate, "applicationsets.argoproj.io", name, change, NAMESPACE
                )
            await until(
                "the ApplicationSets are reconciled",
                lambda before=before: all(
                    self._counts().get(name, 0) > before.get(name, 0) for name in wanted
                ),
            )

    def _counts(self) -> dict[str, float]:
        if self.controller is None:
            msg = "Argo CD's controller was not started"
            raise ToolError(msg)
        text = get(f"{self.controller.url}/metrics").body.decode()
        return {name: float(count) for name, count in _RECONCILED.findall(text)}


async def until(what: str, holds: Any, seconds: float = _PATIENCE) -> None:
    """Wait until something holds; it is asked in a thread. Raises ToolError."""
    try:
        async with asyncio.timeout(seconds):
            while not await asyncio.to_thread(holds):  # noqa: ASYNC110 - another process
                await asyncio.sleep(_PAUSE)
    except TimeoutError as error:
        msg = f"after {seconds:.0f} s: not yet that {what}"
        raise ToolError(msg) from error


@asynccontextmanager
async def argocd_scene(
    stack: RunningStack,
    folder: Path,
    guard: Mapping[str, object] = EVERY_MOVE_WAITS,
    **moves: object,
) -> AsyncGenerator[Scene]:
    """Put Argo CD's kinds and roles on a stack that has ours; no service runs yet.

    `moves` are more keys of the remediator's section.
    """
    authority = make_authority("argocd scene")
    write_file(folder / "ca.crt", authority.cert_pem)
    write_pair(folder, "tls", issue(authority, "kube-sync", LOOPBACK))
    token = secrets.token_urlsafe(24)
    write_private(folder / "generator.token", token)
    serve = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serve.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    reach = ssl.create_default_context(cafile=stack.apiserver_ca_file)
    port = int(stack.apiserver_url.rpartition(":")[2])
    async with FaultProxy(port, serve=serve, reach=reach) as proxy:
        scene = Scene(stack, folder, proxy, token, guard, moves)
        await asyncio.to_thread(partial(_furnish, scene))
        try:
            yield scene
        finally:
            await asyncio.to_thread(scene.stop)


def _furnish(scene: Scene) -> None:
    stack, api = scene.stack, scene.api
    stack.install_open_cluster_management()
    install_argocd(api)
    for name in ("ocm-placement-decisions-argocd", "argocd", "argocd-applicationsets"):
        stack.apply(ROOT / "manifests" / name)
    api.create_namespace(FLEET)
    url = f"https://127.0.0.1:{scene.ports['generator']}"
    for one in generator_objects(url, scene.token):
        api.create(one)
