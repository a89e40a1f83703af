"""Have other projects' files out of their Go modules: kinds (CustomResourceDefinitions), cases.

Keeps true: no copy of them is in this repository; what is returned came out of the very
module whose sum is written here (Go verifies what it downloads against its own records, this module
verifies what Go has against the pin), and a second call costs nothing and needs no network.
Standard library only.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from tools.servers.cache import cache_dir, locked, written_aside
from tools.servers.console import step
from tools.servers.errors import ToolError
from tools.servers.gobuild import go_environment, require_go

_GATEWAY_API_KINDS = (
    "backendtlspolicies",  # the one policy kind that the Gateway API itself declares
    "gatewayclasses",
    "gateways",
    "grpcroutes",
    "httproutes",
    "listenersets",
    "referencegrants",
    "tcproutes",
    "tlsroutes",
    "udproutes",
)


@dataclass(frozen=True, slots=True)
class ThirdParty:
    """Files of one project: the Go module they are in, its pin, and those to take of kinds."""

    name: str
    module: str
    version: str
    sum: str  # of the whole module, as go.sum would have it
    files: tuple[str, ...]  # inside the module


def third_parties() -> Mapping[str, ThirdParty]:
    """Return every project whose kinds are used, by name."""
    listed = (
        _gateway_api(),
        _open_cluster_management(),
        _kuadrant(),
        _envoy_gateway(),
        _istio(),
        _openreports(),
    )
    return MappingProxyType({project.name: project for project in listed})


def _gateway_api() -> ThirdParty:
    # The experimental channel: it serves the alpha versions of the routes beside v1.
    folder = "config/crd/experimental/gateway.networking.k8s.io_"
    return ThirdParty(
        name="gateway-api",
        module="sigs.k8s.io/gateway-api",
        version="v1.6.0",
        sum="h1:735YBRj5NXFrOGX0GoSjwzUIzbz8kiEOfADsqHFmHgE=",
        files=tuple(f"{folder}{plural}.yaml" for plural in _GATEWAY_API_KINDS),
    )


def _open_cluster_management() -> ThirdParty:
    return ThirdParty(
        name="open-cluster-management",
        module="open-cluster-management.io/api",
        version="v1.3.0",
        sum="h1:Q3miH38BE3N5+PesHQ0kcFi5nhX5350m7OJWapZcVqY=",
        files=(
            "cluster/v1/0000_00_clusters.open-cluster-management.io_managedclusters.crd.yaml",
            "cluster/v1beta1/0000_02_clusters.open-cluster-management.io_placements.crd.yaml",
            "cluster/v1beta1/0000_03_clusters.open-cluster-management.io_placementdecisions.crd.yaml",
            "work/v1/0000_00_work.open-cluster-management.io_manifestworks.crd.yaml",
        ),
    )


def _kuadrant() -> ThirdParty:
    plurals = ("authpolicies", "ratelimitpolicies", "dnspolicies", "tlspolicies", "kuadrants")
    return ThirdParty(
        name="kuadrant",
        module="github.com/kuadrant/kuadrant-operator",
        version="v1.1.0",
        sum="h1:hak2q1wWm/TwUGdCw/goVmRvGqFr7i7NqTnBRNPkoO4=",
        files=tuple(f"config/crd/bases/kuadrant.io_{plural}.yaml" for plural in plurals),
    )


def _envoy_gateway() -> ThirdParty:
    folder = "charts/gateway-helm/charts/crds/crds/generated/gateway.envoyproxy.io_"
    plurals = (
        "backendtrafficpolicies",
        "clienttrafficpolicies",
        "envoyextensionpolicies",
        "envoypatchpolicies",
        "securitypolicies",
    )
    return ThirdParty(
        name="envoy-gateway",
        module="github.com/envoyproxy/gateway",
        version="v1.9.1",
        sum="h1:vAVp6/AlBXJ1aOhp1mxL7fNEzVEfjADUguUhm2wzxQY=",
        files=tuple(f"{folder}{plural}.yaml" for plural in plurals),
    )


def _istio() -> ThirdParty:
    return ThirdParty(
        name="istio",
        module="istio.io/api",
        version="v1.31.4",
        sum="h1:AcnncYrlDj1PJkym7h88Gggkef4MAra8QpGaXRMsr+E=",
        files=("kubernetes/customresourcedefinitions.gen.yaml",),
    )


def _openreports() -> ThirdParty:
    return ThirdParty(
        name="openreports",
        module="github.com/openreports/reports-api",
        version="v0.2.1",
        sum="h1:g9KS3yle9Y1elmww4TK9EkD1rl6inIaiIJPX6e+u680=",
        files=("config/crd/openreports.io_reports.yaml",),
    )


def envoy_gateway_cases() -> Path:
    """Return the folder of Envoy Gateway's cases, each `<name>.in.yaml` and `<name>.out.yaml`."""
    return download(_envoy_gateway()) / "internal/gatewayapi/testdata"


