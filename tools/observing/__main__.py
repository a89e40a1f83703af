"""Write what is made of the metrics, or with `--check` say what is out of date.

The PrometheusRule has the very groups of `manifests/prometheus/rules.yaml`, which people edit.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tools.observing import alerts, metricslist
from tools.observing.admission import ADMISSION
from tools.observing.decisions import DECISIONS
from tools.observing.grafana import rendered
from tools.observing.replication import REPLICATION
from tools.observing.systems import SYSTEMS

ROOT = Path(__file__).resolve().parents[2]
DASHBOARDS = (REPLICATION, DECISIONS, ADMISSION, SYSTEMS)
RULES = ROOT / "manifests/prometheus/rules.yaml"
_RULE_KIND = """\
# rules.yaml as the Prometheus operator reads it; written by `python -m tools.observing`.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: kube-sync
  namespace: kube-sync
spec:
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the files, or only compare them; the exit status is 1 where one is out of date."""
    parser = argparse.ArgumentParser("tools.observing", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing")
    check: bool = parser.parse_args(arguments).check
    stale = [path for path, text in files().items() if _read(path) != text]
    for path in stale:
        if check:
            print(f"{path} is out of date: python -m tools.observing", file=sys.stderr)
        else:
            (ROOT / path).parent.mkdir(parents=True, exist_ok=True)
            (ROOT / path).write_text(files()[path], encoding="utf-8")
    return int(check and bool(stale))


def files() -> Mapping[str, str]:
    """Return the text of every file that is made, by its path below the repository."""
    dashboards = {f"manifests/dashboards/{d.uid}.json": rendered(d) for d in DASHBOARDS}
    return {
        **dashboards,
        "manifests/prometheus/prometheusrule.yaml": prometheus_rule(),
        "docs/metrics.md": metricslist.rendered(),
        "docs/alerts.md": alerts.rendered(RULES.read_text(encoding="utf-8")),
    }


def prometheus_rule() -> str:
    """Return the PrometheusRule, with comments and all."""
    text = RULES.read_text(encoding="utf-8")
    groups = text[text.index("groups:") :]
    return _RULE_KIND + "".join(f"  {line}\n" if line else "\n" for line in groups.splitlines())


def _read(path: str) -> str | None:
    try:
        return (ROOT / path).read_text(encoding="utf-8")
    except FileNotFoundError:
        return None


if __name__ == "__main__":
    sys.exit(main())
