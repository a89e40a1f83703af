"""The dashboard of decisions and remediation: what is decided, and what becomes of it."""

from __future__ import annotations

from tools.observing.grafana import Dashboard, Panel, Row

_RATE = "[$__rate_interval]"

_DECIDING = Row(
    "Decisions",
    (
        Panel(
            "Evaluations",
            "By outcome. Refused and undefined are answers of the policy; failed means that there"
            " was no answer.",
            (
                (
                    f"sum by (outcome) (rate(kube_sync_decision_evaluations_total{_RATE}))",
                    "{{outcome}}",
                ),
            ),
            unit="ops",
        ),
        Panel(
            "Time of a query",
            "Of a query with a batch of evaluations: median and 99th percentile.",
            tuple(
                (
                    (
                        f"histogram_quantile({q}, sum by (le)"
                        f" (rate(kube_sync_decision_evaluation_seconds_bucket{_RATE})))"
                    ),
                    f"p{q * 100:.0f}",
                )
                for q in (0.5, 0.99)
            ),
            unit="s",
        ),
        Panel(
            "Decisions that changed",
            "Each change makes the remediator reconcile one object.",
            ((f"sum(increase(kube_sync_decision_changes_total{_RATE}))", "changes"),),
        ),
        Panel(
            "Classes",
            "Objects of one class share one evaluation; many classes mean many evaluations.",
            (
                ("sum by (resource) (kube_sync_decision_classes)", "{{resource}}"),
                ("sum by (resource) (kube_sync_decision_unshared)", "{{resource}} unshared"),
            ),
        ),
        Panel(
            "Readers of decisions",
            "Open decision streams; without a reader no workload is moved.",
            (("sum(kube_sync_decision_subscribers)", "readers"),),
            kind="stat",
        ),
        Panel(
            "Limits of the policies",
            "Evaluations of data.kube_sync_budget, by outcome, and 1 while it is invalid.",
            (
                (
                    f"sum by (outcome) (increase(kube_sync_budget_evaluations_total{_RATE}))",
                    "{{outcome}}",
                ),
                ("max(kube_sync_budget_unusable)", "unusable"),
            ),
        ),
    ),
)

_MOVING = Row(
    "Remediation",
    (
        Panel(
            "Reconciled resources",
            "By outcome: applied was written, held waits, fenced is left to another process.",
            ((f"sum by (outcome) (rate(kube_sync_remediations_total{_RATE}))", "{{outcome}}"),),
            unit="ops",
        ),
        Panel(
            "Held resources",
            "Resources that are not as decided because they are held, by reason. `kube-sync"
            " remediate status` lists them.",
            (("sum by (reason) (kube_sync_remediation_held) or vector(0)", "{{reason}}"),),
        ),
        Panel(
            "Concurrency",
            "Resources that the remediator may reconcile at once. It falls when the API server"
            " becomes slower or answers 429; a low number and a growing work queue mean that the"
            " API server is the limit.",
            (("max(kube_sync_remediation_concurrency)", "limit"),),
        ),
        Panel(
            "Moves that add first",
            "What was written for them: clusters were added, the move ended, or clusters that were"
            " not healthy in time were reverted or kept.",
            (
                (
                    (
                        "sum by (outcome)"
                        f" (increase(kube_sync_remediation_additions_total{_RATE})) or vector(0)"
                    ),
                    "{{outcome}}",
                ),
            ),
        ),
        Panel(
            "Answers to Argo CD",
            "Requests of its ApplicationSet controller, by HTTP status; at any other than 200 it"
            " keeps all Applications, and shows why on the ApplicationSet.",
            (
                (
                    (
                        "sum by (status)"
                        f" (increase(kube_sync_generator_answers_total{_RATE})) or vector(0)"
                    ),
                    "{{status}}",
                ),
            ),
        ),
        Panel(
            "Rivals",
            "Resources whose writes were paused because another writer keeps reverting them.",
            ((f"sum(increase(kube_sync_remediation_rivals_total{_RATE}))", "rivals"),),
        ),
        Panel(
            "Events",
            "Kubernetes Events by outcome; dropped means that there were too many at once.",
            (
                (
                    (
                        f"sum by (outcome) (increase(kube_sync_remediation_events_total{_RATE}))"
                        " or vector(0)"
                    ),
                    "{{outcome}}",
                ),
                (
                    (
                        f"sum by (outcome) (increase(kube_sync_replicator_events_total{_RATE}))"
                        " or vector(0)"
                    ),
                    "canaries: {{outcome}}",
                ),
            ),
        ),
    ),
)

_REMEMBERING = Row(
    "Ledger",
    (
        Panel(
            "Records",
            "Records of decisions and writes, by kind.",
            ((f"sum by (kind) (rate(kube_sync_ledger_records_total{_RATE}))", "{{kind}}"),),
            unit="ops",
        ),
        Panel(
            "Missing records",
            "Records that are missing in the ledger, gaps, records that were replaced by"
            " summaries because their namespace exceeded its share, and 1 while the file cannot"
            " be written.",
            (
                (f"sum(increase(kube_sync_ledger_lost_records_total{_RATE}))", "records"),
                (f"sum(increase(kube_sync_ledger_gaps_total{_RATE}))", "gaps"),
                (f"sum(increase(kube_sync_ledger_summarised_total{_RATE}))", "summarised"),
                ("max(kube_sync_ledger_unwritable)", "unwritable"),
            ),
        ),
        Panel(
            "Size",
            "Bytes in use in the file; ledger.max_size limits them.",
            (("max(kube_sync_ledger_bytes)", "bytes"),),
            unit="bytes",
        ),
        Panel(
            "Reports of the remediator",
            "Reports of writes to the ledger; late means that the write did not wait for the"
            " report any longer.",
            (
                (
                    f"sum by (outcome) (increase(kube_sync_ledger_reports_total{_RATE}))",
                    "{{outcome}}",
                ),
            ),
        ),
    ),
)

_WRITES = "kube_sync_placement_decision_writes_total"
_PUBLISHING = Row(
    "Other sinks than annotations",
    (
        Panel(
            "PlacementDecisions",
            "PlacementDecisions of kube-sync in the API server.",
            (("sum(kube_sync_placement_decisions)", "objects"),),
        ),
        Panel(
            "Not updated",
            "Resources whose PlacementDecisions or nominations are not updated.",
            (
                (
                    "sum by (sink, reason) (kube_sync_placement_decisions_held) or vector(0)",
                    "{{sink}}: {{reason}}",
                ),
            ),
        ),
        Panel(
            "Writes",
            "By outcome; retried writes are repeated, fenced ones are left to another process.",
            (
                (
                    f"sum by (sink, outcome) (rate({_WRITES}{_RATE}))",
                    "{{sink}}: {{outcome}}",
                ),
            ),
            unit="ops",
        ),
    ),
)

DECISIONS = Dashboard(
    "kube-sync-decisions",
    "kube-sync / Decisions and remediation",
    "What is decided, and what becomes of it?",
    (_DECIDING, _MOVING, _REMEMBERING, _PUBLISHING),
)
