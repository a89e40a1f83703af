"""The monitoring mixin (manifests/kube-sync-mixin) rendered, as Grafana and Prometheus read it.

Keeps true: the same sources give the same bytes, and every dashboard fits the schema beside this
file, which knows no field that Grafana would not.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml
from _jsonnet import evaluate_snippet
from jsonschema import Draft202012Validator

MIXIN: Final = Path(__file__).resolve().parents[2] / "manifests/kube-sync-mixin/mixin.libsonnet"
_SCHEMA: Final = Path(__file__).with_name("dashboard.schema.json")
_RENDERED: Final = """\
local mixin = (import '%s') + { _config+:: %s };
{
  dashboards: mixin.grafanaDashboards,
  groups: mixin.prometheusRules.groups + mixin.prometheusAlerts.groups,
}
"""
_ORDER: Final = ("name", "rules", "record", "alert", "expr", "for", "labels", "annotations")
_RULES_HEAD: Final = """\
# Recording and alerting rules of kube-sync, for `rule_files` of Prometheus. Written from
# manifests/kube-sync-mixin by `python -m tools.observing`; do not edit.
"""
_RULE_HEAD: Final = """\
# rules.yaml as the Prometheus operator reads it; written by `python -m tools.observing`.
"""


def evaluated(config: Mapping[str, object] | None = None) -> dict[str, Any]:
    """Return `dashboards` by file name and `groups` of rules, with this `_config` on top."""
    return json.loads(_evaluated(json.dumps(config or {})))  # type: ignore[no-any-return]


@cache
def _evaluated(config: str) -> str:
    text: str = evaluate_snippet("tools/observing", _RENDERED % (MIXIN, config))
    return text


def dashboards() -> dict[str, str]:
    """Return the text of every dashboard by its file name."""
    return {
        name: json.dumps(model, indent=2, ensure_ascii=False) + "\n"
        for name, model in evaluated()["dashboards"].items()
    }


def rules() -> str:
    """Return the rules as Prometheus reads them."""
    return _RULES_HEAD + _yaml({"groups": _groups()})


def prometheus_rule() -> str:
    """Return the rules as an object of the Prometheus operator."""
    return _RULE_HEAD + _yaml(
        {
            "apiVersion": "monitoring.coreos.com/v1",
            "kind": "PrometheusRule",
            "metadata": {"name": "kube-sync", "namespace": "kube-sync"},
            "spec": {"groups": _groups()},
        }
    )


def problems(models: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is wrong with dashboards by their file name, as the schema says it."""
    schema = Draft202012Validator(json.loads(_SCHEMA.read_text(encoding="utf-8")))
    for name, model in models.items():
        for error in schema.iter_errors(model):
            yield f"{name}: {error.json_path}: {error.message}"


def _groups() -> list[dict[str, Any]]:
    return [
        _ordered({**group, "rules": [_ordered(rule) for rule in group["rules"]]})
        for group in evaluated()["groups"]
    ]


def _ordered(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return the members in the order in which people write them."""
    return {key: value[key] for key in sorted(value, key=_ORDER.index)}


def _yaml(value: object) -> str:
    return yaml.safe_dump(value, sort_keys=False, width=10_000, allow_unicode=True)
