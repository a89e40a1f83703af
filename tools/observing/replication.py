"""The dashboard of replication: is OPA's picture of the cluster complete, and how old is it."""

from __future__ import annotations

from tools.observing.grafana import Dashboard, Panel, Row

_RATE = "[$__rate_interval]"

_PROCESSES = Row(
    "Processes",
    (
        Panel(
            "Ready",
            "1 while the process is ready; its page /readyz names the conditions that are not met.",
            (("kube_sync_ready", "{{job}} {{instance}}"),),
            kind="stat",
        ),
        Panel(
            "Leases",
            "1 for the process that holds the Lease (or works without one): only this process"
            " writes.",
            (("kube_sync_lease_held", "{{lease}} {{instance}}"),),
        ),
        Panel(
            "Configuration in force",
            "0 while the file is invalid or missing; the last valid configuration stays in force.",
            (("kube_sync_config_valid", "{{job}} {{instance}}"),),
        ),
        Panel(
            "Requests to API servers",
            "By method and status. 401 and 403: credentials or a role are wrong; 429: the API"
            " server is overloaded; none: there was no answer.",
            (
                (
                    f"sum by (method, status) (rate(kube_sync_api_requests_total{_RATE}))",
                    "{{method}} {{status}}",
                ),
            ),
            unit="reqps",
        ),
        Panel(
            "Memory",
            "Resident memory of each process.",
            (
                (
                    "process_resident_memory_bytes and on (instance) kube_sync_build_info",
                    "{{job}} {{instance}}",
                ),
            ),
            unit="bytes",
        ),
        Panel(
            "Processor time",
            "As a share of one core. A process uses one core: near 1 it cannot keep up.",
            (
                (
                    (
                        f"rate(process_cpu_seconds_total{_RATE}) and on (instance)"
                        f" kube_sync_build_info"
                    ),
                    "{{job}} {{instance}}",
                ),
            ),
            unit="percentunit",
        ),
        Panel(
            "Spans of traces",
            "By outcome; dropped: the queue was full, failed: the collector did not take them.",
            ((f"sum by (outcome) (increase(kube_sync_trace_spans_total{_RATE}))", "{{outcome}}"),),
        ),
    ),
)

_FRESHNESS = Row(
    "Freshness of OPA's data",
    (
        Panel(
            "Age of the oldest pending change",
            "Age of the oldest change that a watch reported and that is not in OPA yet. It should"
            " return to 0 all the time; if it keeps rising, no change reaches OPA.",
            (("max by (resource) (kube_sync_pending_seconds)", "{{resource}}"),),
            unit="s",
        ),
        Panel(
            "Replication lag",
            "From a watch event to OPA's answer to the write that contains it: median and 99th"
            " percentile.",
            tuple(
                (
                    (
                        f"histogram_quantile({q}, sum by (le, resource)"
                        f" (rate(kube_sync_replication_lag_seconds_bucket{_RATE})))"
                    ),
                    f"{{{{resource}}}} p{q * 100:.0f}",
                )
                for q in (0.5, 0.99)
            ),
            unit="s",
        ),
        Panel(
            "Pending changes",
            "Objects whose last change is not in OPA yet.",
            (("sum by (resource) (kube_sync_pending_changes)", "{{resource}}"),),
        ),
    ),
)

