"""The dashboards as Grafana reads them, and the files that are made of them."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tools.observing import __main__ as observing
from tools.observing import metricslist
from tools.observing.__main__ import DASHBOARDS, RULES, files, main
from tools.observing.grafana import Dashboard, Panel, Row, model, rendered, selected
from tools.servers.binaries import ensure_binary

ROOT = Path(__file__).resolve().parents[4]
MODELS = {dashboard.uid: model(dashboard) for dashboard in DASHBOARDS}
GRAPHS = [
    pytest.param(panel, id=f"{uid}: {panel['title']}")
    for uid, found in MODELS.items()
    for panel in found["panels"]
    if panel["type"] != "row"
]
OURS = {name for metric in metricslist.declared() for name in metricslist.names(metric)}
NAME = re.compile(r"\b(?:kube_sync|workqueue)_\w+")


def test_files_are_what_the_metrics_and_rules_make_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--check"]) == 0
    assert capsys.readouterr().err == ""


def test_file_that_is_out_of_date_is_named_and_written_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(observing, "ROOT", tmp_path)
    assert main(["--check"]) == 1
    assert "docs/metrics.md is out of date: python -m tools.observing" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
    assert main([]) == 0
    assert main(["--check"]) == 0
    (tmp_path / "docs/metrics.md").write_text("old", encoding="utf-8")
    assert main(["--check"]) == 1


def test_rules_of_the_operator_are_the_plain_ones() -> None:
    plain = yaml.safe_load(RULES.read_text(encoding="utf-8"))
    kind = yaml.safe_load(files()["manifests/prometheus/prometheusrule.yaml"])
    assert kind["spec"] == plain
    assert (kind["apiVersion"], kind["kind"]) == ("monitoring.coreos.com/v1", "PrometheusRule")


@pytest.mark.parametrize("panel", GRAPHS)
def test_panel_is_explained_and_asks_the_chosen_data_source(panel: dict[str, Any]) -> None:
    assert len(panel["description"]) > 15
    assert panel["targets"]
    for asked in (panel, *panel["targets"]):
        assert asked["datasource"]["uid"] == "${datasource}"


@pytest.mark.parametrize("panel", GRAPHS)
def test_panel_asks_for_metrics_that_there_are(panel: dict[str, Any]) -> None:
    asked = {name for target in panel["targets"] for name in NAME.findall(target["expr"])}
    assert asked <= OURS


@pytest.mark.parametrize("found", MODELS.values(), ids=MODELS)
def test_panels_have_places_and_numbers_of_their_own(found: dict[str, Any]) -> None:
    identities = [panel["id"] for panel in found["panels"]]
    assert len(identities) == len(set(identities))
    taken: set[tuple[int, int]] = set()
    for panel in found["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {
            (place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])
        }
        assert taken.isdisjoint(cells)
        taken |= cells


def test_every_dashboard_has_its_own_address_and_leads_to_the_others() -> None:
    assert len(MODELS) == len(DASHBOARDS)
    assert all(found["links"][0]["tags"] == found["tags"] for found in MODELS.values())


def test_every_metric_is_on_a_dashboard_or_in_a_rule() -> None:
    """What nobody looks at need not be counted."""
    text = RULES.read_text(encoding="utf-8") + "".join(map(rendered, DASHBOARDS))
    seen = set(NAME.findall(text))
    unseen = [m for m in metricslist.declared() if seen.isdisjoint(metricslist.names(m))]
    assert unseen == []


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("kube_sync_ready", 'kube_sync_ready{instance=~"$instance"}'),
        (
            'sum by (lease) (kube_sync_x{outcome="failed"}) / up',
            'sum by (lease) (kube_sync_x{instance=~"$instance", outcome="failed"}) / up',
        ),
        ("sum by (kube_sync_label) (up)", "sum by (kube_sync_label) (up)"),
    ],
)
def test_only_metrics_of_ours_are_limited_to_the_chosen_processes(
    expression: str, expected: str
) -> None:
    assert selected(expression) == expected


def test_panels_are_laid_out_from_left_to_right() -> None:
    panels = tuple(Panel(str(n), "x", (("up", "y"),), width=10) for n in range(3))
    found = model(Dashboard("u", "t", "d", (Row("r", panels), Row("s", panels[:1]))))["panels"]
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in found]
    assert places == [(0, 0), (0, 1), (10, 1), (0, 9), (0, 17), (0, 18)]


def test_the_same_dashboard_is_the_same_bytes() -> None:
    for dashboard in DASHBOARDS:
        assert rendered(dashboard) == rendered(dashboard)
        assert json.loads(rendered(dashboard)) == model(dashboard)


def test_kustomize_makes_objects_of_all_of_it() -> None:
    config_map = _built("dashboards")
    assert config_map["metadata"]["labels"] == {"grafana_dashboard": "1"}
    held = {name: json.loads(text) for name, text in config_map["data"].items()}
    assert held == {f"{uid}.json": found for uid, found in MODELS.items()}
    assert sum(map(len, config_map["data"].values())) < 900_000  # etcd takes no more than a MiB
    assert _built("prometheus") == yaml.safe_load(
        files()["manifests/prometheus/prometheusrule.yaml"]
    )


def _built(folder: str) -> Any:
    built = subprocess.run(
        [ensure_binary("kustomize"), "build", ROOT / "manifests" / folder],
        capture_output=True,
        text=True,
        check=True,
    )
    return yaml.safe_load(built.stdout)
