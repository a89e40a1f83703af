"""All metrics of the project, in one place, so that dashboards can be checked against it.

No object name, namespace of an object, or policy text is ever a label.
"""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

_LATENCY = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
# The buckets of client-go's workqueue histograms, without the nanoseconds.
_WORKQUEUE = (1e-6, 1e-5, 1e-4, 0.001, 0.01, 0.1, 1, 10, 100, 1000)

build_info = Gauge(
    "kube_sync_build_info",
    "Always 1; the labels are the version and the command that runs",
    ["version", "command"],
)
ready = Gauge("kube_sync_ready", "1 while the process is ready (/readyz), else 0")
api_requests = Counter(
    "kube_sync_api_requests_total",
    "Requests to API servers by method and status; status none: no answer was received",
    ["method", "status"],
)
reflector_lists = Counter(
    "kube_sync_reflector_lists_total",
    "LISTs of a collection, by the reason for them",
    ["resource", "reason"],
)
reflector_events = Counter(
    "kube_sync_reflector_events_total", "Watch events received", ["resource", "type"]
)
reflector_failures = Counter(
    "kube_sync_reflector_failures_total", "LISTs and WATCHes that failed", ["resource"]
)
objects_left_out = Counter(
    "kube_sync_objects_left_out_total",
    "Objects that were received and could not be read: malformed, or nested too deeply",
    ["resource", "reason"],
)
config_valid = Gauge(
    "kube_sync_config_valid",
    "1 while the configuration file is valid, 0 while it is invalid or missing",
)
resource_known = Gauge(
    "kube_sync_resource_known", "1 while the API server knows the resource, else 0", ["resource"]
)
reflector_bytes = Counter(
    "kube_sync_reflector_bytes_total",
    "Bytes of objects received from the API server, as JSON",
    ["resource"],
)
replication_lag_seconds = Histogram(
    "kube_sync_replication_lag_seconds",
    "Time from a watch event to OPA's answer to the write that contains it; of several events of"
    " one object, from the first that OPA does not hold yet",
    ["resource"],
    buckets=_LATENCY,
)
replicated_objects = Gauge("kube_sync_replicated_objects", "Objects that OPA holds", ["resource"])
replicated_bytes = Counter(
    "kube_sync_replicated_bytes_total",
    "Bytes of objects written to OPA, after projection",
    ["resource"],
)
replicated_fields = Gauge(
    "kube_sync_replicated_fields",
    "Paths that are replicated of each object, in addition to its names; -1 while objects are"
    " replicated whole",
    ["resource"],
)
unchanged_events = Counter(
    "kube_sync_unchanged_events_total",
    "Watch events that change no replicated field, so that nothing is written",
    ["resource"],
)
selfcheck_decisions = Counter(
    "kube_sync_selfcheck_decisions_total",
    "Decisions that were also made on whole objects, as a check",
    ["resource"],
)
selfcheck_differences = Counter(
    "kube_sync_selfcheck_differences_total",
    "Decisions on whole objects that differed from those on the replicated fields",
    ["resource"],
)
pending_changes = Gauge(
    "kube_sync_pending_changes", "Changes that are not written to OPA yet", ["resource"]
)
pending_seconds = Gauge(
    "kube_sync_pending_seconds",
    "Age in seconds of the oldest change that a watch reported and that is not written to OPA"
    " yet; 0: none",
    ["resource"],
)
opa_batch_operations = Histogram(
    "kube_sync_opa_batch_operations",
    "Operations in one PATCH",
    buckets=(1, 2, 5, 10, 20, 50, 100, 200),
)
opa_write_seconds = Histogram(
    "kube_sync_opa_write_seconds",
    "Time that OPA took for one write",
    ["operation"],
    buckets=_LATENCY,
)
opa_loads = Counter(
    "kube_sync_opa_loads_total", "Full loads of OPA, by the reason for them", ["reason"]
)
opa_restarts = Counter(
    "kube_sync_opa_restarts_total",
    "Times that OPA did not have the data that had been written: it was restarted, wiped or"
    " taken over",
)
opa_ends_unexplained = Counter(
    "kube_sync_opa_ends_unexplained_total",
    "Ends of OPA, from the third on, that no recent edit of a policy explains",
)
opa_answers_lost = Counter(
    "kube_sync_opa_answers_lost_total", "Batches that OPA applied although no answer was received"
)
audit_differences = Counter(
    "kube_sync_audit_differences_total",
    "Objects in OPA that differed from what was written, by collection",
    ["resource"],
)
policies_in_force = Gauge("kube_sync_policies_in_force", "Policy modules that OPA holds")
policies_rejected = Gauge(
    "kube_sync_policies_rejected",
    "Policies (ConfigMaps, PlacementPolicies) that are not in force in their current version",
)
policies_quarantined = Gauge(
    "kube_sync_policies_quarantined",
    "Policies whose current version is not tried again, because it ended OPA or the replicator",
)
policy_trials = Counter(
    "kube_sync_policy_trials_total",
    "Trials of policies on a sample of objects before OPA gets them, by outcome",
    ["outcome"],
)
policy_warnings = Gauge(
    "kube_sync_policy_warnings", "Warnings on policies in force, by code", ["code"]
)
policy_builtin_errors = Counter(
    "kube_sync_policy_builtin_errors_total",
    "Calls of builtins that failed while policies decided on a sample of objects, by builtin",
    ["builtin"],
)
policy_loads = Counter(
    "kube_sync_policy_loads_total", "Policy modules sent to OPA, by outcome", ["outcome"]
)
lease_held = Gauge(
    "kube_sync_lease_held",
    "1 while this process holds the Lease or works without one, else 0",
    ["lease"],
)
decision_evaluations = Counter(
    "kube_sync_decision_evaluations_total", "Decisions evaluated, by outcome", ["outcome"]
)
decision_evaluation_seconds = Histogram(
    "kube_sync_decision_evaluation_seconds",
    "Time that OPA took for one query, which contains a batch of evaluations",
    buckets=_LATENCY,
)
decision_classes = Gauge(
    "kube_sync_decision_classes",
    "Decision classes of objects, each evaluated once; an object whose class is unknown counts"
    " as one class",
    ["resource"],
)
decision_unshared = Gauge(
    "kube_sync_decision_unshared",
    "1 while every object has to be evaluated by itself, else 0",
    ["resource"],
)
shadow_differences = Gauge(
    "kube_sync_shadow_differences",
    "Objects whose decision by the shadow policies differs from the one in force, by its effect",
    ["effect"],
)
canary_differences = Gauge(
    "kube_sync_canary_differences",
    "Objects on the canary's side whose decision by the canary differs from the one in force, by"
    " its effect",
    ["effect"],
)
canary_in_effect = Gauge(
    "kube_sync_canary_in_effect", "1 while a canary decides on the objects of its side, else 0"
)
canary_halted = Gauge(
    "kube_sync_canary_halted",
    "1 while a canary is halted because it exceeded one of its limits, else 0",
)
decision_changes = Counter("kube_sync_decision_changes_total", "Decisions that changed")
decision_subscribers = Gauge("kube_sync_decision_subscribers", "Open decision streams")
budget_evaluations = Counter(
    "kube_sync_budget_evaluations_total",
    "Evaluations of data.kube_sync_budget, by outcome: told (it has a value), undefined or failed",
    ["outcome"],
)
budget_unusable = Gauge(
    "kube_sync_budget_unusable",
    "1 while data.kube_sync_budget is invalid and the last valid one is in force, else 0",
)
ledger_records = Counter(
    "kube_sync_ledger_records_total", "Records added to the ledger, by kind", ["kind"]
)
ledger_unwritable = Gauge(
    "kube_sync_ledger_unwritable", "1 while the file of the ledger cannot be written, else 0"
)
ledger_gaps = Counter(
    "kube_sync_ledger_gaps_total",
    "Gaps in the ledger: records were lost, or the file was started anew",
)
ledger_lost_records = Counter(
    "kube_sync_ledger_lost_records_total", "Records that are missing in the ledger"
)
ledger_summarised = Counter(
    "kube_sync_ledger_summarised_total",
    "Records that were replaced by summaries because their namespace exceeded its share, by kind",
    ["kind"],
)
ledger_bytes = Gauge("kube_sync_ledger_bytes", "Bytes in use in the ledger's file")
ledger_reports = Counter(
    "kube_sync_ledger_reports_total",
    "Reports of writes from the remediator to the ledger, by outcome",
    ["outcome"],
)
remediations = Counter(
    "kube_sync_remediations_total",
    "Reconciles of resources by the remediator, by outcome",
    ["outcome"],
)
admission_seconds = Histogram(
    "kube_sync_admission_seconds",
    "Time to answer an admission review, by outcome",
    ["outcome"],
    buckets=_LATENCY,
)
connections_refused = Counter(
    "kube_sync_connections_refused_total",
    "Connections that were closed at once because the port had too many open connections",
    ["port"],
)
certificate_expiry_timestamp_seconds = Gauge(
    "kube_sync_certificate_expiry_timestamp_seconds",
    "Expiry of the certificate that a server uses, in seconds since 1970",
    ["server"],
)
admission_engine_attempts = Counter(
    "kube_sync_admission_engine_attempts_total",
    "Requests to the policy engine, for a review or to check whether it answers, by outcome",
    ["outcome"],
)
admission_engine_down = Gauge(
    "kube_sync_admission_engine_down",
    "1 while the policy engine does not answer and reviews are denied at once, else 0",
)
admission_class_answers = Counter(
    "kube_sync_admission_class_answers_total",
    "Reviews by how the answers for their class were used: reused, asked (the class was not known,"
    " or something changed), elsewhere (OPA's answer is not of the replicator's data), unconfirmed"
    " or unshared (so OPA was asked), and compared with OPA's: agreed, differed",
    ["outcome"],
)
admission_registration_closed = Gauge(
    "kube_sync_admission_registration_closed",
    "1 while failurePolicy is Fail, so that the API server denies requests that admission does"
    " not answer, else 0; as last read by a process that maintains the registration",
)
admission_registration_kept = Gauge(
    "kube_sync_admission_registration_kept",
    "1 if the process maintains the registration for placement, else 0",
)
admission_registration_writes = Counter(
    "kube_sync_admission_registration_writes_total",
    "Writes of the webhook registration, by outcome",
    ["outcome"],
)
admission_events = Counter(
    "kube_sync_admission_events_total",
    "Events of denials, by outcome: created, counted (an existing Event was updated with the"
    " number of repeats), dropped_rate, dropped_queue, or the reason of a failure",
    ["outcome"],
)
admission_system_seconds = Histogram(
    "kube_sync_admission_system_seconds",
    "Time to answer an admission review for a built-in policy system",
    ["system", "outcome"],
    buckets=_LATENCY,
)
admission_system_down = Gauge(
    "kube_sync_admission_system_down",
    "1 while OPA does not answer for a built-in policy system, else 0",
    ["system"],
)
admission_system_closed = Gauge(
    "kube_sync_admission_system_closed",
    "Like kube_sync_admission_registration_closed, for a path of a built-in policy system",
    ["way"],
)

