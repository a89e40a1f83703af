local layout = import 'layout.libsonnet';
local panel = layout.panel;
local row = layout.row;

{
  grafanaDashboards+:: {
    'kube-sync-systems.json': layout.dashboard($._config, 'kube-sync-systems', 'Policy systems', 'What do the policy systems decide and write?', [
      row('Scheduling and metadata', [
        panel(
          'Reviews',
          'By system and outcome.',
          {
            '{{system}} {{outcome}}': 'sum by (system, outcome) (rate(kube_sync_admission_system_seconds_count{instance=~"$instance"}[$__rate_interval]))',
          },
          unit='reqps'
        ),
        panel(
          'Time to answer',
          '99th percentile, by system.',
          {
            '{{system}}': 'histogram_quantile(0.99, sum by (le, system) (rate(kube_sync_admission_system_seconds_bucket{instance=~"$instance"}[$__rate_interval])))',
          },
          unit='s'
        ),
        panel(
          'Down, and closed',
          'Whether OPA does not answer for a system, and whether the API server denies requests without an answer.',
          {
            '{{system}} down': 'max by (system) (kube_sync_admission_system_down{instance=~"$instance"})',
            '{{way}} closed': 'max by (way) (kube_sync_admission_system_closed{instance=~"$instance"})',
          }
        ),
        panel(
          'Conditions of policies',
          'Reconciles of conditions, by kind; unchanged conditions are not written.',
          {
            '{{kind}} {{outcome}}': 'sum by (kind, outcome) (increase(kube_sync_policy_conditions_total{instance=~"$instance"}[$__rate_interval]))',
          }
        ),
      ]),
      row('Topology', [
        panel(
          'Reconciles',
          'Of the topology, by outcome.',
          {
            '{{outcome}}': 'sum by (outcome) (increase(kube_sync_topology_reconciles_total{instance=~"$instance"}[$__rate_interval]))',
          }
        ),
        panel(
          'Time of a reconcile',
          'Median and 99th percentile.',
          {
            'p50': 'histogram_quantile(0.5, sum by (le) (rate(kube_sync_topology_reconcile_seconds_bucket{instance=~"$instance"}[$__rate_interval])))',
            'p99': 'histogram_quantile(0.99, sum by (le) (rate(kube_sync_topology_reconcile_seconds_bucket{instance=~"$instance"}[$__rate_interval])))',
          },
          unit='s'
        ),
        panel(
          'Changed objects',
          'Changed objects that a reconcile took into account; several changes of one object count once.',
          { 'objects': 'sum(increase(kube_sync_topology_events_total{instance=~"$instance"}[$__rate_interval]))' }
        ),
        panel(
          'Writes',
          'Of statuses and pictures, by outcome; there are none if nothing changes.',
          {
            '{{operation}} {{outcome}}': 'sum by (operation, outcome) (increase(kube_sync_topology_writes_total{instance=~"$instance"}[$__rate_interval]))',
          }
        ),
      ]),
      row('Policy sync', [
        panel(
          'Copies',
          'Copies that are wanted on spokes, that exist, and that are unwanted but held by the brakes.',
          {
            'wanted': 'max(kube_sync_policy_sync_wanted{instance=~"$instance"})',
            'placed': 'max(kube_sync_policy_sync_placed{instance=~"$instance"})',
            'held': 'max(kube_sync_policy_sync_held{instance=~"$instance"})',
          }
        ),
        panel(
          'Steps of policy sync',
          'By operation and outcome; there are none if nothing changes.',
          {
            '{{operation}} {{outcome}}': 'sum by (operation, outcome) (increase(kube_sync_policy_sync_writes_total{instance=~"$instance"}[$__rate_interval]))',
          }
        ),
        panel(
          'Time for one policy',
          'Time to reconcile the copies and the status of one policy: median and 99th percentile.',
          {
            'p50': 'histogram_quantile(0.5, sum by (le) (rate(kube_sync_policy_sync_reconcile_seconds_bucket{instance=~"$instance"}[$__rate_interval])))',
            'p99': 'histogram_quantile(0.99, sum by (le) (rate(kube_sync_policy_sync_reconcile_seconds_bucket{instance=~"$instance"}[$__rate_interval])))',
          },
          unit='s'
        ),
        panel(
          'Policies waiting',
          'In the work queue, without policies that are delayed after a failure.',
          { 'policies': 'max(kube_sync_policy_sync_waiting{instance=~"$instance"})' }
        ),
        panel(
          'Events of policy sync',
          'Events of held removals and of refused kinds, by outcome.',
          {
            '{{outcome}}': 'sum by (outcome) (increase(kube_sync_policy_sync_events_total{instance=~"$instance"}[$__rate_interval])) or vector(0)',
          }
        ),
      ]),
    ]),
  },
}
