local layout = import 'layout.libsonnet';
local panel = layout.panel;
local row = layout.row;

{
  grafanaDashboards+:: {
    'kube-sync-decisions.json': layout.dashboard($._config, 'kube-sync-decisions', 'Decisions and remediation', 'What is decided, and what becomes of it?', [
      row('Decisions', [
        panel(
          'Evaluations',
          'By outcome. Refused and undefined are answers of the policy; failed means that there was no answer.',
          {
            '{{outcome}}': 'sum by (outcome) (rate(kube_sync_decision_evaluations_total{instance=~"$instance"}[$__rate_interval]))',
          },
          unit='ops'
        ),
        panel(
          'Time of a query',
          'Of a query with a batch of evaluations: median and 99th percentile.',
          {
            'p50': 'histogram_quantile(0.5, sum by (le) (rate(kube_sync_decision_evaluation_seconds_bucket{instance=~"$instance"}[$__rate_interval])))',
            'p99': 'histogram_quantile(0.99, sum by (le) (rate(kube_sync_decision_evaluation_seconds_bucket{instance=~"$instance"}[$__rate_interval])))',
          },
          unit='s'
        ),
        panel(
          'Decisions that changed',
          'Each change makes the remediator reconcile one object.',
          { 'changes': 'sum(increase(kube_sync_decision_changes_total{instance=~"$instance"}[$__rate_interval]))' }
        ),
        panel(
          'Classes',
          'Objects of one class share one evaluation; many classes mean many evaluations.',
          {
            '{{resource}}': 'sum by (resource) (kube_sync_decision_classes{instance=~"$instance"})',
            '{{resource}} unshared': 'sum by (resource) (kube_sync_decision_unshared{instance=~"$instance"})',
          }
        ),
        panel(
          'Readers of decisions',
          'Open decision streams; without a reader no workload is moved.',
          { 'readers': 'sum(kube_sync_decision_subscribers{instance=~"$instance"})' },
          kind='stat'
        ),
        panel(
          'Limits of the policies',
          'Evaluations of data.kube_sync_budget, by outcome, and 1 while it is invalid.',
          {
            '{{outcome}}': 'sum by (outcome) (increase(kube_sync_budget_evaluations_total{instance=~"$instance"}[$__rate_interval]))',
            'unusable': 'max(kube_sync_budget_unusable{instance=~"$instance"})',
          }
        ),
      ]),
      row('Remediation', [
        panel(
          'Reconciled resources',
          'By outcome: applied was written, held waits, fenced is left to another process.',
          { '{{outcome}}': 'sum by (outcome) (rate(kube_sync_remediations_total{instance=~"$instance"}[$__rate_interval]))' },
          unit='ops'
        ),
        panel(
          'Held resources',
          'Resources that are not as decided because they are held, by reason. `kube-sync remediate status` lists them.',
          { '{{reason}}': 'sum by (reason) (kube_sync_remediation_held{instance=~"$instance"}) or vector(0)' }
        ),
        panel(
          'Concurrency',
          'Resources that the remediator may reconcile at once. It falls when the API server becomes slower or answers 429; a low number and a growing work queue mean that the API server is the limit.',
          { 'limit': 'max(kube_sync_remediation_concurrency{instance=~"$instance"})' }
        ),
        panel(
          'Moves that add first',
          'What was written for them: clusters were added, the move ended, or clusters that were not healthy in time were reverted or kept.',
          {
            '{{outcome}}': 'sum by (outcome) (increase(kube_sync_remediation_additions_total{instance=~"$instance"}[$__rate_interval])) or vector(0)',
          }
        ),
        panel(
          'Answers to Argo CD',
          'Requests of its ApplicationSet controller, by HTTP status; at any other than 200 it keeps all Applications, and shows why on the ApplicationSet.',
          {
            '{{status}}': 'sum by (status) (increase(kube_sync_generator_answers_total{instance=~"$instance"}[$__rate_interval])) or vector(0)',
          }
        ),
        panel(
          'Rivals',
          'Resources whose writes were paused because another writer keeps reverting them.',
          { 'rivals': 'sum(increase(kube_sync_remediation_rivals_total{instance=~"$instance"}[$__rate_interval]))' }
        ),
        panel(
          'Events',
          'Kubernetes Events by outcome; dropped means that there were too many at once.',
          {
            '{{outcome}}': 'sum by (outcome) (increase(kube_sync_remediation_events_total{instance=~"$instance"}[$__rate_interval])) or vector(0)',
            'canaries: {{outcome}}': 'sum by (outcome) (increase(kube_sync_replicator_events_total{instance=~"$instance"}[$__rate_interval])) or vector(0)',
          }
        ),
      ]),
      row('Ledger', [
        panel(
          'Records',
          'Records of decisions and writes, by kind.',
          { '{{kind}}': 'sum by (kind) (rate(kube_sync_ledger_records_total{instance=~"$instance"}[$__rate_interval]))' },
          unit='ops'
        ),
        panel(
          'Missing records',
          'Records that are missing in the ledger, gaps, records that were replaced by summaries because their namespace exceeded its share, and 1 while the file cannot be written.',
          {
            'records': 'sum(increase(kube_sync_ledger_lost_records_total{instance=~"$instance"}[$__rate_interval]))',
            'gaps': 'sum(increase(kube_sync_ledger_gaps_total{instance=~"$instance"}[$__rate_interval]))',
            'summarised': 'sum(increase(kube_sync_ledger_summarised_total{instance=~"$instance"}[$__rate_interval]))',
            'unwritable': 'max(kube_sync_ledger_unwritable{instance=~"$instance"})',
          }
        ),
        panel(
          'Size',
          'Bytes in use in the file; ledger.max_size limits them.',
          { 'bytes': 'max(kube_sync_ledger_bytes{instance=~"$instance"})' },
          unit='bytes'
        ),
        panel(
          'Reports of the remediator',
          'Reports of writes to the ledger; late means that the write did not wait for the report any longer.',
          {
            '{{outcome}}': 'sum by (outcome) (increase(kube_sync_ledger_reports_total{instance=~"$instance"}[$__rate_interval]))',
          }
        ),
      ]),
      row('Other sinks than annotations', [
        panel(
          'PlacementDecisions',
          'PlacementDecisions of kube-sync in the API server.',
          { 'objects': 'sum(kube_sync_placement_decisions{instance=~"$instance"})' }
        ),
        panel(
          'Not updated',
          'Resources whose PlacementDecisions or nominations are not updated.',
          {
            '{{sink}}: {{reason}}': 'sum by (sink, reason) (kube_sync_placement_decisions_held{instance=~"$instance"}) or vector(0)',
          }
        ),
        panel(
          'Writes',
          'By outcome; retried writes are repeated, fenced ones are left to another process.',
          {
            '{{sink}}: {{outcome}}': 'sum by (sink, outcome) (rate(kube_sync_placement_decision_writes_total{instance=~"$instance"}[$__rate_interval]))',
          },
          unit='ops'
        ),
      ]),
    ]),
  },
}