remediation_held = Gauge(
    "kube_sync_remediation_held",
    "Resources that are not as decided because they are held, by reason",
    ["reason"],
)
remediation_concurrency = Gauge(
    "kube_sync_remediation_concurrency",
    "Resources that the remediator may reconcile at once; with `concurrency: auto` it follows the"
    " latency of PATCHes, 429 and Retry-After",
)
remediation_additions = Counter(
    "kube_sync_remediation_additions_total",
    "Writes of moves with `add-first`: new clusters were added, the move ended, or new clusters"
    " where it was not healthy in time were reverted or kept",
    ["outcome"],
)
generator_answers = Counter(
    "kube_sync_generator_answers_total",
    "Requests of Argo CD's controller, by HTTP status; at any other than 200 it keeps all"
    " Applications",
    ["status"],
)
remediation_rivals = Counter(
    "kube_sync_remediation_rivals_total",
    "Resources whose writes were paused because another writer keeps reverting them",
)
remediation_events = Counter(
    "kube_sync_remediation_events_total",
    "Events of held resources, by outcome as in kube_sync_admission_events_total",
    ["outcome"],
)
replicator_events = Counter(
    "kube_sync_replicator_events_total",
    "Events of halted canaries and of refused versions of policies, by outcome as in"
    " kube_sync_admission_events_total",
    ["outcome"],
)
placement_decisions = Gauge(
    "kube_sync_placement_decisions",
    "PlacementDecisions of kube-sync in the API server, by sink of the configuration",
    ["sink"],
)
placement_decisions_held = Gauge(
    "kube_sync_placement_decisions_held",
    "Resources whose PlacementDecisions or nominations are not updated, by sink and reason",
    ["sink", "reason"],
)
placement_decision_writes = Counter(
    "kube_sync_placement_decision_writes_total",
    "Writes and deletions of PlacementDecisions, and nominations, by sink and outcome",
    ["sink", "outcome"],
)
policy_conditions = Counter(
    "kube_sync_policy_conditions_total",
    "Reconciles of the conditions of a policy, by kind and outcome",
    ["kind", "outcome"],
)
topology_reconciles = Counter(
    "kube_sync_topology_reconciles_total",
    "Reconciles of the topology, by outcome",
    ["outcome"],
)
topology_events = Counter(
    "kube_sync_topology_events_total",
    "Changed objects that a successful reconcile took into account; several changes of one"
    " object count once",
)
topology_reconcile_seconds = Histogram(
    "kube_sync_topology_reconcile_seconds",
    "Time of one reconcile of the topology",
    buckets=_LATENCY,
)
topology_writes = Counter(
    "kube_sync_topology_writes_total",
    "Writes of the topology controller, by operation (status, picture, paths) and outcome",
    ["operation", "outcome"],
)
policy_sync_wanted = Gauge(
    "kube_sync_policy_sync_wanted", "Copies of policies that are wanted on spokes"
)
policy_sync_placed = Gauge(
    "kube_sync_policy_sync_placed", "Copies of policies that exist on spokes"
)
policy_sync_held = Gauge(
    "kube_sync_policy_sync_held",
    "Copies of policies that are unwanted and whose removal the brakes hold",
)
policy_sync_writes = Counter(
    "kube_sync_policy_sync_writes_total",
    "Writes of policy sync, by operation (apply, leave (mark), remove, status, annotations,"
    " class) and outcome",
    ["operation", "outcome"],
)
policy_sync_events = Counter(
    "kube_sync_policy_sync_events_total",
    "Events of held removals and of refused kinds, by outcome as in"
    " kube_sync_admission_events_total",
    ["outcome"],
)
policy_sync_reconcile_seconds = Histogram(
    "kube_sync_policy_sync_reconcile_seconds",
    "Time to reconcile the copies and the status of one policy",
    buckets=_LATENCY,
)
policy_sync_waiting = Gauge(
    "kube_sync_policy_sync_waiting",
    "Policies that wait in the work queue, without those that are delayed",
)