_VOLUME = Row(
    "Volume",
    (
        Panel(
            "Watch events",
            "Received from API servers, by resource and type.",
            (
                (
                    f"sum by (resource, type) (rate(kube_sync_reflector_events_total{_RATE}))",
                    "{{resource}} {{type}}",
                ),
            ),
            unit="ops",
        ),
        Panel(
            "LISTs",
            "By reason: start once for each process, expired if a watch was too old, missing"
            " while the kind is unknown. Every LIST except start is extra load for the API"
            " server.",
            (
                (
                    f"sum by (resource, reason) (increase(kube_sync_reflector_lists_total{_RATE}))",
                    "{{resource}} {{reason}}",
                ),
            ),
        ),
        Panel(
            "Failed LISTs and WATCHes",
            "Each is retried with a growing delay; the log has the reason.",
            (
                (
                    f"sum by (resource) (increase(kube_sync_reflector_failures_total{_RATE}))",
                    "{{resource}}",
                ),
            ),
        ),
        Panel(
            "Refused connections",
            "A port accepts 1,000 connections; further ones are closed at once.",
            (
                (
                    f"sum by (port) (increase(kube_sync_connections_refused_total{_RATE}))",
                    "{{port}}",
                ),
            ),
        ),
        Panel(
            "Objects that cannot be read",
            "Malformed, or nested too deeply. Only the object itself is left out, and the log"
            " names it.",
            (
                (
                    (
                        "sum by (resource, reason)"
                        f" (increase(kube_sync_objects_left_out_total{_RATE}))"
                        " or vector(0)"
                    ),
                    "{{resource}} {{reason}}",
                ),
            ),
        ),
        Panel(
            "Bytes received and written",
            "Bytes received from the API server, and bytes written to OPA, without the fields"
            " that no policy reads.",
            (
                (f"sum(rate(kube_sync_reflector_bytes_total{_RATE}))", "received"),
                (f"sum(rate(kube_sync_replicated_bytes_total{_RATE}))", "written"),
            ),
            unit="Bps",
        ),
        Panel(
            "Events that changed nothing",
            "Watch events that change no replicated field, so that nothing was written.",
            (
                (
                    f"sum by (resource) (rate(kube_sync_unchanged_events_total{_RATE}))",
                    "{{resource}}",
                ),
            ),
            unit="ops",
        ),
        Panel(
            "Objects in OPA",
            "If it is 0 for a resource that has objects, check whether the API server knows the"
            " resource.",
            (("sum by (resource) (kube_sync_replicated_objects)", "{{resource}}"),),
        ),
        Panel(
            "Kinds that the API server knows",
            "0 if the API server does not know it: its CRD is missing, or another version is"
            " configured.",
            (("min by (resource) (kube_sync_resource_known)", "{{resource}}"),),
        ),
        Panel(
            "Fields replicated of each object",
            "Paths that policies read; -1 while objects are replicated whole.",
            (("max by (resource) (kube_sync_replicated_fields)", "{{resource}}"),),
        ),
        Panel(
            "Policies",
            "Modules that OPA holds, and policies that are not in force in their current version.",
            (
                ("max(kube_sync_policies_in_force)", "in force"),
                ("max(kube_sync_policies_rejected)", "policies rejected"),
                ("max(kube_sync_policies_quarantined)", "quarantined"),
            ),
        ),
        Panel(
            "Modules sent",
            "By outcome; if a module is rejected, its older version stays in force.",
            (
                (
                    f"sum by (outcome) (increase(kube_sync_policy_loads_total{_RATE}))",
                    "{{outcome}}",
                ),
                (
                    f"sum by (outcome) (increase(kube_sync_policy_trials_total{_RATE}))",
                    "trial {{outcome}}",
                ),
            ),
        ),
        Panel(
            "Warnings on policies",
            "By code; and the calls of builtins that failed on a sample of the objects.",
            (
                ("max by (code) (kube_sync_policy_warnings) > 0 or vector(0)", "{{code}}"),
                (
                    (
                        "sum by (builtin)"
                        f" (increase(kube_sync_policy_builtin_errors_total{_RATE})) or vector(0)"
                    ),
                    "{{builtin}} failed",
                ),
            ),
        ),
        Panel(
            "Staged policies",
            "Objects that staged policies decide differently from the policies in force, by"
            " effect, and whether a canary decides or was halted.",
            (
                ("max by (effect) (kube_sync_shadow_differences)", "shadow {{effect}}"),
                ("max by (effect) (kube_sync_canary_differences)", "canary {{effect}}"),
                ("max(kube_sync_canary_in_effect)", "canary decides"),
                ("max(kube_sync_canary_halted)", "canary halted"),
            ),
        ),
    ),
)

