"""Grafana dashboards as plain JSON: rows of panels, laid out from left to right.

Keeps true: the same panels give the same bytes, ids and places included; every panel asks the data
source that is chosen above it, and of every metric of ours only what the chosen processes say.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

_WIDTH, _HEIGHT = 24, 8  # of a dashboard, of a panel, in Grafana's units
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_METRIC = re.compile(r"\b(kube_sync_\w+)(\{)?")
_GROUPING = re.compile(r"\b(?:by|on|ignoring|without|group_left)\s*\([^)]*\)")
_CHOSEN = 'instance=~"$instance"'


@dataclass(frozen=True, slots=True)
class Panel:
    """One picture: what it shows, and for people who did not make it, how to read it.

    `queries` are pairs of an expression and the name of its lines; `unit` is Grafana's.
    """

    title: str
    description: str
    queries: tuple[tuple[str, str], ...]
    unit: str = "short"
    kind: str = "timeseries"  # or stat
    width: int = 8


@dataclass(frozen=True, slots=True)
class Row:
    """Panels that tell of one thing."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True)
class Dashboard:
    """Rows of panels under one address (`uid`), which is its file's name too."""

    uid: str
    title: str
    description: str
    rows: tuple[Row, ...]


def rendered(dashboard: Dashboard) -> str:
    """Return the dashboard as Grafana imports and provisions it."""
    return json.dumps(model(dashboard), indent=2, ensure_ascii=False) + "\n"


def model(dashboard: Dashboard) -> dict[str, Any]:
    """Return the dashboard in Grafana's JSON model, without what Grafana itself numbers."""
    return {
        "uid": dashboard.uid,
        "title": dashboard.title,
        "description": dashboard.description,
        "tags": ["kube-sync"],
        "schemaVersion": 39,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "timezone": "browser",
        "templating": {"list": [_data_source(), _instances()]},
        "annotations": {"list": []},
        "links": [_siblings()],
        "panels": list(_laid_out(dashboard.rows)),
    }


def selected(expression: str) -> str:
    """Return the expression with every metric of ours limited to the chosen processes."""
    grouped = [found.span() for found in _GROUPING.finditer(expression)]

    def limit(found: re.Match[str]) -> str:
        if any(begin <= found.start() < end for begin, end in grouped):
            return found[0]
        return f"{found[1]}{{{_CHOSEN}" + (", " if found[2] else "}")

    return _METRIC.sub(limit, expression)


def _laid_out(rows: Sequence[Row]) -> Iterator[dict[str, Any]]:
    identity = y = 0
    for row in rows:
        identity += 1
        place = {"h": 1, "w": _WIDTH, "x": 0, "y": y}
        yield {"id": identity, "type": "row", "title": row.title, "collapsed": False} | {
            "gridPos": place,
            "panels": [],
        }
        y, x = y + 1, 0
        for panel in row.panels:
            identity += 1
            if x + panel.width > _WIDTH:
                x, y = 0, y + _HEIGHT
            yield _panel(panel, identity, {"h": _HEIGHT, "w": panel.width, "x": x, "y": y})
            x += panel.width
        y += _HEIGHT


def _panel(panel: Panel, identity: int, place: dict[str, int]) -> dict[str, Any]:
    return {
        "id": identity,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": _SOURCE,
        "gridPos": place,
        "targets": list(_targets(panel)),
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": _OPTIONS[panel.kind],
    }


_OPTIONS: dict[str, dict[str, Any]] = {
    "timeseries": {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
        "tooltip": {"mode": "multi", "sort": "desc"},
    },
    "stat": {
        "colorMode": "none",
        "graphMode": "area",
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "textMode": "auto",
    },
}


def _targets(panel: Panel) -> Iterator[dict[str, Any]]:
    for reference, (expression, legend) in zip("ABCDEFGH", panel.queries, strict=False):
        yield {
            "refId": reference,
            "datasource": _SOURCE,
            "expr": selected(expression),
            "legendFormat": legend,
            "range": True,
        }


def _data_source() -> dict[str, Any]:
    return {
        "name": "datasource",
        "label": "Data source",
        "type": "datasource",
        "query": "prometheus",
        "current": {},
        "hide": 0,
    }


def _instances() -> dict[str, Any]:
    return {
        "name": "instance",
        "label": "Process",
        "type": "query",
        "datasource": _SOURCE,
        "query": {"query": "label_values(kube_sync_build_info, instance)", "refId": "instance"},
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "allValue": ".+",
        "current": {"text": "All", "value": "$__all"},
        "sort": 1,
        "hide": 0,
    }


def _siblings() -> dict[str, Any]:
    return {
        "title": "kube-sync",
        "type": "dashboards",
        "tags": ["kube-sync"],
        "asDropdown": True,
        "includeVars": True,
        "keepTime": True,
        "targetBlank": False,
    }