# Named as in client-go and controller-runtime: dashboards and alerts for these exist.
workqueue_depth = Gauge(
    "workqueue_depth", "Current number of keys that wait in a work queue", ["name"]
)
workqueue_adds = Counter(
    "workqueue_adds_total", "Keys added to a work queue, without duplicates", ["name"]
)
workqueue_queue_duration_seconds = Histogram(
    "workqueue_queue_duration_seconds",
    "Time that a key waited in a work queue",
    ["name"],
    buckets=_WORKQUEUE,
)
workqueue_work_duration_seconds = Histogram(
    "workqueue_work_duration_seconds",
    "Time that one reconcile of a key took",
    ["name"],
    buckets=_WORKQUEUE,
)
workqueue_retries = Counter(
    "workqueue_retries_total", "Keys that were added again because their reconcile failed", ["name"]
)
workqueue_unfinished_work_seconds = Gauge(
    "workqueue_unfinished_work_seconds",
    "Sum of the times that the reconciles in progress have taken so far",
    ["name"],
)
workqueue_longest_running_processor_seconds = Gauge(
    "workqueue_longest_running_processor_seconds",
    "Time that the longest reconcile in progress has taken so far; 0: none",
    ["name"],
)
trace_spans = Counter(
    "kube_sync_trace_spans_total",
    "Spans by outcome: exported, failed (the collector did not take them), dropped (the queue was"
    " full), over_limit (their trace has 200 spans of this process already)",
    ["outcome"],
)

