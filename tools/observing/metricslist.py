"""docs/metrics.md, made of kube_sync/observability/metrics.py."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.metrics import MetricWrapperBase

from kube_sync.observability import metrics

_HEAD = """\
# Metrics
This page lists every metric of kube-sync and explains how Prometheus and Grafana get them. It is
written by `python -m tools.observing` from `kube_sync/observability/metrics.py`; do not edit.

Every service serves its metrics at `/metrics` (`observe.listen`), with those of the Python process
(`process_*`, `python_*`). No label holds the name of an object, a namespace or a policy. Error
counters start at 0. A process exposes metrics of work that it does not do as 0, or not at all.

## Prometheus and Grafana
- With the Prometheus operator: the component `prometheus-rules`; the dashboards as a ConfigMap for
  Grafana's sidecar: the component `grafana-dashboards` ([Install](install.md#components)). Alone:
  `kubectl apply --server-side -k manifests/prometheus`, and `manifests/dashboards`.
- Plain Prometheus: `rule_files: [manifests/prometheus/rules.yaml]`; import
  `manifests/dashboards/*.json` into Grafana.
- With jsonnet: the [mixin](#the-mixin), of which these files are made.
- With `make up`, Prometheus is at http://127.0.0.1:19090. Grafana beside it:
  `docker-compose --project-name kube-sync --profile grafana up -d grafana`, at
  http://127.0.0.1:13000.
- Without Grafana: the [page](board.md) at `/ui` shows placements, what is held, and health.

Names of scrape jobs have to begin with `kube-sync`, also that of OPA (the namespace of a PodMonitor
may precede it). OPA serves its own metrics only to the token of the role `metrics`, and those of
its bundles only where its configuration has `status: {prometheus: true}`;
`tools/compose/prometheus.yaml` is an example. All alerts are on the page [Alerts](alerts.md).

## The mixin
`manifests/kube-sync-mixin` is a Prometheus monitoring mixin in jsonnet: `grafanaDashboards`,
`prometheusAlerts`, `prometheusRules`, and what may be changed as `_config` (`config.libsonnet` says
what each is). With jsonnet-bundler and go-jsonnet, and this repository in place of
`github.com/OWNER/kube-sync`:

```sh
jb init
jb install github.com/OWNER/kube-sync/manifests/kube-sync-mixin@main
jsonnet -J vendor -c -m dashboards -e '
  ((import "kube-sync-mixin/mixin.libsonnet") + {
     _config+:: { instanceSelector: "cluster=\\"hub\\"", dashboardTags: ["fleet"] },
   }).grafanaDashboards'
jsonnet -J vendor -e '
  local mixin = (import "kube-sync-mixin/mixin.libsonnet") + {
    _config+:: { runbookURL: "https://wiki.example.com/%s", alertLabels: { team: "fleet" } },
  };
  { groups: mixin.prometheusRules.groups + mixin.prometheusAlerts.groups }
' > rules.yaml   # JSON, which is YAML
```

The committed files are the mixin with its own `_config`, rendered by `python -m tools.observing`.
`make check` renders them again and compares, checks the dashboards by a JSON schema, and the rules
with promtool.

## All metrics

| metric | type | labels | meaning |
|---|---|---|---|
"""


def declared() -> Iterator[MetricWrapperBase]:
    """Yield every metric of the project in the order of its declaration."""
    yield from (found for found in vars(metrics).values() if isinstance(found, MetricWrapperBase))


def names(metric: MetricWrapperBase) -> tuple[str, ...]:
    """Return the names of the series that a scrape finds of it, the first as people call it."""
    (told,) = metric.describe()
    match told.type:
        case "counter":
            return (f"{told.name}_total",)
        case "histogram":
            return (told.name, *(f"{told.name}_{part}" for part in ("bucket", "count", "sum")))
        case _:
            return (told.name,)


def rendered() -> str:
    """Return the page."""
    return _HEAD + "".join(f"{_row(metric)}\n" for metric in declared())


def _row(metric: MetricWrapperBase) -> str:
    (told,) = metric.describe()
    labels = ", ".join(f"`{label}`" for label in metric._labelnames)  # noqa: SLF001 - told nowhere
    tells = told.documentation.replace("|", "\\|")
    return f"| `{names(metric)[0]}` | {told.type} | {labels} | {tells} |"
