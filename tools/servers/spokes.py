"""More clusters than the one: kube-apiservers without an OPA, for what goes from a hub to spokes.

Keeps true: what one of them holds, none of the others sees.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tools.servers.apiserver import RunningApiserver, start_apiserver
from tools.servers.kubeapi import KubeApi
from tools.servers.running import Launcher
from tools.servers.stack import apply, install_kinds, kubectl
from tools.servers.thirdparty import ensure_kinds


@dataclass(frozen=True, slots=True)
class RunningSpoke:
    """One managed cluster, with what its clients need."""

    name: str  # of the cluster on the hub
    cluster: RunningApiserver

    @property
    def kubeconfig(self) -> Path:
        """The admin's."""
        return self.cluster.kubeconfigs["admin"]

    @property
    def api(self) -> KubeApi:
        """Objects of this cluster, as the admin."""
        return self.cluster.api

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """Run kubectl as the admin and return what it prints."""
        return kubectl(self.kubeconfig, *arguments, stdin=stdin)

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

    def stop(self) -> None:
        """End the API server, then its etcd."""
        self.cluster.stop()


def start_spoke(
    launcher: Launcher, folder: Path, name: str, *, audit: bool = False
) -> RunningSpoke:
    """Start one below an empty or missing folder."""
    return RunningSpoke(name, start_apiserver(launcher, folder.resolve(), audit=audit))


@contextmanager
def running_spokes(
    launcher: Launcher, folder: Path, names: Sequence[str]
) -> Iterator[tuple[RunningSpoke, ...]]:
    """Run spokes of these names as long as the block lasts."""
    with ExitStack() as running:
        found = []
        for name in names:
            spoke = start_spoke(launcher, folder / name, name)
            running.callback(shutil.rmtree, spoke.cluster.etcd.spec.folder / "data")
            running.callback(spoke.stop)
            found.append(spoke)
        yield tuple(found)