# Counters of faults exist from the start: `increase()` sees no rise in a series that
# begins with 1, and an alert would miss the first fault.
_AT_ZERO: dict[Counter, tuple[tuple[str, ...], ...]] = {
    policy_loads: (("loaded",), ("rejected",)),
    decision_evaluations: (("decided",), ("refused",), ("undefined",), ("failed",)),
    budget_evaluations: (("told",), ("undefined",), ("failed",)),
    remediations: (
        ("applied",),
        ("gone",),
        ("refused",),
        ("forbidden",),
        ("retried",),
        ("fenced",),
        ("held",),
        ("dry-run",),
    ),
    generator_answers: (("200",), ("400",), ("401",), ("404",), ("409",), ("503",)),
    remediation_additions: (("added",), ("ended",), ("reverted",), ("kept",)),
    ledger_records: (
        ("start",),
        ("decision",),
        ("gone",),
        ("policy",),
        ("held",),
        ("intent",),
        ("outcome",),
        ("gap",),
        ("summary",),
        ("checkpoint",),
    ),
    ledger_summarised: (("decision",), ("gone",), ("held",), ("intent",), ("outcome",)),
    ledger_reports: (("taken",), ("lost",), ("late",)),
    admission_engine_attempts: (("answered",),),
    admission_registration_writes: (("written",), ("conflict",), ("failed",)),
    placement_decision_writes: tuple(
        (sink, outcome)
        for sink in ("placement_decisions", "ocm_placement_decisions", "multikueue")
        for outcome in ("applied", "deleted", "refused", "fenced", "retried")
    ),
    trace_spans: (("exported",), ("failed",), ("dropped",), ("over_limit",)),
    topology_reconciles: (("ok",), ("failed",)),
    policy_sync_writes: tuple(
        (what, outcome)
        for what in ("apply", "leave", "remove", "status", "annotations", "class")
        for outcome in ("done", "gone", "conflict", "forbidden", "refused", "failed", "fenced")
    ),
    topology_writes: tuple(
        (what, outcome)
        for what in ("status", "picture", "paths")
        for outcome in ("written", "gone", "conflict", "forbidden", "refused", "failed", "fenced")
    ),
}


def _begin_at_zero() -> None:
    for counter, children in _AT_ZERO.items():
        for labels in children:
            counter.labels(*labels)


_begin_at_zero()
