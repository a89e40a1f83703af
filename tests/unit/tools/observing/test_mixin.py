"""The mixin: dashboards as Grafana reads them, rules, and the files that are made of both."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from _jsonnet import evaluate_snippet

from tools.observing import __main__ as observing
from tools.observing import metricslist, mixin
from tools.observing.__main__ import RULES, files, main
from tools.observing.mixin import MIXIN, dashboards, evaluated, problems
from tools.servers.binaries import ensure_binary

ROOT = Path(__file__).resolve().parents[4]
MODELS: dict[str, Any] = evaluated()["dashboards"]
GRAPHS = [
    pytest.param(panel, id=f"{name}: {panel['title']}")
    for name, found in MODELS.items()
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
def test_panel_asks_for_metrics_that_there_are(panel: dict[str, Any]) -> None:
    asked = {name for target in panel["targets"] for name in NAME.findall(target["expr"])}
    assert asked <= OURS


@pytest.mark.parametrize("panel", GRAPHS)
def test_panel_asks_the_chosen_processes_only(panel: dict[str, Any]) -> None:
    for expression in (target["expr"] for target in panel["targets"]):
        ungrouped = re.sub(r"\b(?:by|on)\s*\([^)]*\)", "", expression)
        metrics = re.findall(r"\bkube_sync_\w+", ungrouped)
        assert ungrouped.count('{instance=~"$instance"') == len(metrics)


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
    assert {f"{found['uid']}.json" for found in MODELS.values()} == MODELS.keys()
    assert all(found["links"][0]["tags"] == found["tags"] for found in MODELS.values())


def test_every_metric_is_on_a_dashboard_or_in_a_rule() -> None:
    """What nobody looks at need not be counted."""
    text = RULES.read_text(encoding="utf-8") + "".join(dashboards().values())
    seen = set(NAME.findall(text))
    unseen = [m for m in metricslist.declared() if seen.isdisjoint(metricslist.names(m))]
    assert unseen == []


def test_panels_are_laid_out_from_left_to_right_in_their_row() -> None:
    first, second, *_ = (
        n for n, p in enumerate(MODELS["kube-sync-admission.json"]["panels"]) if p["type"] == "row"
    )
    panels = MODELS["kube-sync-admission.json"]["panels"]
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels]
    assert places[first : first + 5] == [(0, 0), (0, 1), (8, 1), (16, 1), (0, 9)]
    assert places[second] == (0, 1 + 8 * -(-(second - first - 1) // 3))


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("panels", 1, "targest"), [], "('targest' was unexpected)"),
        (("panels", 1, "description"), "short", "'short' is too short"),
        (("panels", 1, "datasource", "uid"), "mine", "'${datasource}' was expected"),
        (("panels", 1, "fieldConfig", "defaults", "unit"), "seconds", "'seconds' is not one of"),
        (("panels", 1, "targets"), [], "$.panels[1].targets: [] should be non-empty"),
        (("time", "from"), "yesterday", "'yesterday' does not match"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_grafana_would_not_understand_does_not_fit_the_schema(
    path: tuple[Any, ...], value: object, said: str
) -> None:
    assert list(problems(MODELS)) == []
    model = json.loads(dashboards()["kube-sync-systems.json"])
    within = model
    for key in path[:-1]:
        within = within[key]
    within[path[-1]] = value
    (problem,) = problems({"a.json": model})
    assert problem.startswith("a.json: $.")
    assert said in problem


def test_dashboard_that_does_not_fit_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(observing, "ROOT", tmp_path)
    monkeypatch.setattr(mixin, "problems", lambda _models: ["a.json: $.x: wrong"])
    assert main([]) == 1
    assert capsys.readouterr().err == "a.json: $.x: wrong\n"
    assert list(tmp_path.iterdir()) == []


CHANGES: dict[str, object] = {
    "jobSelector": 'job="a"',
    "instanceSelector": 'cluster="hub"',
    "alertLabels": {"team": "fleet"},
    "runbookURL": "https://wiki.example.com/%s",
    "replicationStalledSeconds": 61.5,
    "replicationSlowSeconds": 62.5,
    "admissionSlowSeconds": 63.5,
    "decisionsFailingRatio": 0.0645,
    "admissionUndecidableRatio": 0.0655,
    "certificateExpiresDays": 66,
    "dashboardTitlePrefix": "fleet: ",
    "dashboardTags": ["fleet", "opa"],
    "dashboardRefresh": "67s",
    "dashboardFrom": "now-68h",
    "dashboardTimezone": "Europe/Oslo",
}


def test_every_key_of_the_configuration_is_tried() -> None:
    own = json.loads(evaluate_snippet("x", f"(import '{MIXIN}') + {{ c: self._config }}"))["c"]
    assert own.keys() == CHANGES.keys()


def test_what_is_configured_is_rendered_and_fits_the_schema() -> None:
    changed = evaluated(CHANGES)
    before, after = json.dumps(evaluated()), json.dumps(changed)
    for key, value in CHANGES.items():
        said = value if isinstance(value, str) else json.dumps(value).strip("{}")
        said = said.replace("%s", "KubeSyncDown").replace('"a"', '\\"a\\"')
        said = said.replace('"hub"', '\\"hub\\"')
        assert said in after, key
        assert said not in before, key
    assert list(problems(changed["dashboards"])) == []


def test_the_page_shows_how_the_mixin_is_rendered(tmp_path: Path) -> None:
    """As jsonnet-bundler installs it: a folder of its name below vendor."""
    (tmp_path / "kube-sync-mixin").symlink_to(MIXIN.parent)
    page = (ROOT / "docs/metrics.md").read_text(encoding="utf-8")
    snippets = re.findall(r"^jsonnet .*? -e '\n(.*?)'", page, re.MULTILINE | re.DOTALL)
    boards, rules = (
        json.loads(evaluate_snippet("page", snippet, jpathdir=[str(tmp_path)]))
        for snippet in snippets
    )
    assert boards.keys() == MODELS.keys()
    assert all(found["tags"] == ["fleet"] for found in boards.values())
    groups = rules["groups"]
    alerts = [rule for group in groups for rule in group["rules"] if "alert" in rule]
    assert {alert["labels"]["team"] for alert in alerts} == {"fleet"}
    assert len(groups) == len(evaluated()["groups"])


def test_kustomize_makes_objects_of_all_of_it() -> None:
    config_map = _built("dashboards")
    assert config_map["metadata"]["labels"] == {"grafana_dashboard": "1"}
    held = {name: json.loads(text) for name, text in config_map["data"].items()}
    assert held == MODELS
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
