"""Argo CD as a program: which release, and how it is built.

Keeps true: program, kinds and roles come out of one Go module, whose sum is written here; nothing
of them is changed. Argo CD is one program, whose name says which part of it runs. Only who asks for
it builds it (`make test-argocd`, `make demo WITH=argocd`), once. `argocd_controller` runs it.
Standard library only.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tools.servers.binaries import cached_path, ensure_tool
from tools.servers.thirdparty import ThirdParty, download, kinds_of
from tools.servers.versions import Tool

PROGRAM = "argocd"


def _module() -> ThirdParty:
    # Versions from 3.2 to 3.5 name a nested module that is not in their archives.
    return ThirdParty(
        name="argo-cd",
        module="github.com/argoproj/argo-cd/v3",
        version="v3.1.9",
        sum="h1:9P9vJKo1RGWu6mtQnGu61r+0h3XKlA2j3kVhwogUQ/0=",
        files=(
            "manifests/crds/application-crd.yaml",
            "manifests/crds/applicationset-crd.yaml",
            "manifests/crds/appproject-crd.yaml",
        ),
    )


def _tool() -> Tool:
    version, stamp = _module().version, f"{_module().module}/common"
    # As its own releases are stamped: these three make it say the tag, and nothing after it.
    release = {"gitTag": version, "gitCommit": version, "gitTreeState": "clean"}
    return Tool(
        name=PROGRAM,
        package="./cmd",
        version=version,
        ask_version=("version", "--client", "--short"),
        cold_build="five to ten minutes",
        ldflags=" ".join(f"-X {stamp}.{name}={value}" for name, value in release.items()),
    )


def ensure_argocd() -> Path:
    """Return the path of the program, built first where it is not cached. Raises ToolError."""
    tool = _tool()
    cached = cached_path(tool)
    # Built where its own go.mod is: that has replacements, which no other go.mod takes over.
    return cached if cached.exists() else ensure_tool(replace(tool, module=download(_module())))


def argocd_kinds() -> Path:
    """Return a file with Application, ApplicationSet and AppProject. Raises ToolError."""
    return kinds_of(_module())


def argocd_manifests() -> Path:
    """Return the folder of the manifests that a release installs. Raises ToolError."""
    return download(_module()) / "manifests/base"
