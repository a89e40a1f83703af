"""A cluster of one node: what a real one has, on this machine, of the pinned versions.

etcd, kube-apiserver and Kubernetes' controllers and scheduler are processes here; containerd,
kubelet, kube-proxy and CoreDNS are in a machine of the node's own (`node_machine`). What a
network policy says holds for nobody: the network plugins here know none. Needs root, and
containerd and runc in PATH, as Debian's docker.io brings them.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from kube_sync.certificates import Authority, issue, make_authority
from tools.servers.apiserver import RunningApiserver, start_apiserver
from tools.servers.cache import locked
from tools.servers.errors import ToolError
from tools.servers.files import LOOPBACK, write_file, write_pair
from tools.servers.node_files import NODE, write_node_files
from tools.servers.node_images import import_images
from tools.servers.node_machine import ADDRESS, HOST, SERVICE_RANGE, Machine
from tools.servers.node_programs import COREDNS, PAUSE, ensure_node_programs
from tools.servers.processes import ProcessLauncher
from tools.servers.running import RunningServer, ServerSpec, free_port, launch_on_free_port

_API_SERVICE = "198.18.2.1"  # the first of SERVICE_RANGE
_HOSTS = (HOST, _API_SERVICE, "kubernetes.default.svc")


@dataclass(frozen=True, slots=True)
class Node:
    """The node's folder, programs, and how they reach the API server."""

    folder: Path
    programs: Mapping[str, Path]
    kubeconfig: Path


@contextmanager
def node_cluster(folder: Path, images: Iterable[str]) -> Iterator[RunningApiserver]:
    """Run a cluster whose node holds images of the engine, as long as the block lasts.

    One runs at a time. Raises ToolError where this machine cannot run one.
    """
    programs = ensure_node_programs()
    _require("containerd", "ctr", "runc")
    home = folder / "node"
    authority = make_authority("kube-sync test node")
    with locked("node"), ExitStack() as started:
        machine = Machine(home, programs[PAUSE])
        started.callback(machine.stop)
        cluster = _start_apiserver(folder, home, authority)
        started.callback(cluster.stop)
        node = Node(home, programs, cluster.kubeconfigs["admin"])
        write_node_files(home, node.kubeconfig, authority, programs)
        for name in ("kube-controller-manager", "kube-scheduler"):
            started.callback(_start_manager(node, name, authority, cluster).stop)
        started.callback(machine.launch(_containerd(node)).stop)
        import_images(machine, programs[PAUSE], images)
        for spec in (_kubelet(node), _kube_proxy(node), _coredns(node)):
            started.callback(machine.launch(spec).stop)
        yield cluster


def _require(*programs: str) -> None:
    for program in programs:
        if shutil.which(program) is None:
            msg = f"a node needs {program}, which is not in PATH (Debian: docker.io brings it)"
            raise ToolError(msg)


def _start_apiserver(folder: Path, home: Path, authority: Authority) -> RunningApiserver:
    """Start it where pods reach it, with what a cluster of controllers has."""
    write_file(home / "ca.crt", authority.cert_pem)
    write_pair(home, "kubelet-client", issue(authority, "kube-apiserver", (HOST,)))
    arguments = (
        f"--service-cluster-ip-range={SERVICE_RANGE}",
        "--endpoint-reconciler-type=lease",
        "--disable-admission-plugins=",
        f"--kubelet-client-certificate={home / 'kubelet-client.crt'}",
        f"--kubelet-client-key={home / 'kubelet-client.key'}",
        f"--kubelet-certificate-authority={home / 'ca.crt'}",
        "--kubelet-preferred-address-types=InternalIP",
    )
    return start_apiserver(ProcessLauncher(), folder, hosts=_HOSTS, extra_arguments=arguments)


def _start_manager(
    node: Node, name: str, authority: Authority, cluster: RunningApiserver
) -> RunningServer:
    """Start the controllers, or the scheduler."""
    folder = node.folder / name
    write_pair(folder, "tls", issue(authority, name, LOOPBACK))
    signing = cluster.server.spec.folder / "service-account.key"
    of_controllers = (
        f"--service-account-private-key-file={signing}",
        f"--root-ca-file={cluster.ca_file}",
    )
    arguments = (
        f"--kubeconfig={node.kubeconfig}",
        "--leader-elect=false",
        "--bind-address=127.0.0.1",
        f"--tls-cert-file={folder / 'tls.crt'}",
        f"--tls-private-key-file={folder / 'tls.key'}",
        *(of_controllers if name == "kube-controller-manager" else ()),
    )

    def spec() -> ServerSpec:
        port = free_port()
        return ServerSpec(
            name=name,
            program=str(node.programs[name]),
            arguments=(*arguments, f"--secure-port={port}"),
            folder=folder,
            url=f"https://127.0.0.1:{port}",
            ready_paths=("/healthz",),
            ca_file=node.folder / "ca.crt",
        )

    return launch_on_free_port(ProcessLauncher(), spec)


def _containerd(node: Node) -> ServerSpec:
    config = node.folder / "containerd.toml"
    return _inside(node, "containerd", 1338, "/v1/metrics", f"--config={config}")


def _kubelet(node: Node) -> ServerSpec:
    arguments = (
        f"--config={node.folder / 'kubelet.json'}",
        f"--kubeconfig={node.kubeconfig}",
        f"--hostname-override={NODE}",
        f"--node-ip={ADDRESS}",
    )
    return _inside(node, "kubelet", 10248, "/healthz", *arguments)


def _kube_proxy(node: Node) -> ServerSpec:
    config = node.folder / "kube-proxy.json"
    return _inside(node, "kube-proxy", 10256, "/healthz", f"--config={config}")


def _coredns(node: Node) -> ServerSpec:
    return _inside(node, COREDNS, 8181, "/ready", f"-conf={node.folder / 'Corefile'}")


def _inside(node: Node, name: str, port: int, ready: str, *arguments: str) -> ServerSpec:
    """Describe a server in the node's machine."""
    folder = node.folder / name
    folder.mkdir(exist_ok=True)
    return ServerSpec(
        name=name,
        program=str(node.programs.get(name, name)),
        arguments=arguments,
        folder=folder,
        url=f"http://{ADDRESS}:{port}",
        ready_paths=(ready,),
    )
