// Alerts; each has a page in docs/runbooks and a test of its name in ../prometheus/rules_test.yaml.
//
// Targets are expected to have a job whose name begins with kube-sync (that of the OPA beside the
// replicator too) or, as a PodMonitor names it, with a namespace, a slash and kube-sync. Nothing
// else is required of labels: each process reports what it is (kube_sync_build_info).
{
  local alert(name, severity, after, expr, summary, description) =
    {
      alert: name,
      expr: expr,
      labels: { severity: severity } + $._config.alertLabels,
      annotations: {
        summary: summary,
        description: description,
        runbook_url: $._config.runbookURL % name,
      },
    } + (if after == null then {} else { 'for': after }),

  prometheusAlerts+:: {
    groups+: [
      {
        name: 'kube-sync.processes',
        rules: [
          alert(
            'KubeSyncDown',
            'critical',
            '5m',
            'up{%(jobSelector)s} == 0' % $._config,
            '{{ $labels.job }} {{ $labels.instance }} cannot be scraped',
            'The process is down, hangs, or refuses Prometheus (OPA answers 401 to a wrong token).'
          ),
          alert(
            'KubeSyncAbsent',
            'critical',
            '10m',
            'absent(kube_sync_build_info)',
            'Prometheus scrapes no process of kube-sync',
            'Without metrics, none of the other alerts can fire.'
          ),
          alert(
            'KubeSyncNotReady',
            'warning',
            '10m',
            'kube_sync_ready == 0',
            '{{ $labels.job }} {{ $labels.instance }} is not ready',
            'The page /readyz of the process names the condition that is not met.'
          ),
          alert(
            'KubeSyncConfigInvalid',
            'warning',
            '5m',
            'kube_sync_config_valid == 0',
            'The configuration file of {{ $labels.job }} {{ $labels.instance }} is invalid',
            'The last valid configuration stays in force until the process restarts.'
          ),
          alert(
            'KubeSyncNoLeaseHolder',
            'critical',
            '5m',
            'max by (namespace, lease) (kube_sync_lease_held) == 0',
            'No process holds the Lease {{ $labels.lease }}',
            'No process does the work of the holder of this Lease.'
          ),
          alert(
            'KubeSyncCertificateExpires',
            'warning',
            '10m',
            'kube_sync_certificate_expiry_timestamp_seconds - time() < %(certificateExpiresDays)d * 86400' % $._config,
            'The certificate {{ $labels.server }} of {{ $labels.instance }} expires soon',
            'It expires in {{ $value | humanizeDuration }}.'
          ),
          alert(
            'KubeSyncApiForbidden',
            'warning',
            '10m',
            'sum by (job, status) (increase(kube_sync_api_requests_total{status=~"401|403"}[10m])) > 5',
            'The API server answers requests of {{ $labels.job }} with {{ $labels.status }}',
            'A permission is missing (403), or the credentials are not accepted (401).'
          ),
        ],
      },
      {
        name: 'kube-sync.replication',
        rules: [
          alert(
            'KubeSyncReplicationStalled',
            'critical',
            '2m',
            'kube_sync_pending_seconds > %(replicationStalledSeconds)g' % $._config,
            'Changes of {{ $labels.resource }} are not written to OPA',
            'The oldest is {{ $value | humanizeDuration }} old. Decisions are made on old data.'
          ),
          alert(
            'KubeSyncReplicationSlow',
            'warning',
            '15m',
            'kube_sync:replication_lag_seconds:p99_5m > %(replicationSlowSeconds)g' % $._config,
            'Changes of {{ $labels.resource }} reach OPA late',
            'One change in a hundred takes {{ $value | humanizeDuration }} or more.'
          ),
          alert(
            'KubeSyncWatchFailing',
            'warning',
            '10m',
            'sum by (job, resource) (increase(kube_sync_reflector_failures_total[10m])) > 5',
            '{{ $labels.resource }} cannot be listed or watched',
            'There were {{ $value | humanize }} failures in ten minutes. OPA keeps the last state.'
          ),
          alert(
            'KubeSyncResourceUnknown',
            'warning',
            '10m',
            'kube_sync_resource_known == 0',
            'The API server does not know {{ $labels.resource }}',
            'OPA has no object of this resource. No workload is moved because of that.'
          ),
          alert(
            'KubeSyncOpaRestarts',
            'warning',
            null,
            'sum by (namespace) (increase(kube_sync_opa_restarts_total[30m])) > 2',
            'OPA repeatedly lost the data that was written to it',
            'It was empty or taken over {{ $value | humanize }} times in half an hour.'
          ),
          alert(
            'KubeSyncForeignWrites',
            'warning',
            null,
            'sum by (resource) (increase(kube_sync_audit_differences_total[1h])) > 0',
            'Another program changes {{ $labels.resource }} in OPA',
            'The data was written again. Decisions before that were made on wrong data.'
          ),
          alert(
            'KubeSyncSelfcheckDiffers',
            'critical',
            null,
            'sum by (resource) (increase(kube_sync_selfcheck_differences_total[6h])) > 0',
            'A decision on {{ $labels.resource }} depends on a field that is not replicated',
            'The resource is replicated whole since then. This is a fault of the policy analysis.'
          ),
          alert(
            'KubeSyncPolicyRejected',
            'warning',
            '10m',
            'kube_sync_policies_rejected > 0',
            '{{ $value }} policies are not in force in their current version',
            'An older version is in force, or none. The status of the policy has the reason.'
          ),
          alert(
            'KubeSyncPolicyQuarantined',
            'critical',
            '1m',
            'max by (namespace) (kube_sync_policies_quarantined) > 0',
            '{{ $value }} policies are quarantined',
            'OPA or the replicator ended because of a version. The last good version is in force.'
          ),
          alert(
            'KubeSyncOpaEndsUnexplained',
            'critical',
            null,
            'sum by (namespace) (increase(kube_sync_opa_ends_unexplained_total[1h])) > 0',
            'OPA keeps ending, and no recent edit of a policy explains it',
            'Versions that were quarantined for it are tried again. Check memory and older policies.'
          ),
          alert(
            'KubeSyncCanaryHalted',
            'warning',
            '1m',
            'max by (namespace) (kube_sync_canary_halted) > 0',
            'A canary exceeded one of its limits and was halted',
            "The policies in force decide on all objects again. The canary's status names the limit."
          ),
        ],
      },
      {
        name: 'kube-sync.decisions',
        rules: [
          alert(
            'KubeSyncDecisionsFailing',
            'critical',
            '10m',
            'kube_sync:decision_evaluations_failed:ratio_10m > %(decisionsFailingRatio)g' % $._config,
            '{{ $value | humanizePercentage }} of the decisions cannot be evaluated',
            'The objects of these decisions stay as they are.'
          ),
          alert(
            'KubeSyncNoDecisionReader',
            'critical',
            '10m',
            'sum by (namespace) (kube_sync_decision_subscribers and on (instance) kube_sync_build_info{command="replicate"}) == 0',
            'No client reads the decision stream',
            'No remediator is connected, so no workload is moved.'
          ),
          alert(
            'KubeSyncBudgetUnusable',
            'warning',
            '10m',
            'kube_sync_budget_unusable == 1',
            'The limits that policies set cannot be used',
            'data.kube_sync_budget is not valid. The last valid limits are in force.'
          ),
          alert(
            'KubeSyncLedgerIncomplete',
            'warning',
            '1m',
            '(max by (job, instance) (kube_sync_ledger_unwritable) == 1) or (max by (job, instance) (increase(kube_sync_ledger_gaps_total[15m])) > 0) or (max by (job, instance) (increase(kube_sync_ledger_reports_total{outcome="lost"}[15m])) > 0)',
            'The ledger does not record all decisions and writes',
            'Its file could not be written, or not fast enough. Decisions continue.'
          ),
          alert(
            'KubeSyncRemediationFailing',
            'warning',
            '15m',
            'sum(increase(kube_sync_remediations_total{outcome=~"refused|forbidden|retried"}[15m])) > 10',
            'Writes of the remediator fail',
            'There were {{ $value | humanize }} failed writes in a quarter of an hour.'
          ),
          alert(
            'KubeSyncRemediationHeld',
            'warning',
            '1h',
            'sum by (reason) (kube_sync_remediation_held{reason!~"dry-run|adding"}) > 0',
            '{{ $value }} resources have been held for an hour ({{ $labels.reason }})',
            'They are not placed as decided.'
          ),
          alert(
            'KubeSyncRivals',
            'warning',
            null,
            'increase(kube_sync_remediation_rivals_total[1h]) > 0',
            'Another writer keeps reverting placements',
            'The remediator pauses its writes to these resources, for up to ten minutes at a time.'
          ),
          alert(
            'KubeSyncPlacementDecisionsHeld',
            'warning',
            '1h',
            'sum by (reason) (kube_sync_placement_decisions_held) > 0',
            'PlacementDecisions of {{ $value }} resources are not updated ({{ $labels.reason }})',
            'Their readers follow an older decision.'
          ),
        ],
      },
      {
        name: 'kube-sync.admission',
        rules: [
          alert(
            'KubeSyncAdmissionEngineDown',
            'critical',
            '1m',
            'kube_sync_admission_engine_down == 1',
            'The policy engine of {{ $labels.instance }} does not answer',
            'Every review is denied at once until it answers.'
          ),
          alert(
            'KubeSyncAdmissionUndecidable',
            'critical',
            '5m',
            'kube_sync:admission_undecidable:ratio_5m > %(admissionUndecidableRatio)g' % $._config,
            '{{ $value | humanizePercentage }} of the reviews are denied without a decision',
            'Objects that the webhook reviews cannot be created or changed.'
          ),
          alert(
            'KubeSyncAdmissionSlow',
            'warning',
            '10m',
            'kube_sync:admission_seconds:p99_5m > %(admissionSlowSeconds)g' % $._config,
            'Admission reviews are slow',
            'One review in a hundred takes {{ $value | humanizeDuration }} or more.'
          ),
          alert(
            'KubeSyncAdmissionOpen',
            'critical',
            '10m',
            'max(kube_sync_admission_registration_closed and on (instance) kube_sync_admission_registration_kept == 1) == 0 and max(kube_sync_policies_in_force) > 0',
            'Policies are in force, but the API server admits objects without an answer of the webhook',
            'The registration is missing, was changed, or cannot be written.'
          ),
          alert(
            'KubeSyncRegistrationFailing',
            'warning',
            '5m',
            'increase(kube_sync_admission_registration_writes_total{outcome="failed"}[15m]) > 1',
            'The registration of the webhook cannot be written',
            'It keeps an old caBundle or an old failurePolicy.'
          ),
          alert(
            'KubeSyncSystemDown',
            'critical',
            '1m',
            'kube_sync_admission_system_down == 1',
            'OPA does not answer for the built-in system {{ $labels.system }}',
            'Objects that the system reviews are denied, or admitted if it has no policies.'
          ),
        ],
      },
      {
        name: 'kube-sync.systems',
        rules: [
          alert(
            'KubeSyncPolicyConditionsFailing',
            'warning',
            '15m',
            'sum by (kind) (increase(kube_sync_policy_conditions_total{outcome="failed"}[15m])) > 3',
            'Conditions of {{ $labels.kind }} cannot be written',
            'The statuses may be out of date. Decisions do not depend on them.'
          ),
          alert(
            'KubeSyncTopologyFailing',
            'warning',
            '10m',
            'sum(increase(kube_sync_topology_reconciles_total{outcome="failed"}[10m])) > 2',
            'The topology cannot be reconciled',
            'Its statuses and pictures stay as they are.'
          ),
          alert(
            'KubeSyncTopologyWritesFailing',
            'warning',
            '15m',
            'sum by (operation) (increase(kube_sync_topology_writes_total{outcome=~"forbidden|refused|failed"}[15m])) > 3',
            'The topology controller cannot write {{ $labels.operation }}',
            'The API server refuses the writes, or does not answer.'
          ),
          alert(
            'KubeSyncPolicySyncBehind',
            'warning',
            '30m',
            '(kube_sync_policy_sync_wanted > kube_sync_policy_sync_placed) and on (instance) kube_sync_lease_held{lease="kube-sync-policy-sync"} == 1',
            'Spokes lack copies of policies',
            '{{ $value }} copies are wanted.'
          ),
          alert(
            'KubeSyncPolicySyncHeld',
            'warning',
            '1h',
            'kube_sync_policy_sync_held > 0 and on (instance) kube_sync_lease_held{lease="kube-sync-policy-sync"} == 1',
            '{{ $value }} removals of copies of policies are held',
            'The brakes keep the unwanted copies on the spokes until a person approves.'
          ),
          alert(
            'KubeSyncPolicySyncFailing',
            'warning',
            '15m',
            'sum by (operation) (increase(kube_sync_policy_sync_writes_total{outcome=~"forbidden|refused|failed"}[15m])) > 3',
            'Policy sync operations fail ({{ $labels.operation }})',
            'The hub or a spoke refuses them, or does not answer.'
          ),
        ],
      },
    ],
  },
}
