from __future__ import annotations

from tools.observing.alerts import rendered

_RULES = """\
groups:
  - name: a
    rules:
      - {record: r, expr: up}
      - alert: Down
        for: 5m
        labels: {severity: critical}
        annotations:
          summary: "{{ $value | humanize }} of {{ $labels.job }} are down"
      - alert: Gone
        labels: {severity: warning}
        annotations: {summary: Nothing is there}
"""


def test_each_alert_has_a_row_and_no_template() -> None:
    rows = [line for line in rendered(_RULES).splitlines() if line.startswith("| [")]
    assert rows == [
        "| [Down](runbooks/Down.md) | critical | 5m | N of *job* are down |",
        "| [Gone](runbooks/Gone.md) | warning | at once | Nothing is there |",
    ]
