"""All metrics of the project, in one place, so that dashboards can be checked against it.

No object name, namespace of an object, or policy text is ever a label.
"""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

_LATENCY = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
# The buckets of client-go's workqueue histograms, without the nanoseconds.
_WORKQUEUE = (1e-6, 1e-5, 1e-4, 0.001, 0.01, 0.1, 1, 10, 100, 1000)

build_info = Gauge(
    "kube_sync_build_info", "1, of the version and the command that run", ["version", "command"]
)
ready = Gauge("kube_sync_ready", "1 while the process is ready as its page /readyz says, else 0")
api_requests = Counter(
    "kube_sync_api_requests_total",
    "Requests to API servers by status; none where no answer began",
    ["method", "status"],
)
reflector_lists = Counter(
    "kube_sync_reflector_lists_total",
    "LISTs of a collection, by why they were made",
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
    "Objects that could not be read, each time that they came: malformed, or nested too deeply",
    ["resource", "reason"],
)
config_valid = Gauge(
    "kube_sync_config_valid", "1 while the configuration file is in force as it is, else 0"
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
    "Time from the arrival of a watch event to OPA's answer to the write that holds it; of several"
    " events of one object from the first that OPA did not hold",
    ["resource"],
    buckets=_LATENCY,
)
replicated_objects = Gauge("kube_sync_replicated_objects", "Objects that OPA holds", ["resource"])
replicated_bytes = Counter(
    "kube_sync_replicated_bytes_total",
    "Bytes of objects that OPA took, after projection",
    ["resource"],
)
replicated_fields = Gauge(
    "kube_sync_replicated_fields",
    "Paths that are kept of each object, beside its names; -1 while objects are kept whole",
    ["resource"],
)
unchanged_events = Counter(
    "kube_sync_unchanged_events_total",
    "Changes of objects in nothing that is kept of them, so that nothing was written",
    ["resource"],
)
selfcheck_decisions = Counter(
    "kube_sync_selfcheck_decisions_total",
    "Decisions that were made over whole objects too, as a check",
    ["resource"],
)
selfcheck_differences = Counter(
    "kube_sync_selfcheck_differences_total",
    "Decisions over whole objects that were not those over what is replicated of them",
    ["resource"],
)
pending_changes = Gauge(
    "kube_sync_pending_changes", "Changes that OPA does not hold yet", ["resource"]
)
pending_seconds = Gauge(
    "kube_sync_pending_seconds",
    "Age in seconds of the oldest change that a watch told and OPA does not hold yet; 0: none",
    ["resource"],
)
opa_batch_operations = Histogram(
    "kube_sync_opa_batch_operations",
    "Operations in one PATCH",
    buckets=(1, 2, 5, 10, 20, 50, 100, 200),
)
opa_write_seconds = Histogram(
    "kube_sync_opa_write_seconds", "Time OPA took for one write", ["operation"], buckets=_LATENCY
)
opa_loads = Counter(
    "kube_sync_opa_loads_total", "Full loads of OPA, by what made them necessary", ["reason"]
)
opa_restarts = Counter(
    "kube_sync_opa_restarts_total",
    "OPAs that were found without what had been written: restarted, wiped or taken over",
)
opa_ends_unexplained = Counter(
    "kube_sync_opa_ends_unexplained_total",
    "Ends of OPA, from the third on, that no recent edit of a policy explains",
)
opa_answers_lost = Counter(
    "kube_sync_opa_answers_lost_total", "Batches that OPA took although its answer never came"
)
audit_differences = Counter(
    "kube_sync_audit_differences_total",
    "Objects that OPA no longer held as they were written, by collection",
    ["resource"],
)
policies_in_force = Gauge("kube_sync_policies_in_force", "Policy modules that OPA holds")
policies_rejected = Gauge(
    "kube_sync_policies_rejected",
    "Policies (ConfigMaps, PlacementPolicies) that are not in force as they are",
)
policies_quarantined = Gauge(
    "kube_sync_policies_quarantined",
    "Policies whose present version is not tried again: it ended OPA or the replicator",
)
policy_trials = Counter(
    "kube_sync_policy_trials_total",
    "Sets of policies that were to decide on a sample of objects before OPA got them, by outcome",
    ["outcome"],
)
policy_loads = Counter(
    "kube_sync_policy_loads_total", "Policy modules sent to OPA, by outcome", ["outcome"]
)
lease_held = Gauge(
    "kube_sync_lease_held", "Whether this process holds a Lease, or does without", ["lease"]
)
decision_evaluations = Counter(
    "kube_sync_decision_evaluations_total", "Decisions evaluated, by outcome", ["outcome"]
)
decision_evaluation_seconds = Histogram(
    "kube_sync_decision_evaluation_seconds",
    "Time OPA took for one query, of as many evaluations as fit",
    buckets=_LATENCY,
)
decision_classes = Gauge(
    "kube_sync_decision_classes",
    "Classes of objects that are decided on together; an object of unknown class is one of its own",
    ["resource"],
)
decision_unshared = Gauge(
    "kube_sync_decision_unshared",
    "1 while every object has to be decided on by itself, else 0",
    ["resource"],
)
shadow_differences = Gauge(
    "kube_sync_shadow_differences",
    "Objects that the policies of the stage shadow decide otherwise than what is in force, by what"
    " would become of them",
    ["effect"],
)
canary_differences = Gauge(
    "kube_sync_canary_differences",
    "Objects on the canary's side that it decides otherwise than what is in force, by what becomes"
    " of them, or would",
    ["effect"],
)
canary_in_effect = Gauge(
    "kube_sync_canary_in_effect", "1 while a canary decides on the objects of its side, else 0"
)
canary_halted = Gauge(
    "kube_sync_canary_halted",
    "1 while a canary decides nothing because it passed one of its limits, else 0",
)
decision_changes = Counter("kube_sync_decision_changes_total", "Decisions that changed")
decision_subscribers = Gauge("kube_sync_decision_subscribers", "Open decision streams")
budget_evaluations = Counter(
    "kube_sync_budget_evaluations_total",
    "Times that data.kube_sync_budget was asked for: told, undefined or failed",
    ["outcome"],
)
budget_unusable = Gauge(
    "kube_sync_budget_unusable",
    "1 while data.kube_sync_budget cannot be used, so that the last good one stands, else 0",
)
ledger_records = Counter(
    "kube_sync_ledger_records_total", "Records that were added to the ledger, by kind", ["kind"]
)
ledger_unwritable = Gauge(
    "kube_sync_ledger_unwritable", "1 while the file of the ledger cannot be written, else 0"
)
ledger_gaps = Counter(
    "kube_sync_ledger_gaps_total",
    "Times that something was not recorded, or the file had to be begun anew",
)
ledger_lost_records = Counter(
    "kube_sync_ledger_lost_records_total", "Records that the ledger does not have"
)
ledger_summarised = Counter(
    "kube_sync_ledger_summarised_total",
    "Records that are in summaries alone, since their namespace had more than its share, by kind",
    ["kind"],
)
ledger_bytes = Gauge("kube_sync_ledger_bytes", "Bytes of the ledger's file that are in use")
ledger_reports = Counter(
    "kube_sync_ledger_reports_total",
    "Writes that the remediator reported to the ledger, by what became of the report",
    ["outcome"],
)
remediations = Counter(
    "kube_sync_remediations_total", "Reconciled resources, by outcome", ["outcome"]
)
admission_seconds = Histogram(
    "kube_sync_admission_seconds", "Time to answer a review", ["outcome"], buckets=_LATENCY
)
connections_refused = Counter(
    "kube_sync_connections_refused_total",
    "Connections that were closed at once since so many were open at that port already",
    ["port"],
)
certificate_expiry_timestamp_seconds = Gauge(
    "kube_sync_certificate_expiry_timestamp_seconds",
    "When the certificate that a server uses expires, in seconds since 1970",
    ["server"],
)
admission_engine_attempts = Counter(
    "kube_sync_admission_engine_attempts_total",
    "Times that the policy engine was asked for a review, or to see whether it answers, by outcome",
    ["outcome"],
)
admission_engine_down = Gauge(
    "kube_sync_admission_engine_down",
    "1 while the policy engine is known to be down and reviews are denied at once, else 0",
)
admission_class_answers = Counter(
    "kube_sync_admission_class_answers_total",
    "Reviews by how the answers for their class were used: reused, asked (the class was not known),"
    " unconfirmed or unshared (so OPA was asked), and compared with OPA's: agreed, differed",
    ["outcome"],
)
admission_registration_closed = Gauge(
    "kube_sync_admission_registration_closed",
    "1 while the API server refuses what admission gives no answer to (failurePolicy Fail), else 0;"
    " as last seen, by a process that keeps the registration",
)
admission_registration_kept = Gauge(
    "kube_sync_admission_registration_kept",
    "1 where the process is told to keep the registration of placement, else 0",
)
admission_registration_writes = Counter(
    "kube_sync_admission_registration_writes_total",
    "Writes of the registration of admission, by outcome",
    ["outcome"],
)
admission_events = Counter(
    "kube_sync_admission_events_total",
    "Events of denials, by what became of them: created, counted (one that was there says again how"
    " often), dropped_rate, dropped_queue, or why one was given up",
    ["outcome"],
)
admission_system_seconds = Histogram(
    "kube_sync_admission_system_seconds",
    "Time to answer a review for a built-in policy system",
    ["system", "outcome"],
    buckets=_LATENCY,
)
admission_system_down = Gauge(
    "kube_sync_admission_system_down",
    "1 while OPA is known not to answer for a built-in policy system, else 0",
    ["system"],
)
admission_system_closed = Gauge(
    "kube_sync_admission_system_closed",
    "As kube_sync_admission_registration_closed, of a path of a built-in policy system",
    ["way"],
)

