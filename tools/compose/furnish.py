"""Install in the stack's API server what its services need: kinds, namespaces, accounts, roles.

Runs in a container of docker-compose.yml as soon as the API server answers, and again with each
`up`, which changes nothing. It applies the files one by one: there is no kustomize in the image.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tools.servers.errors import ToolError
from tools.servers.kubeapi import KubeApi
from tools.servers.manifests import manifests_of

_SOURCES, _CREDENTIALS = Path("/src"), Path("/run/furnish")
_KINDS = ("tests/crds",)
_ROLES = ("manifests/base", "manifests/base/rbac", "manifests/placement-decisions")
_PATIENCE, _PAUSE = 180.0, 0.5  # seconds


def main() -> None:
    """Apply all of it, the kinds first."""
    token = (_CREDENTIALS / "token").read_text(encoding="utf-8")
    api = KubeApi("https://kube-apiserver:6443", _CREDENTIALS / "ca.crt", token)
    _wait(api)
    kinds = list(_objects(_KINDS))
    for definition in kinds:
        api.apply(definition)
    for definition in kinds:
        api.await_kind(definition)
    for manifest in _objects(_ROLES):
        api.apply(manifest)
    print("kinds and roles are installed")


def _wait(api: KubeApi) -> None:
    until = time.monotonic() + _PATIENCE
    while True:
        try:
            api.ask("GET", "/api/v1/namespaces/default")
        except ToolError:
            if time.monotonic() > until:
                raise
            time.sleep(_PAUSE)
        else:
            return


def _objects(folders: tuple[str, ...]) -> Iterator[Any]:
    """Yield the objects of the files that lie in these folders."""
    for folder in folders:
        for file in sorted((_SOURCES / folder).glob("*.yaml")):
            if file.name != "kustomization.yaml":
                yield from manifests_of(file)


if __name__ == "__main__":
    main()