_OPA = Row(
    "OPA",
    (
        Panel(
            "Time of a write",
            "99th percentile, by operation; a long query delays writes.",
            (
                (
                    (
                        "histogram_quantile(0.99, sum by (le, operation)"
                        f" (rate(kube_sync_opa_write_seconds_bucket{_RATE})))"
                    ),
                    "{{operation}}",
                ),
            ),
            unit="s",
        ),
        Panel(
            "Operations in one write",
            "Median and 99th percentile; changes that arrive together are written together.",
            tuple(
                (
                    (
                        f"histogram_quantile({q}, sum by (le)"
                        f" (rate(kube_sync_opa_batch_operations_bucket{_RATE})))"
                    ),
                    f"p{q * 100:.0f}",
                )
                for q in (0.5, 0.99)
            ),
        ),
        Panel(
            "Full loads",
            "By reason, and how often OPA did not have the data that had been written.",
            (
                (f"sum by (reason) (increase(kube_sync_opa_loads_total{_RATE}))", "{{reason}}"),
                (f"sum(increase(kube_sync_opa_restarts_total{_RATE}))", "OPA was empty"),
                (f"sum(increase(kube_sync_opa_answers_lost_total{_RATE}))", "answer lost"),
            ),
        ),
        Panel(
            "Checks of OPA's data",
            "Objects that another writer changed in OPA, decisions that were also made on whole"
            " objects as a check, and how many of these differed. Only the second should rise.",
            (
                (f"sum(increase(kube_sync_audit_differences_total{_RATE}))", "changed by others"),
                (f"sum(increase(kube_sync_selfcheck_decisions_total{_RATE}))", "checked"),
                (f"sum(increase(kube_sync_selfcheck_differences_total{_RATE}))", "different"),
            ),
        ),
        Panel(
            "Requests answered by OPA",
            "As counted by OPA itself, by path and status.",
            (
                (
                    f"sum by (handler, code) (rate(http_request_duration_seconds_count{_RATE}))",
                    "{{handler}} {{code}}",
                ),
            ),
            unit="reqps",
        ),
        Panel(
            "OPA's own memory",
            "Heap of its Go runtime; data in OPA takes about twenty times the size of its JSON.",
            (("go_memstats_heap_inuse_bytes and on (instance) opa_info", "{{instance}}"),),
            unit="bytes",
        ),
    ),
)

# Other controllers tell metrics of these names, too.
_OWN = "and on (instance) kube_sync_build_info"


def _slowest(metric: str) -> tuple[tuple[str, str], ...]:
    buckets = f"sum by (name, le) (rate({metric}_bucket{_RATE}) {_OWN})"
    return ((f"histogram_quantile(0.99, {buckets})", "{{name}}"),)


_QUEUES = Row(
    "Work queues",
    (
        Panel(
            "Keys waiting",
            "In each queue. If it only grows, reconciles are too slow, or wait for something that"
            " is blocked.",
            ((f"sum by (name) (workqueue_depth {_OWN})", "{{name}}"),),
        ),
        Panel(
            "Keys added",
            "Without keys that were waiting already, and keys that were added again after a"
            " failure.",
            (
                (f"sum by (name) (rate(workqueue_adds_total{_RATE}) {_OWN})", "{{name}}"),
                (f"sum by (name) (rate(workqueue_retries_total{_RATE}) {_OWN})", "{{name}} again"),
            ),
            unit="ops",
        ),
        Panel(
            "Time in the queue",
            "99th percentile of the time that a key waited.",
            _slowest("workqueue_queue_duration_seconds"),
            unit="s",
        ),
        Panel(
            "Time of a reconcile",
            "99th percentile.",
            _slowest("workqueue_work_duration_seconds"),
            unit="s",
        ),
        Panel(
            "In progress",
            "Time of the longest reconcile in progress, and the sum of all in progress.",
            (
                (
                    f"max by (name) (workqueue_longest_running_processor_seconds {_OWN})",
                    "{{name}}",
                ),
                (f"sum by (name) (workqueue_unfinished_work_seconds {_OWN})", "{{name}} together"),
            ),
            unit="s",
        ),
    ),
)

REPLICATION = Dashboard(
    "kube-sync-replication",
    "kube-sync / Replication",
    "Is the data in OPA complete, and how old is it?",
    (_PROCESSES, _FRESHNESS, _VOLUME, _OPA, _QUEUES),
)
