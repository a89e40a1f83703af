// Recording rules, of which alerts make use.
{
  prometheusRules+:: {
    groups+: [
      {
        name: 'kube-sync.recording',
        rules: [
          {
            record: 'kube_sync:replication_lag_seconds:p99_5m',
            expr: 'histogram_quantile(0.99, sum by (le, resource) (rate(kube_sync_replication_lag_seconds_bucket[5m])))',
          },
          {
            record: 'kube_sync:opa_write_seconds:p99_5m',
            expr: 'histogram_quantile(0.99, sum by (le, operation) (rate(kube_sync_opa_write_seconds_bucket[5m])))',
          },
          {
            record: 'kube_sync:decision_evaluations_failed:ratio_10m',
            expr: 'sum(increase(kube_sync_decision_evaluations_total{outcome="failed"}[10m])) / (sum(increase(kube_sync_decision_evaluations_total[10m])) > 0)',
          },
          {
            record: 'kube_sync:admission_seconds:p99_5m',
            expr: 'histogram_quantile(0.99, sum by (le) (rate(kube_sync_admission_seconds_bucket[5m])))',
          },
          {
            record: 'kube_sync:admission_undecidable:ratio_5m',
            expr: 'sum(increase(kube_sync_admission_seconds_count{outcome="undecidable"}[5m])) / (sum(increase(kube_sync_admission_seconds_count[5m])) > 0)',
          },
          {
            record: 'kube_sync:admission_system_seconds:p99_5m',
            expr: 'histogram_quantile(0.99, sum by (le, system) (rate(kube_sync_admission_system_seconds_bucket[5m])))',
          },
        ],
      },
    ],
  },
}
