"""The dashboard of replication: is OPA's picture of the cluster complete, and how old is it."""

from __future__ import annotations

from tools.observing.grafana import Dashboard, Panel, Row

_RATE = "[$__rate_interval]"

_PROCESSES = Row(
    "Processes",
    (
        Panel(
            "Ready",
            "1 while the process is ready as its page /readyz says; that page names what is"
            " missing.",
            (("kube_sync_ready", "{{job}} {{instance}}"),),
            kind="stat",
        ),
        Panel(
            "Leases",
            "1 for whoever holds the Lease (or does without): only that process writes.",
            (("kube_sync_lease_held", "{{lease}} {{instance}}"),),
        ),
        Panel(
            "Configuration in force",
            "0 while the file was changed to something that cannot be used; the last good one"
            " stands.",
            (("kube_sync_config_valid", "{{job}} {{instance}}"),),
        ),
        Panel(
            "Requests to API servers",
            "By status. 401 and 403 mean credentials or a role, 429 that the API server sheds load,"
            " none that no answer came.",
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
            "Of one core. A process is single-threaded: near 1 it cannot keep up.",
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
    ),
)

_FRESHNESS = Row(
    "How fresh OPA's data is",
    (
        Panel(
            "Age of the oldest change that waits",
            "How long the oldest change that a watch told has not been in OPA. It should return"
            " to 0"
            " all the time; a line that climbs means that nothing gets through.",
            (("max by (resource) (kube_sync_pending_seconds)", "{{resource}}"),),
            unit="s",
        ),
        Panel(
            "Replication lag",
            "From the arrival of a watch event to OPA's answer to the write that holds it: half of"
            " all, and the slowest of a hundred.",
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
            "Changes that wait",
            "Objects whose last change OPA does not hold yet.",
            (("sum by (resource) (kube_sync_pending_changes)", "{{resource}}"),),
        ),
    ),
)

_VOLUME = Row(
    "What comes and what goes",
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
            "By why: start once for each process, expired when a watch came too late, missing while"
            " the kind is not known. Anything else than a start is work for the API server.",
            (
                (
                    f"sum by (resource, reason) (increase(kube_sync_reflector_lists_total{_RATE}))",
                    "{{resource}} {{reason}}",
                ),
            ),
        ),
        Panel(
            "Failed LISTs and WATCHes",
            "Each is tried again with a growing delay; the log says why.",
            (
                (
                    f"sum by (resource) (increase(kube_sync_reflector_failures_total{_RATE}))",
                    "{{resource}}",
                ),
            ),
        ),
        Panel(
            "Connections that were refused",
            "A port holds 1,000; one more is closed at once.",
            (
                (
                    f"sum by (port) (increase(kube_sync_connections_refused_total{_RATE}))",
                    "{{port}}",
                ),
            ),
        ),
        Panel(
            "Objects that cannot be read",
            "Malformed, or nested too deeply; each is left out by itself, and the log names it.",
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
            "What comes from the API server, and what of it goes to OPA after the fields that no"
            " policy reads are left out.",
            (
                (f"sum(rate(kube_sync_reflector_bytes_total{_RATE}))", "received"),
                (f"sum(rate(kube_sync_replicated_bytes_total{_RATE}))", "written"),
            ),
            unit="Bps",
        ),
        Panel(
            "Events that changed nothing",
            "Changes in nothing that is kept, so that nothing was written.",
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
            "0 of a resource that should have some: see whether the API server knows it.",
            (("sum by (resource) (kube_sync_replicated_objects)", "{{resource}}"),),
        ),
        Panel(
            "Kinds that the API server knows",
            "0 where it does not: its CRD is missing, or another version is asked for.",
            (("min by (resource) (kube_sync_resource_known)", "{{resource}}"),),
        ),
        Panel(
            "Fields kept of each object",
            "Paths that policies read; -1 while objects are kept whole.",
            (("max by (resource) (kube_sync_replicated_fields)", "{{resource}}"),),
        ),
        Panel(
            "Policies",
            "Modules that OPA holds, and policies that are not in force as they are.",
            (
                ("max(kube_sync_policies_in_force)", "in force"),
                ("max(kube_sync_policies_rejected)", "policies rejected"),
                ("max(kube_sync_policies_quarantined)", "quarantined"),
            ),
        ),
        Panel(
            "Modules sent",
            "By outcome; a rejected one leaves its older version in force.",
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
                ("max by (code) (kube_sync_policy_warnings) > 0", "{{code}}"),
                (
                    f"sum by (builtin) (increase(kube_sync_policy_builtin_errors_total{_RATE}))",
                    "{{builtin}} failed",
                ),
            ),
        ),
        Panel(
            "Staged policies",
            "What they decide otherwise than what is in force, by what would become of an object;"
            " and whether a canary decides, or was halted.",
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
            "The slowest of a hundred, by operation; a long query holds writes up.",
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
            "Half of all, and the largest of a hundred: changes that come together go together.",
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
            "By what made them necessary, and OPAs found without what had been written.",
            (
                (f"sum by (reason) (increase(kube_sync_opa_loads_total{_RATE}))", "{{reason}}"),
                (f"sum(increase(kube_sync_opa_restarts_total{_RATE}))", "OPA was empty"),
                (f"sum(increase(kube_sync_opa_answers_lost_total{_RATE}))", "answer lost"),
            ),
        ),
        Panel(
            "Checks of what OPA holds",
            "Objects that somebody else changed in OPA, decisions made over whole objects as a"
            " check, and how many of those were different. Only the second should move.",
            (
                (f"sum(increase(kube_sync_audit_differences_total{_RATE}))", "changed by others"),
                (f"sum(increase(kube_sync_selfcheck_decisions_total{_RATE}))", "checked"),
                (f"sum(increase(kube_sync_selfcheck_differences_total{_RATE}))", "different"),
            ),
        ),
        Panel(
            "Requests that OPA answered",
            "As OPA counts them itself, by path and status.",
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
            "What its Go runtime holds; data in OPA takes about twenty times its JSON.",
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
            "Keys that wait",
            "In each queue. One that only grows is reconciled too slowly, or waits for what stands"
            " still.",
            ((f"sum by (name) (workqueue_depth {_OWN})", "{{name}}"),),
        ),
        Panel(
            "Keys added",
            "Without those that waited already, and those that were tried again after a failure.",
            (
                (f"sum by (name) (rate(workqueue_adds_total{_RATE}) {_OWN})", "{{name}}"),
                (f"sum by (name) (rate(workqueue_retries_total{_RATE}) {_OWN})", "{{name}} again"),
            ),
            unit="ops",
        ),
        Panel(
            "Time in the queue",
            "That 99 of 100 keys waited at most.",
            _slowest("workqueue_queue_duration_seconds"),
            unit="s",
        ),
        Panel(
            "Time of a reconcile",
            "That 99 of 100 reconciles took at most.",
            _slowest("workqueue_work_duration_seconds"),
            unit="s",
        ),
        Panel(
            "In work",
            "For how long the reconcile has run that has run longest, and all that run together.",
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
    "Is OPA's picture of the cluster complete, and how old is it?",
    (_PROCESSES, _FRESHNESS, _VOLUME, _OPA, _QUEUES),
)
