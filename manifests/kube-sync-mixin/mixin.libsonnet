// The dashboards, alerts and recording rules of kube-sync as a Prometheus monitoring mixin.
(import 'config.libsonnet') +
(import 'alerts.libsonnet') +
(import 'rules.libsonnet') +
(import 'dashboards/admission.libsonnet') +
(import 'dashboards/decisions.libsonnet') +
(import 'dashboards/replication.libsonnet') +
(import 'dashboards/systems.libsonnet')