remediation_held = Gauge(
    "kube_sync_remediation_held",
    "Resources that are not as they were decided to be and wait, by what for",
    ["reason"],
)
remediation_rivals = Counter(
    "kube_sync_remediation_rivals_total",
    "Resources that were given up for a while since somebody else kept changing them back",
)
remediation_events = Counter(
    "kube_sync_remediation_events_total",
    "Events of what is held, by what became of them: as kube_sync_admission_events_total",
    ["outcome"],
)
replicator_events = Counter(
    "kube_sync_replicator_events_total",
    "Events of canaries that were halted and of versions of policies that are refused for what they"
    " did, by what became of them: as kube_sync_admission_events_total",
    ["outcome"],
)
placement_decisions = Gauge(
    "kube_sync_placement_decisions", "PlacementDecisions of ours that the API server holds"
)
placement_decisions_held = Gauge(
    "kube_sync_placement_decisions_held",
    "Resources whose PlacementDecisions are left as they are, by why",
    ["reason"],
)
placement_decision_writes = Counter(
    "kube_sync_placement_decision_writes_total",
    "PlacementDecisions that were written or deleted, or were to be, by outcome",
    ["outcome"],
)
policy_conditions = Counter(
    "kube_sync_policy_conditions_total",
    "Times that the conditions of a policy were looked at, by its kind and by outcome",
    ["kind", "outcome"],
)
topology_reconciles = Counter(
    "kube_sync_topology_reconciles_total",
    "Reconciles of the whole topology, by outcome",
    ["outcome"],
)
topology_events = Counter(
    "kube_sync_topology_events_total",
    "Objects that had changed when a reconcile succeeded with it, one for all changes of an object",
)
topology_reconcile_seconds = Histogram(
    "kube_sync_topology_reconcile_seconds",
    "Time that a reconcile of the whole topology took",
    buckets=_LATENCY,
)
topology_writes = Counter(
    "kube_sync_topology_writes_total",
    "Writes of what a topology says, by what was written (status, picture, paths) and by outcome",
    ["operation", "outcome"],
)
policy_sync_wanted = Gauge(
    "kube_sync_policy_sync_wanted", "Copies of policies that spokes are to have"
)
policy_sync_placed = Gauge("kube_sync_policy_sync_placed", "Copies of policies that spokes have")
policy_sync_held = Gauge(
    "kube_sync_policy_sync_held", "Copies of policies that are not wanted, and held by the brakes"
)
policy_sync_writes = Counter(
    "kube_sync_policy_sync_writes_total",
    "Steps of policy sync that write: apply, leave (mark), remove, status, annotations, class;"
    " by outcome",
    ["operation", "outcome"],
)
policy_sync_events = Counter(
    "kube_sync_policy_sync_events_total",
    "Events of removals that are held and of kinds that are refused, by what became of them: as"
    " kube_sync_admission_events_total",
    ["outcome"],
)
policy_sync_reconcile_seconds = Histogram(
    "kube_sync_policy_sync_reconcile_seconds",
    "Time that it took to bring the copies and the status of one policy up to date",
    buckets=_LATENCY,
)
policy_sync_waiting = Gauge(
    "kube_sync_policy_sync_waiting", "Policies that wait to be looked at, without those put off"
)

