from __future__ import annotations

from pathlib import Path

import pytest

from tools.servers import argocd, binaries, dockerd_api
from tools.servers.argocd import ensure_argocd
from tools.servers.errors import ToolError
from tools.servers.thirdparty import ThirdParty
from tools.servers.versions import Tool


class Builder:
    """Stands for Go: writes a program that says the given version, and keeps what was asked."""

    def __init__(self, said: str) -> None:
        self.said = said
        self.built: list[Tool] = []

    def __call__(self, tool: Tool, target: Path) -> None:
        self.built.append(tool)
        target.write_text(f"#!/bin/sh\necho 'argocd: {self.said}'\n", encoding="utf-8")


@pytest.fixture
def builder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Builder:
    def download(project: ThirdParty) -> Path:
        return tmp_path / project.name

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    monkeypatch.setattr(dockerd_api, "engine_answers", lambda: False)
    monkeypatch.setattr(argocd, "download", download)
    found = Builder("v3.1.9")
    monkeypatch.setattr(binaries, "build", found)
    return found


def test_it_is_built_once_where_its_own_replacements_are(builder: Builder, tmp_path: Path) -> None:
    assert ensure_argocd() == ensure_argocd()
    (tool,) = builder.built
    assert (tool.module, tool.package) == (tmp_path / "argo-cd", "./cmd")


def test_what_says_another_version_is_not_kept(builder: Builder) -> None:
    builder.said = "v99.99.99+unknown"
    with pytest.raises(ToolError, match=r"argocd should be v3\.1\.9 and says of itself"):
        ensure_argocd()
    assert len(builder.built) == 1
