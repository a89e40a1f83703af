"""docs/alerts.md: every alert of the mixin."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import yaml

_HEAD: Final = """\
# Alerts
This page lists every alert of `manifests/prometheus/rules.yaml` with a link to its runbook. It is
written from `manifests/kube-sync-mixin` by `python -m tools.observing`; do not edit. How to load
the rules is on the page about [metrics](metrics.md#prometheus-and-grafana).

Words in *italics* are labels of the alert; N is its value. Each alert has a test in
`manifests/prometheus/rules_test.yaml`.

| alert | severity | after | meaning |
|---|---|---|---|
"""


def rendered(rules: str) -> str:
    """Return the page about the alerts in the text of a file of rules."""
    alerts = (rule for group in yaml.safe_load(rules)["groups"] for rule in group["rules"])
    return _HEAD + "".join(_rows(rule for rule in alerts if "alert" in rule))


def _rows(alerts: Iterator[Mapping[str, Any]]) -> Iterator[str]:
    for alert in alerts:
        name, summary = alert["alert"], _plain(alert["annotations"]["summary"])
        link = f"[{name}](runbooks/{name}.md)"
        after = alert.get("for", "at once")
        yield f"| {link} | {alert['labels']['severity']} | {after} | {summary} |\n"


def _plain(template: str) -> str:
    """Return a template of Prometheus with names in the places of what is filled in."""
    text = re.sub(r"\{\{ \$labels\.(\w+) \}\}", r"*\1*", template)
    return re.sub(r"\{\{ \$value.*?\}\}", "N", text)