# Named as in client-go and controller-runtime: dashboards and alerts for these exist.
workqueue_depth = Gauge("workqueue_depth", "Keys that wait in a work queue", ["name"])
workqueue_adds = Counter(
    "workqueue_adds_total", "Keys that were added to a work queue, without repeats", ["name"]
)
workqueue_queue_duration_seconds = Histogram(
    "workqueue_queue_duration_seconds",
    "Time that a key waited in a work queue",
    ["name"],
    buckets=_WORKQUEUE,
)
workqueue_work_duration_seconds = Histogram(
    "workqueue_work_duration_seconds",
    "Time that one reconcile of a key of a work queue took",
    ["name"],
    buckets=_WORKQUEUE,
)
workqueue_retries = Counter(
    "workqueue_retries_total", "Keys that were added again since their reconcile failed", ["name"]
)
workqueue_unfinished_work_seconds = Gauge(
    "workqueue_unfinished_work_seconds",
    "Sum of the times for which the keys of a work queue that are in work have been",
    ["name"],
)
workqueue_longest_running_processor_seconds = Gauge(
    "workqueue_longest_running_processor_seconds",
    "Time for which the key of a work queue that has been in work longest has been; 0: none is",
    ["name"],
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
    placement_decision_writes: (
        ("applied",),
        ("deleted",),
        ("refused",),
        ("fenced",),
        ("retried",),
    ),
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
