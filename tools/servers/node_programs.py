"""The programs of a node, as `tools/node/go.mod` pins them.

They are Kubernetes' own (of the version of kube-apiserver), CoreDNS, the network plugins of CNI,
and a pause. Keeps true: nothing builds them unasked, since that takes minutes. Standard library
only.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from tools.servers.binaries import ensure_tool
from tools.servers.versions import GO_MODULE, Tool, kubernetes_ldflags, read_go_mod, required

PROGRAM: Final = "node"  # all of them, for who asks for them by a name
KUBERNETES: Final = "k8s.io/kubernetes"
KUBERNETES_PROGRAMS: Final = (
    "kubelet",
    "kube-controller-manager",
    "kube-scheduler",
    "kube-proxy",
)
PLUGINS: Final = {
    "bridge": "main/bridge",
    "host-local": "ipam/host-local",
    "loopback": "main/loopback",
}
PAUSE: Final = "pause"
COREDNS: Final = "coredns"
_COREDNS = "github.com/coredns/coredns"
_CNI = "github.com/containernetworking/plugins"
_GO_MODULE = GO_MODULE / PROGRAM


def ensure_node_programs() -> Mapping[str, Path]:
    """Return the path of each program by its name, building what is not cached.

    Raises ToolError.
    """
    return {name: ensure_tool(tool) for name, tool in _tools()}


def _tools() -> Iterator[tuple[str, Tool]]:
    versions = required(read_go_mod(_GO_MODULE))
    for name in KUBERNETES_PROGRAMS:
        yield name, _of_kubernetes(name, versions[KUBERNETES])
    for name, path in PLUGINS.items():
        yield name, _plugin(name, path, versions[_CNI])
    yield COREDNS, _coredns(versions[_COREDNS])
    yield PAUSE, _pause()


def _of_kubernetes(name: str, version: str) -> Tool:
    return Tool(
        name=name,
        package=f"{KUBERNETES}/cmd/{name}",
        version=version,
        ask_version=("--version",),
        cold_build="two minutes",
        ldflags=kubernetes_ldflags(version),
        module=_GO_MODULE,
    )


def _plugin(name: str, path: str, version: str) -> Tool:
    return Tool(
        name=f"cni-{name}",  # iproute2 has a `bridge` too
        package=f"{_CNI}/plugins/{path}",
        version=version,
        ask_version=(),
        cold_build="about ten seconds",
        ldflags=f"-X {_CNI}/pkg/utils/buildversion.BuildVersion={version}",
        module=_GO_MODULE,
    )


def _coredns(version: str) -> Tool:
    return Tool(
        name=COREDNS,
        package="./coredns",
        version=version,
        ask_version=("-version",),
        cold_build="about a minute",
        module=_GO_MODULE,
    )


def _pause() -> Tool:
    source = (_GO_MODULE / "pause/main.go").read_bytes()
    version = f"v{hashlib.sha256(source).hexdigest()[:12]}"
    return Tool(
        name=PAUSE,
        package="./pause",
        version=version,
        ask_version=("version",),
        cold_build="seconds",
        ldflags=f"-X main.version={version}",
        module=_GO_MODULE,
    )
