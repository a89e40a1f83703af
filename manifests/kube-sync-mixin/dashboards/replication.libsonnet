local layout = import 'layout.libsonnet';
local panel = layout.panel;
local row = layout.row;

{
  grafanaDashboards+:: {
    'kube-sync-replication.json': layout.dashboard($._config, 'kube-sync-replication', 'Replication', 'Is the data in OPA complete, and how old is it?', [
      row('Processes', [
        panel(
          'Ready',
          '1 while the process is ready; its page /readyz names the conditions that are not met.',
          { '{{job}} {{instance}}': 'kube_sync_ready{instance=~"$instance"}' },
          kind='stat'
        ),
        panel(
          'Leases',
          '1 for the process that holds the Lease (or works without one): only this process writes.',
          { '{{lease}} {{instance}}': 'kube_sync_lease_held{instance=~"$instance"}' }
        ),
        panel(
          'Configuration in force',
          '0 while the file is invalid or missing; the last valid configuration stays in force.',
          { '{{job}} {{instance}}': 'kube_sync_config_valid{instance=~"$instance"}' }
        ),
        panel(
          'Requests to API servers',
          'By method and status. 401 and 403: credentials or a role are wrong; 429: the API server is overloaded; none: there was no answer.',
          {
            '{{method}} {{status}}': 'sum by (method, status) (rate(kube_sync_api_requests_total{instance=~"$instance"}[$__rate_interval]))',
          },
          unit='reqps'
        ),
        panel(
          'Memory',
          'Resident memory of each process.',
          {
            '{{job}} {{instance}}': 'process_resident_memory_bytes and on (instance) kube_sync_build_info{instance=~"$instance"}',
          },
          unit='bytes'
        ),
        panel(
          'Processor time',
          'As a share of one core. A process uses one core: near 1 it cannot keep up.',
          {
            '{{job}} {{instance}}': 'rate(process_cpu_seconds_total[$__rate_interval]) and on (instance) kube_sync_build_info{instance=~"$instance"}',
          },
          unit='percentunit'
        ),
        panel(
          'Spans of traces',
          'By outcome; dropped: the queue was full, failed: the collector did not take them.',
          {
            '{{outcome}}': 'sum by (outcome) (increase(kube_sync_trace_spans_total{instance=~"$instance"}[$__rate_interval]))',
          }
        ),
      ]),
      row("Freshness of OPA's data", [
        panel(
          'Age of the oldest pending change',
          'Age of the oldest change that a watch reported and that is not in OPA yet. It should return to 0 all the time; if it keeps rising, no change reaches OPA.',
          { '{{resource}}': 'max by (resource) (kube_sync_pending_seconds{instance=~"$instance"})' },
          unit='s'
        ),
        panel(
          'Replication lag',
          "From a watch event to OPA's answer to the write that contains it: median and 99th percentile.",
          {
            '{{resource}} p50': 'histogram_quantile(0.5, sum by (le, resource) (rate(kube_sync_replication_lag_seconds_bucket{instance=~"$instance"}[$__rate_interval])))',
            '{{resource}} p99': 'histogram_quantile(0.99, sum by (le, resource) (rate(kube_sync_replication_lag_seconds_bucket{instance=~"$instance"}[$__rate_interval])))',
          },
          unit='s'
        ),
        panel(
          'Pending changes',
          'Objects whose last change is not in OPA yet.',
          { '{{resource}}': 'sum by (resource) (kube_sync_pending_changes{instance=~"$instance"})' }
        ),
      ]),
      row('Volume', [
        panel(
          'Watch events',
          'Received from API servers, by resource and type.',
          {
            '{{resource}} {{type}}': 'sum by (resource, type) (rate(kube_sync_reflector_events_total{instance=~"$instance"}[$__rate_interval]))',
          },
          unit='ops'
        ),
        panel(
          'LISTs',
          'By reason: start once for each process, expired if a watch was too old, missing while the kind is unknown. Every LIST except start is extra load for the API server.',
          {
            '{{resource}} {{reason}}': 'sum by (resource, reason) (increase(kube_sync_reflector_lists_total{instance=~"$instance"}[$__rate_interval]))',
          }
        ),
        panel(
          'Failed LISTs and WATCHes',
          'Each is retried with a growing delay; the log has the reason.',
          {
            '{{resource}}': 'sum by (resource) (increase(kube_sync_reflector_failures_total{instance=~"$instance"}[$__rate_interval]))',
          }
        ),
        panel(
          'Refused connections',
          'A port accepts 1,000 connections; further ones are closed at once.',
          { '{{port}}': 'sum by (port) (increase(kube_sync_connections_refused_total{instance=~"$instance"}[$__rate_interval]))' }
        ),
        panel(
          'Objects that cannot be read',
          'Malformed, or nested too deeply. Only the object itself is left out, and the log names it.',
          {
            '{{resource}} {{reason}}': 'sum by (resource, reason) (increase(kube_sync_objects_left_out_total{instance=~"$instance"}[$__rate_interval])) or vector(0)',
          }
        ),
        panel(
          'Bytes received and written',
          'Bytes received from the API server, and bytes written to OPA, without the fields that no policy reads.',
          {
            'received': 'sum(rate(kube_sync_reflector_bytes_total{instance=~"$instance"}[$__rate_interval]))',
            'written': 'sum(rate(kube_sync_replicated_bytes_total{instance=~"$instance"}[$__rate_interval]))',
          },
          unit='Bps'
        ),
        panel(
          'Events that changed nothing',
          'Watch events that change no replicated field, so that nothing was written.',
          {
            '{{resource}}': 'sum by (resource) (rate(kube_sync_unchanged_events_total{instance=~"$instance"}[$__rate_interval]))',
          },
          unit='ops'
        ),
        panel(
          'Objects in OPA',
          'If it is 0 for a resource that has objects, check whether the API server knows the resource.',
          { '{{resource}}': 'sum by (resource) (kube_sync_replicated_objects{instance=~"$instance"})' }
        ),
        panel(
          'Kinds that the API server knows',
          '0 if the API server does not know it: its CRD is missing, or another version is configured.',
          { '{{resource}}': 'min by (resource) (kube_sync_resource_known{instance=~"$instance"})' }
        ),
        panel(
          'Fields replicated of each object',
          'Paths that policies read; -1 while objects are replicated whole.',
          { '{{resource}}': 'max by (resource) (kube_sync_replicated_fields{instance=~"$instance"})' }
        ),
        panel(
          'Policies',
          'Modules that OPA holds, and policies that are not in force in their current version.',
          {
            'in force': 'max(kube_sync_policies_in_force{instance=~"$instance"})',
            'policies rejected': 'max(kube_sync_policies_rejected{instance=~"$instance"})',
            'quarantined': 'max(kube_sync_policies_quarantined{instance=~"$instance"})',
          }
        ),
        panel(
          'Modules sent',
          'By outcome; if a module is rejected, its older version stays in force.',
          {
            '{{outcome}}': 'sum by (outcome) (increase(kube_sync_policy_loads_total{instance=~"$instance"}[$__rate_interval]))',
            'trial {{outcome}}': 'sum by (outcome) (increase(kube_sync_policy_trials_total{instance=~"$instance"}[$__rate_interval]))',
          }
        ),
        panel(
          'Warnings on policies',
          'By code; and the calls of builtins that failed on a sample of the objects.',
          {
            '{{code}}': 'max by (code) (kube_sync_policy_warnings{instance=~"$instance"}) > 0 or vector(0)',
            '{{builtin}} failed': 'sum by (builtin) (increase(kube_sync_policy_builtin_errors_total{instance=~"$instance"}[$__rate_interval])) or vector(0)',
          }
        ),
        panel(
          'Staged policies',
          'Objects that staged policies decide differently from the policies in force, by effect, and whether a canary decides or was halted.',
          {
            'shadow {{effect}}': 'max by (effect) (kube_sync_shadow_differences{instance=~"$instance"})',
            'canary {{effect}}': 'max by (effect) (kube_sync_canary_differences{instance=~"$instance"})',
            'canary decides': 'max(kube_sync_canary_in_effect{instance=~"$instance"})',
            'canary halted': 'max(kube_sync_canary_halted{instance=~"$instance"})',
          }
        ),
      ]),
      row('OPA', [
        panel(
          'Time of a write',
          '99th percentile, by operation; a long query delays writes.',
          {
            '{{operation}}': 'histogram_quantile(0.99, sum by (le, operation) (rate(kube_sync_opa_write_seconds_bucket{instance=~"$instance"}[$__rate_interval])))',
          },
          unit='s'
        ),
        panel(
          'Operations in one write',
          'Median and 99th percentile; changes that arrive together are written together.',
          {
            'p50': 'histogram_quantile(0.5, sum by (le) (rate(kube_sync_opa_batch_operations_bucket{instance=~"$instance"}[$__rate_interval])))',
            'p99': 'histogram_quantile(0.99, sum by (le) (rate(kube_sync_opa_batch_operations_bucket{instance=~"$instance"}[$__rate_interval])))',
          }
        ),
        panel(
          'Full loads',
          'By reason, and how often OPA did not have the data that had been written.',
          {
            '{{reason}}': 'sum by (reason) (increase(kube_sync_opa_loads_total{instance=~"$instance"}[$__rate_interval]))',
            'OPA was empty': 'sum(increase(kube_sync_opa_restarts_total{instance=~"$instance"}[$__rate_interval]))',
            'answer lost': 'sum(increase(kube_sync_opa_answers_lost_total{instance=~"$instance"}[$__rate_interval]))',
          }
        ),
        panel(
          "Checks of OPA's data",
          'Objects that another writer changed in OPA, decisions that were also made on whole objects as a check, and how many of these differed. Only the second should rise.',
          {
            'changed by others': 'sum(increase(kube_sync_audit_differences_total{instance=~"$instance"}[$__rate_interval]))',
            'checked': 'sum(increase(kube_sync_selfcheck_decisions_total{instance=~"$instance"}[$__rate_interval]))',
            'different': 'sum(increase(kube_sync_selfcheck_differences_total{instance=~"$instance"}[$__rate_interval]))',
          }
        ),
        panel(
          'Requests answered by OPA',
          'As counted by OPA itself, by path and status.',
          { '{{handler}} {{code}}': 'sum by (handler, code) (rate(http_request_duration_seconds_count[$__rate_interval]))' },
          unit='reqps'
        ),
        panel(
          "OPA's own memory",
          'Heap of its Go runtime; data in OPA takes about twenty times the size of its JSON.',
          { '{{instance}}': 'go_memstats_heap_inuse_bytes and on (instance) opa_info' },
          unit='bytes'
        ),
      ]),
      row('Work queues', [
        panel(
          'Keys waiting',
          'In each queue. If it only grows, reconciles are too slow, or wait for something that is blocked.',
          { '{{name}}': 'sum by (name) (workqueue_depth and on (instance) kube_sync_build_info{instance=~"$instance"})' }
        ),
        panel(
          'Keys added',
          'Without keys that were waiting already, and keys that were added again after a failure.',
          {
            '{{name}}': 'sum by (name) (rate(workqueue_adds_total[$__rate_interval]) and on (instance) kube_sync_build_info{instance=~"$instance"})',
            '{{name}} again': 'sum by (name) (rate(workqueue_retries_total[$__rate_interval]) and on (instance) kube_sync_build_info{instance=~"$instance"})',
          },
          unit='ops'
        ),
        panel(
          'Time in the queue',
          '99th percentile of the time that a key waited.',
          {
            '{{name}}': 'histogram_quantile(0.99, sum by (name, le) (rate(workqueue_queue_duration_seconds_bucket[$__rate_interval]) and on (instance) kube_sync_build_info{instance=~"$instance"}))',
          },
          unit='s'
        ),
        panel(
          'Time of a reconcile',
          '99th percentile.',
          {
            '{{name}}': 'histogram_quantile(0.99, sum by (name, le) (rate(workqueue_work_duration_seconds_bucket[$__rate_interval]) and on (instance) kube_sync_build_info{instance=~"$instance"}))',
          },
          unit='s'
        ),
        panel(
          'In progress',
          'Time of the longest reconcile in progress, and the sum of all in progress.',
          {
            '{{name}}': 'max by (name) (workqueue_longest_running_processor_seconds and on (instance) kube_sync_build_info{instance=~"$instance"})',
            '{{name}} together': 'sum by (name) (workqueue_unfinished_work_seconds and on (instance) kube_sync_build_info{instance=~"$instance"})',
          },
          unit='s'
        ),
      ]),
    ]),
  },
}
