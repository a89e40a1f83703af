"""What the programs of a node read: their configurations, written into the node's folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from kube_sync.certificates import Authority, issue
from tools.servers.files import write_file, write_pair
from tools.servers.node_machine import ADDRESS, CGROUP, POD_RANGE
from tools.servers.node_programs import PLUGINS

NODE: Final = "node"
PAUSE_IMAGE: Final = "kube-sync.io/pause:node"
_DOMAIN: Final = "cluster.local"
_SOCKET: Final = "/run/containerd/containerd.sock"
_CONTAINERD = """\
version = 2
[metrics]
address = "{address}:1338"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{pause}"
restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{folder}/cni/bin"
conf_dir = "{folder}/cni/net.d"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
"""
_COREDNS = """\
.:53 {{
  bind {address}
  errors
  ready {address}:8181
  kubernetes {domain} in-addr.arpa ip6.arpa {{
    kubeconfig {kubeconfig}
  }}
}}
"""


def write_node_files(
    folder: Path, kubeconfig: Path, authority: Authority, programs: Mapping[str, Path]
) -> None:
    """Write what each program of the node reads; `authority` is of the folder's `ca.crt`."""
    write_pair(folder, "kubelet", issue(authority, "kubelet", (ADDRESS,)))
    _write_json(folder / "kubelet.json", _kubelet(folder))
    _write_json(folder / "kube-proxy.json", _kube_proxy(kubeconfig))
    _write_json(folder / "cni/net.d/10-bridge.conflist", _network())
    for name in PLUGINS:
        plugin = folder / "cni/bin" / name
        plugin.parent.mkdir(exist_ok=True)
        plugin.symlink_to(programs[name])
    containerd = _CONTAINERD.format(address=ADDRESS, pause=PAUSE_IMAGE, folder=folder)
    write_file(folder / "containerd.toml", containerd.encode())
    corefile = _COREDNS.format(address=ADDRESS, domain=_DOMAIN, kubeconfig=kubeconfig)
    write_file(folder / "Corefile", corefile.encode())


def _kubelet(folder: Path) -> dict[str, Any]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": ADDRESS,
        "healthzBindAddress": ADDRESS,
        "tlsCertFile": str(folder / "kubelet.crt"),
        "tlsPrivateKeyFile": str(folder / "kubelet.key"),
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": False},
            "x509": {"clientCAFile": str(folder / "ca.crt")},
        },
        "authorization": {"mode": "AlwaysAllow"},
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{CGROUP}",
        "failCgroupV1": False,
        "failSwapOn": False,
        "clusterDNS": [ADDRESS],
        "clusterDomain": _DOMAIN,
        "resolvConf": "",  # no names but those of the cluster
        "containerRuntimeEndpoint": f"unix://{_SOCKET}",
        # The disk is not the node's own: how full it is says nothing of its pods.
        "evictionHard": {
            "nodefs.available": "0%",
            "nodefs.inodesFree": "0%",
            "imagefs.available": "0%",
        },
        "imageGCHighThresholdPercent": 100,
    }


def _kube_proxy(kubeconfig: Path) -> dict[str, Any]:
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "clientConnection": {"kubeconfig": str(kubeconfig)},
        "hostnameOverride": NODE,
        "clusterCIDR": POD_RANGE,
        "healthzBindAddress": f"{ADDRESS}:10256",
        # These are limits of the whole kernel, which is not the node's own.
        "conntrack": {"maxPerCore": 0, "min": 0},
    }


def _network() -> dict[str, Any]:
    """Return a network of one bridge; each end of a Service may be the pod that asks."""
    bridge = {
        "type": "bridge",
        "bridge": "pods",
        "isGateway": True,
        "hairpinMode": True,
        "ipam": {
            "type": "host-local",
            "ranges": [[{"subnet": POD_RANGE}]],
            "routes": [{"dst": "0.0.0.0/0"}],
        },
    }
    return {"cniVersion": "1.0.0", "name": NODE, "plugins": [bridge]}


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    write_file(path, json.dumps(content, indent=2).encode())
