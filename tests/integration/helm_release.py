"""The real helm, on an API server of its own: what a release has made there."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.charting.chart import CHART, files
from tools.charting.comparing import run
from tools.servers.apiserver import RunningApiserver
from tools.servers.binaries import ensure_binary
from tools.servers.manifests import documents_of
from tools.servers.stack import RunningStack

NAMESPACE = "kube-sync"
RELEASE = "kube-sync"
_NAMESPACED = "--namespace=" + NAMESPACE


@dataclass(frozen=True, slots=True)
class Helm:
    """Helm as the administrator of a cluster, with files of its own."""

    cluster: RunningApiserver | RunningStack
    home: Path
    seconds: float = 60  # for one command

    def __call__(self, *arguments: str) -> str:
        """Run helm; raises ToolError with what it says."""
        folders = {
            f"HELM_{what}_HOME": str(self.home / what) for what in ("CACHE", "CONFIG", "DATA")
        }
        kubeconfig = {"KUBECONFIG": str(self.cluster.kubeconfigs["admin"])}
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.home), **folders, **kubeconfig}
        return run(
            ensure_binary("helm"),
            *arguments,
            _NAMESPACED,
            environment=environment,
            seconds=self.seconds,
        )

    def objects(self) -> dict[str, Any]:
        """Return the objects of the release as the cluster has them, by kind and name."""
        found = {}
        for manifest in self.manifests():
            metadata = manifest["metadata"]
            group, _, _ = manifest["apiVersion"].rpartition("/")
            resource = f"{manifest['kind']}.{group}" if group else manifest["kind"]
            place = metadata["name"], metadata.get("namespace", "")
            found[f"{manifest['kind']} {place[1]}/{place[0]}"] = self.cluster.api.get(
                resource, *place
            )
        return found

    def manifests(self) -> list[Any]:
        """Return the objects that the present revision has."""
        return [*documents_of(self("get", "manifest", RELEASE))]

    def history(self) -> list[tuple[int, str, str]]:
        """Return the revisions of the release: number, chart and status."""
        listed = json.loads(self("history", RELEASE, "--output=json"))
        return [(one["revision"], one["chart"], one["status"]) for one in listed]


def earlier_chart(manifests: Path, folder: Path, version: str) -> Path:
    """Write the chart of the manifests of an earlier release, with what else the chart has now."""
    shutil.copytree(CHART, folder)
    for made in (folder / "templates").glob("*.yaml"):
        made.unlink()
    for name, text in files(manifests).items():
        (folder / name).write_text(text, encoding="utf-8")
    chart = (folder / "Chart.yaml").read_text(encoding="utf-8")
    lines = [
        f"{line.partition(':')[0]}: {version}"
        if line.startswith(("version:", "appVersion:"))
        else line
        for line in chart.splitlines()
    ]
    (folder / "Chart.yaml").write_text("\n".join([*lines, ""]), encoding="utf-8")
    return folder
