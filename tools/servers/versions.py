"""The pinned versions, read from `tools/go.mod`: the single place where one is written down.

A program whose modules do not go with those has a go.mod of its own: `tools/kube-score/go.mod`,
`tools/actionlint/go.mod`, `tools/helm/go.mod`.
The digests of images of these versions, and of the others that are pulled, are in
`tools/images.json`.

Keeps true: a binary, an image tag and a Go build of the same name are of the same version.
Standard library only, so that it runs before there is a virtual environment.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

GO_MODULE = Path(__file__).resolve().parent.parent
KUBE_SCORE_MODULE = GO_MODULE / "kube-score"
ACTIONLINT_MODULE = GO_MODULE / "actionlint"
HELM_MODULE = GO_MODULE / "helm"
IMAGES = GO_MODULE / "images.json"
_REQUIREMENT = re.compile(r"^\s*(?:require\s+)?(\S+)\s+(v\d\S*)", re.MULTILINE)
_REPLACEMENTS = re.compile(r"^replace\s*\(.*?^\)|^replace [^\n]*$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Tool:
    """One pinned program: where it comes from, how it tells its version, where its image has it."""

    name: str
    package: str
    version: str  # as Go writes it, with a leading v
    ask_version: tuple[str, ...]
    cold_build: str  # how long the first build takes on two cores
    ldflags: str = ""
    module: Path = GO_MODULE  # the folder of the go.mod that pins it
    image: str | None = None
    image_path: str = ""
    architecture: str = ""  # as Go names it, where it is built for another machine than this one

    @property
    def number(self) -> str:
        """Return the version without its leading v."""
        return self.version.removeprefix("v")

    def is_version(self, text: str) -> bool:
        """Tell whether what a program says of its version is exactly the pinned one."""
        return bool(re.search(rf"(?<![\w.])v?{re.escape(self.number)}(?![\w.+-])", text))


def required(go_mod: str) -> Mapping[str, str]:
    """Map module path to version, for every requirement in the text of a go.mod."""
    return MappingProxyType(dict(_REQUIREMENT.findall(_REPLACEMENTS.sub("", go_mod))))


def go_directive(go_mod: str) -> tuple[int, int]:
    """Return the lowest Go release (major, minor) that builds the module."""
    found = re.search(r"^go (\d+)\.(\d+)", go_mod, re.MULTILINE)
    if found is None:
        msg = "tools/go.mod has no go directive"
        raise ValueError(msg)
    return int(found[1]), int(found[2])


def read_go_mod(module: Path = GO_MODULE) -> str:
    """Return the text of a module's go.mod: of tools/go.mod, where none is named."""
    return (module / "go.mod").read_text(encoding="utf-8")


def pinned_images() -> Mapping[str, dict[str, str | None]]:
    """Return, by `name:tag`, the `digest` of each image (None: not known), and its source."""
    found: dict[str, dict[str, str | None]] = json.loads(IMAGES.read_text(encoding="utf-8"))
    return MappingProxyType(found)


@functools.cache
def tools() -> Mapping[str, Tool]:
    """Return every pinned program by name."""
    versions = required(read_go_mod())
    listed = (
        _opa(versions["github.com/open-policy-agent/opa"]),
        _etcd(versions["go.etcd.io/etcd/server/v3"]),
        _kube_apiserver(versions["k8s.io/kubernetes"]),
        _kubectl(versions["k8s.io/kubernetes"]),
        _kustomize(versions["sigs.k8s.io/kustomize/kustomize/v5"]),
        _kube_score(required(read_go_mod(KUBE_SCORE_MODULE))["github.com/zegl/kube-score"]),
        _actionlint(required(read_go_mod(ACTIONLINT_MODULE))["github.com/rhysd/actionlint"]),
        _helm(required(read_go_mod(HELM_MODULE))["helm.sh/helm/v4"]),
    )
    return MappingProxyType({tool.name: tool for tool in listed})


def _opa(version: str) -> Tool:
    return Tool(
        name="opa",
        package="github.com/open-policy-agent/opa",
        version=version,
        ask_version=("version",),
        cold_build="about 70 seconds",
        image=f"openpolicyagent/opa:{version.removeprefix('v')}-static",
        image_path="/opa",
    )


def _etcd(version: str) -> Tool:
    return Tool(
        name="etcd",
        package="go.etcd.io/etcd/server/v3",
        version=version,
        ask_version=("--version",),
        cold_build="about a minute",
        image=f"registry.k8s.io/etcd:{version.removeprefix('v')}-0",
        image_path="/usr/local/bin/etcd",
    )


def _kube_apiserver(version: str) -> Tool:
    return Tool(
        name="kube-apiserver",
        package="k8s.io/kubernetes/cmd/kube-apiserver",
        version=version,
        ask_version=("--version",),
        cold_build="three to six minutes",
        ldflags=kubernetes_ldflags(version),
        image=f"registry.k8s.io/kube-apiserver:{version}",
        image_path="/usr/local/bin/kube-apiserver",
    )


def _kubectl(version: str) -> Tool:
    return Tool(
        name="kubectl",
        package="k8s.io/kubernetes/cmd/kubectl",
        version=version,
        ask_version=("version", "--client"),
        cold_build="about a minute",
        ldflags=kubernetes_ldflags(version),
    )


def _kustomize(version: str) -> Tool:
    return Tool(
        name="kustomize",
        package="sigs.k8s.io/kustomize/kustomize/v5",
        version=version,
        ask_version=("version",),
        cold_build="about a minute",
        ldflags=f"-X sigs.k8s.io/kustomize/api/provenance.version={version}",
    )


def _kube_score(version: str) -> Tool:
    return Tool(
        name="kube-score",
        package="github.com/zegl/kube-score/cmd/kube-score",
        version=version,
        ask_version=("version",),
        cold_build="about a minute",
        ldflags=f"-X main.version={version.removeprefix('v')}",
        module=KUBE_SCORE_MODULE,
    )


def _actionlint(version: str) -> Tool:
    return Tool(
        name="actionlint",
        package="github.com/rhysd/actionlint/cmd/actionlint",
        version=version,
        ask_version=("-version",),
        cold_build="about ten seconds",
        ldflags=f"-X github.com/rhysd/actionlint.version={version.removeprefix('v')}",
        module=ACTIONLINT_MODULE,
    )


def _helm(version: str) -> Tool:
    return Tool(
        name="helm",
        package="helm.sh/helm/v4/cmd/helm",
        version=version,
        ask_version=("version", "--template={{.Version}}"),
        cold_build="about a minute",
        ldflags=f"-X helm.sh/helm/v4/internal/version.version={version}",
        module=HELM_MODULE,
    )


def kubernetes_ldflags(version: str) -> str:
    """Stamp as Kubernetes stamps its releases; without it a build calls itself v0.0.0."""
    major, minor, _ = version.removeprefix("v").split(".", 2)
    stamp = "k8s.io/component-base/version.git"
    return f"-X {stamp}Version={version} -X {stamp}Major={major} -X {stamp}Minor={minor}"
