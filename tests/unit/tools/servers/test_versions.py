from __future__ import annotations

import re

import pytest

from tools.servers.versions import (
    ACTIONLINT_MODULE,
    HELM_MODULE,
    KUBE_SCORE_MODULE,
    Tool,
    go_directive,
    read_go_mod,
    required,
    tools,
)

GO_MOD = """\
module example

go 1.26.0

require example.org/one v1.2.3

require (
	example.org/two v0.4.0 // indirect
	example.org/three/v2 v2.0.0-20250101000000-abcdef123456
)

replace (
	example.org/two => example.org/two v9.9.9
)

replace example.org/one => example.org/one v8.8.8
"""


def tool(version: str) -> Tool:
    return Tool("opa", "example.org/opa", version, ("version",), "seconds")


def test_requirements_are_read_in_both_forms() -> None:
    assert required(GO_MOD) == {
        "example.org/one": "v1.2.3",
        "example.org/two": "v0.4.0",
        "example.org/three/v2": "v2.0.0-20250101000000-abcdef123456",
    }


def test_go_directive_is_the_lowest_release() -> None:
    assert go_directive(GO_MOD) == (1, 26)


def test_go_mod_without_directive_is_refused() -> None:
    with pytest.raises(ValueError, match="no go directive"):
        go_directive("module example\n")


def test_every_pinned_program_has_its_version_from_go_mod() -> None:
    pinned = required(read_go_mod())
    assert tools()["kubectl"].version == pinned["k8s.io/kubernetes"]
    assert {name for name, found in tools().items() if found.image is not None} == {
        "opa",
        "etcd",
        "kube-apiserver",
    }


def test_every_pinned_program_is_built_from_the_go_mod_that_pins_it() -> None:
    """A package that is no `tool` of its module goes with the next `go mod tidy`."""
    for found in tools().values():
        go_mod = read_go_mod(found.module)
        assert found.package in re.findall(r"^(?:tool\s+|\t)(\S+)$", go_mod, re.MULTILINE)
        assert found.version in required(go_mod).values()
    assert tools()["kube-score"].module == KUBE_SCORE_MODULE


def test_all_modules_are_built_with_one_release_of_go() -> None:
    """Only tools/go.mod is asked which Go is needed."""
    for module in (KUBE_SCORE_MODULE, ACTIONLINT_MODULE, HELM_MODULE):
        assert go_directive(read_go_mod(module)) == go_directive(read_go_mod())


def test_helm_shares_the_libraries_of_kubernetes_with_the_servers() -> None:
    """Or most of it would be compiled a second time."""
    kubernetes = required(read_go_mod())["k8s.io/kubernetes"].removeprefix("v1.")
    libraries = required(read_go_mod(HELM_MODULE))
    assert {libraries[f"k8s.io/{name}"] for name in ("api", "client-go", "kubectl")} == {
        f"v0.{kubernetes}"
    }


def test_image_tags_carry_the_version() -> None:
    for found in tools().values():
        assert found.image is None or found.number in found.image


@pytest.mark.parametrize(
    "said", ["Version: 1.22.0", "v1.22.0", "etcd Version: 1.22.0 Git SHA: none", "opa 1.22.0, ok"]
)
def test_same_version_is_recognised(said: str) -> None:
    assert tool("v1.22.0").is_version(said)


@pytest.mark.parametrize(
    "said", ["1.22.01", "1.22.0-rc.1", "11.22.0", "1.22.0+dirty", "1.22.0.1", "1x22y0", ""]
)
def test_other_version_is_not_taken_for_it(said: str) -> None:
    assert not tool("v1.22.0").is_version(said)
