"""etcd, kube-apiserver and OPA together: what the tests' fixtures and the demo stand on.

Keeps true: a stack that fails to start leaves nothing running, and one made of processes can be
ended by another program later (`stop_recorded`), which ends those processes and no other.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.servers.apiserver import RunningApiserver, start_apiserver
from tools.servers.binaries import ensure_binary
from tools.servers.errors import ToolError
from tools.servers.kubeapi import KubeApi
from tools.servers.manifests import manifests_of
from tools.servers.processes import end_recorded
from tools.servers.running import Launcher, RunningServer
from tools.servers.secured_opa import Endpoint, RunningOpa, opa_settings, start_opa
from tools.servers.thirdparty import ensure_kinds

STATE = "stack.json"
_ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class RunningStack:
    """The three servers, with what their clients need."""

    folder: Path
    form: str  # processes or containers
    etcd: RunningServer
    apiserver: RunningServer
    opa: RunningServer
    apiserver_url: str
    apiserver_ca_file: Path
    kube_tokens: Mapping[str, str]  # by role: admin, and the accounts of manifests/
    kubeconfigs: Mapping[str, Path]  # by role
    opa_url: str
    opa_ca_file: Path
    opa_token_files: Mapping[str, Path]  # by role: replicator, admission, metrics
    api: KubeApi  # as the admin
    replicator: Endpoint | None = None  # where it is to serve, if it is not in a container too
    audit_log: Path | None = None

    @property
    def endpoint(self) -> Endpoint:
        """Where the replicator is to serve."""
        if self.replicator is None:
            msg = f"the replicator of the {self.form} stack is part of it"
            raise ToolError(msg)
        return self.replicator

    def opa_settings(self) -> dict[str, object]:
        """Return the section `opa` of the replicator's configuration."""
        return opa_settings(self.opa_url, self.opa_ca_file, self.opa_token_files["replicator"])

    def stop(self) -> None:
        """End the servers, the last one started first; nothing is left running."""
        self.api.close()
        for server in (self.opa, self.apiserver, self.etcd):
            server.stop()

    def audited(self, *having: str, since: int = 0) -> list[Any]:
        """Return the entries of the audit log from this byte on that have one of these texts.

        Without a text: all. What follows the last newline is still being written.
        """
        if self.audit_log is None:
            msg = "this stack has no audit log"
            raise ToolError(msg)
        with self.audit_log.open("rb") as log:
            log.seek(since)
            lines = log.read().rpartition(b"\n")[0].splitlines()
        marks = [one.encode() for one in having or ("",)]
        return [json.loads(line) for line in lines if any(mark in line for mark in marks)]

    def kubectl(self, *arguments: str, role: str = "admin", stdin: str | None = None) -> str:
        """Run kubectl as one of the roles and return what it prints."""
        return kubectl(self.kubeconfigs[role], *arguments, stdin=stdin)

    def apply(self, *paths: Path) -> None:
        """Apply files and folders of manifests as the admin; kustomizations are built first."""
        for path in paths:
            apply(self.api, path)

    def install_kinds(self, path: Path) -> None:
        """Apply the CRDs of a file or folder and wait until the API server serves them."""
        install_kinds(self.api, path)

    def install_gateway_api(self) -> None:
        """Install the Gateway API's kinds (experimental channel) and wait until they are served."""
        self.install_kinds(ensure_kinds("gateway-api"))

    def install_open_cluster_management(self) -> None:
        """Install ManagedCluster, Placement, PlacementDecision and ManifestWork likewise."""
        self.install_kinds(ensure_kinds("open-cluster-management"))

    def furnish(self) -> None:
        """Install the kinds that the tests use and the roles of `manifests/base`."""
        self.install_kinds(_ROOT / "tests/crds")
        self.apply(_ROOT / "manifests/base")


def start_stack(
    launcher: Launcher,
    folder: Path,
    *,
    audit: bool = False,
    apiserver_arguments: Sequence[str] = (),
    opa_arguments: Sequence[str] = (),
) -> RunningStack:
    """Start all three below an empty or missing folder and write down where they are."""
    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    cluster = start_apiserver(launcher, folder, audit=audit, extra_arguments=apiserver_arguments)
    try:
        opa = start_opa(launcher, folder, opa_arguments)
    except BaseException:
        cluster.stop()
        raise
    stack = _together(launcher.form, folder, cluster, opa)
    (folder / STATE).write_text(json.dumps(_state(stack), indent=2) + "\n", encoding="utf-8")
    return stack


@contextmanager
def furnished_stack(
    launcher: Launcher, folder: Path, *, audit: bool = False
) -> Iterator[RunningStack]:
    """Run a stack with our kinds and roles on it, as long as the block lasts."""
    stack = start_stack(launcher, folder, audit=audit)
    try:
        stack.furnish()
        yield stack
    finally:
        stack.stop()
        shutil.rmtree(stack.etcd.spec.folder / "data")  # 64 MB that nobody looks at afterwards


def stop_recorded(folder: Path) -> int:
    """End every process recorded below the folder, remove it, and return how many were ended."""
    if not folder.exists():
        return 0
    ended = end_recorded(folder)
    shutil.rmtree(folder)
    return ended


def kubectl(kubeconfig: Path, *arguments: str, stdin: str | None = None) -> str:
    """Run the pinned kubectl and return what it prints; raise ToolError with what it says."""
    return _run(ensure_binary("kubectl"), f"--kubeconfig={kubeconfig}", *arguments, stdin=stdin)


def apply(api: KubeApi, path: Path) -> None:
    """Apply a file or folder of manifests; a kustomization is built with the pinned kustomize."""
    for manifest in manifests_of(path):
        api.apply(manifest)


def install_kinds(api: KubeApi, path: Path) -> None:
    """Apply the CRDs of a file or folder and wait until the API server serves them."""
    apply(api, path)
    for manifest in manifests_of(path):
        if manifest["kind"] == "CustomResourceDefinition":
            api.await_kind(manifest)


def _together(form: str, folder: Path, cluster: RunningApiserver, opa: RunningOpa) -> RunningStack:
    return RunningStack(
        folder=folder,
        form=form,
        etcd=cluster.etcd,
        apiserver=cluster.server,
        opa=opa.server,
        apiserver_url=cluster.url,
        apiserver_ca_file=cluster.ca_file,
        kube_tokens=cluster.tokens,
        kubeconfigs=cluster.kubeconfigs,
        opa_url=opa.url,
        opa_ca_file=opa.ca_file,
        opa_token_files=opa.token_files,
        api=cluster.api,
        replicator=opa.replicator,
        audit_log=cluster.audit_log,
    )


def _state(stack: RunningStack) -> dict[str, object]:
    """Return where everything is, without secrets: tokens stay in their own files."""
    return {
        "form": stack.form,
        "etcd": {"url": stack.etcd.url},
        "apiserver": {"url": stack.apiserver_url, "ca_file": str(stack.apiserver_ca_file)},
        "kubeconfigs": {role: str(path) for role, path in stack.kubeconfigs.items()},
        "opa": {"url": stack.opa_url, "ca_file": str(stack.opa_ca_file)},
        "opa_token_files": {role: str(path) for role, path in stack.opa_token_files.items()},
    }


def _run(*command: str | Path, stdin: str | None = None) -> str:
    answer = subprocess.run(
        command, input=stdin or "", capture_output=True, text=True, timeout=120, check=False
    )
    if answer.returncode != 0:
        msg = f"{Path(command[0]).name} {' '.join(map(str, command[1:4]))}: {answer.stderr.strip()}"
        raise ToolError(msg)
    return answer.stdout
