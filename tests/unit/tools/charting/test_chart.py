"""The chart as it is in the repository; what needs helm is in tests/integration/test_chart.py."""

from __future__ import annotations

import json
import re
from typing import Any

import yaml

from kube_sync import __version__
from kube_sync.config import keys
from kube_sync.config.explanation import ITEM
from tools.charting.building import folders_of
from tools.charting.chart import CHART, PAGES, ROOT
from tools.charting.comparing import INSTALLATIONS
from tools.charting.parts import NOT_IN_THE_CHART, PARTS
from tools.charting.valuelist import VALUES


def _yaml(name: str) -> Any:
    return yaml.safe_load((CHART / name).read_text(encoding="utf-8"))


def _schema_of(path: str) -> Any:
    found = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    for name in path.split("."):
        found = found["properties"][name]
    return found


def test_chart_has_the_version_of_the_program() -> None:
    chart = _yaml("Chart.yaml")
    assert (chart["version"], chart["appVersion"]) == (__version__, __version__)


def test_every_value_has_a_default_a_schema_and_a_row_on_both_pages() -> None:
    values = _yaml("values.yaml")
    for value in VALUES:
        section, _, name = value.path.rpartition(".")
        assert name in (_at(values, section) if section else values)
        assert _schema_of(value.path)["description"] == value.text
        for page in PAGES:
            assert f"\n| `{value.path}` |" in page.read_text(encoding="utf-8")


def test_schema_of_the_configuration_has_its_keys_and_no_others() -> None:
    for key in keys():
        if ITEM not in key.path:
            _schema_of(f"config.{key.path}")
    assert _schema_of("config.opa")["additionalProperties"] is False


def test_every_file_of_values_is_compared() -> None:
    files = {file.name.removesuffix("-values.yaml") for file in (CHART / "ci").iterdir()}
    assert files == INSTALLATIONS.keys()


def test_every_template_is_made_of_a_part() -> None:
    templates = {file.name for file in (CHART / "templates").glob("*.yaml")}
    assert templates == {f"{part.name}.yaml" for part in PARTS} | {"checks.yaml"}  # no objects


def test_every_folder_of_manifests_is_in_the_chart_or_said_not_to_be() -> None:
    builds = [build for part in PARTS for build in (part.build, *part.layers.values())]
    used = {
        folder
        for build in builds
        for folder in (*build.resources, *(f"components/{name}" for name in build.components))
    }
    assert folders_of(ROOT / "manifests") == used | NOT_IN_THE_CHART.keys()


def test_every_folder_that_the_page_offers_is_scored() -> None:
    """By `make check`, as what stands in no overlay is by nothing else."""
    page = (ROOT / "docs/install.md").read_text(encoding="utf-8")
    [listed] = re.findall(r"to be listed under `resources`: (.*?)[.]\s", page, re.DOTALL)
    folders = {f"manifests/{name}" for name in re.findall(r"`([a-z-]+)`", listed)}
    assert len(folders) > 10
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    [scored] = re.findall(r"^KUSTOMIZATIONS := (.*?[^\\])$", makefile, re.DOTALL | re.MULTILINE)
    assert folders - {*scored.split()} == set()


def test_everything_that_can_be_chosen_is_compared() -> None:
    """What no file of values enables would never be rendered."""
    chosen = [_yaml("values.yaml"), *(_yaml(f"ci/{name}-values.yaml") for name in INSTALLATIONS)]
    conditions = " ".join(
        f"{part.condition} {' '.join(part.layers)} {' '.join(part.own.values())}" for part in PARTS
    )
    switches = set(re.findall(r"[.]Values[.]([\w.]+[.]enabled)", conditions))
    assert len(switches) > 15
    for path in switches:
        assert any(_at(values, path) for values in chosen), path


def _at(values: Any, path: str) -> Any:
    for name in path.split("."):
        values = (values or {}).get(name)
    return values


def test_artifact_hub_is_told_of_every_kind_of_ours() -> None:
    """As its documentation wants the annotation; its own linter cannot be had as a Go module."""
    told = yaml.safe_load(_yaml("Chart.yaml")["annotations"]["artifacthub.io/crds"])
    files = sorted((ROOT / "manifests/crds").glob("*policies.yaml"))
    kinds = [yaml.safe_load(file.read_text(encoding="utf-8")) for file in files]
    assert {(one["kind"], one["name"], one["version"]) for one in told} == {
        (one["spec"]["names"]["kind"], one["metadata"]["name"], one["spec"]["versions"][0]["name"])
        for one in kinds
    }
    assert all({*one} >= {"displayName", "description"} for one in told)