def ensure_kinds(name: str) -> Path:
    """Return a file with all kinds of a project, a YAML stream, downloading it where needed."""
    try:
        project = third_parties()[name]
    except KeyError:
        msg = f"no such kinds: {name} (there are {', '.join(third_parties())})"
        raise ToolError(msg) from None
    return kinds_of(project)


def kinds_of(project: ThirdParty) -> Path:
    """Return a file with all kinds of a project, likewise."""
    cached = (
        cache_dir("kinds", f"{project.name}-{project.version}-{_digest(project)}") / "kinds.yaml"
    )
    if cached.exists():
        return cached
    with locked(f"kinds-{project.name}-{project.version}"):
        if not cached.exists():  # another process may have finished while this one waited
            _obtain(project, cached)
    return cached


def _digest(project: ThirdParty) -> str:
    """Return a name for the list of files: what was kept of another list is not this one's."""
    return hashlib.sha256("\n".join(project.files).encode()).hexdigest()[:8]


def _obtain(project: ThirdParty, target: Path) -> None:
    with step(f"having the kinds of {project.name} {project.version} from their Go module"):
        folder = download(project)
        texts = [_read(project, folder / file) for file in project.files]
        with written_aside(target) as aside:
            aside.write_text("\n---\n".join(texts), encoding="utf-8")


def _read(project: ThirdParty, path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        msg = f"{project.module} {project.version} lacks {path.name}: {error.strerror}"
        raise ToolError(msg) from error


def download(project: ThirdParty) -> Path:
    """Return the folder of the module in Go's cache; raise ToolError where its sum differs."""
    environment = go_environment()
    require_go(environment)
    said = _go_mod_download(f"{project.module}@{project.version}", environment)
    if said.get("Error"):
        msg = f"{project.module} {project.version} is not to be had: {_one_line(said['Error'])}"
        raise ToolError(msg)
    if said.get("Sum") != project.sum:
        msg = (
            f"{project.module} {project.version} is not the one that was pinned: "
            f"its sum is {said.get('Sum')}, not {project.sum}"
        )
        raise ToolError(msg)
    return Path(said["Dir"])


def _go_mod_download(what: str, environment: dict[str, str]) -> dict[str, str]:
    """Ask Go for one module; without a go.mod around, no requirement of ours has a say in it."""
    with tempfile.TemporaryDirectory(prefix="kube-sync-kinds-") as nowhere:
        try:
            answer = subprocess.run(
                ["go", "mod", "download", "-json", what],
                cwd=nowhere,
                env=environment,
                capture_output=True,
                text=True,
                check=False,
                timeout=300,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return {"Error": str(error)}
    try:
        return dict(json.loads(answer.stdout))
    except ValueError:
        return {"Error": answer.stderr or f"go ended with {answer.returncode} and said nothing"}


def _one_line(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()[:500]
