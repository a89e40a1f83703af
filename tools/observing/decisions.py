"""The dashboard of decisions and remediation: what is decided, and what becomes of it."""

from __future__ import annotations

from tools.observing.grafana import Dashboard, Panel, Row

_RATE = "[$__rate_interval]"

_DECIDING = Row(
    "Decisions",
    (
        Panel(
            "Evaluations",
            "By outcome. Refused and undefined are answers of the policy; failed is none.",
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
            "Of as many evaluations as fit into one: half of all, and the slowest of a hundred.",
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
            "Each is one move that the remediator is asked for, or one that it is no longer.",
            ((f"sum(increase(kube_sync_decision_changes_total{_RATE}))", "changes"),),
        ),
        Panel(
            "Classes",
            "Objects of one class are decided on together; many classes mean many evaluations.",
            (
                ("sum by (resource) (kube_sync_decision_classes)", "{{resource}}"),
                ("sum by (resource) (kube_sync_decision_unshared)", "{{resource}} unshared"),
            ),
        ),
        Panel(
            "Readers of the decisions",
            "Open decision streams; without one nothing is moved.",
            (("sum(kube_sync_decision_subscribers)", "readers"),),
            kind="stat",
        ),
        Panel(
            "Limits of the policies",
            "How often data.kube_sync_budget was asked for, by outcome, and 1 while it cannot be"
            " used.",
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
            "By outcome: applied is a write, held one that waits, fenced one that another process"
            " is to do.",
            ((f"sum by (outcome) (rate(kube_sync_remediations_total{_RATE}))", "{{outcome}}"),),
            unit="ops",
        ),
        Panel(
            "Resources that wait",
            "Not as they were decided to be, by what they wait for. `kube-sync remediate list`"
            " names"
            " them.",
            (("sum by (reason) (kube_sync_remediation_held) or vector(0)", "{{reason}}"),),
        ),
        Panel(
            "Rivals",
            "Resources that were given up for a while since somebody else kept changing them back.",
            ((f"sum(increase(kube_sync_remediation_rivals_total{_RATE}))", "rivals"),),
        ),
        Panel(
            "Events told to people",
            "By what became of them; dropped ones were too many at once.",
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
            "What was decided and written, by kind.",
            ((f"sum by (kind) (rate(kube_sync_ledger_records_total{_RATE}))", "{{kind}}"),),
            unit="ops",
        ),
        Panel(
            "What is missing",
            "Records that the ledger does not have, gaps, those that are in summaries alone since"
            " their namespace has more than its share, and 1 while its file cannot be written.",
            (
                (f"sum(increase(kube_sync_ledger_lost_records_total{_RATE}))", "records"),
                (f"sum(increase(kube_sync_ledger_gaps_total{_RATE}))", "gaps"),
                (f"sum(increase(kube_sync_ledger_summarised_total{_RATE}))", "summarised"),
                ("max(kube_sync_ledger_unwritable)", "unwritable"),
            ),
        ),
        Panel(
            "Size",
            "Bytes of the file that are in use; ledger.max_size bounds them.",
            (("max(kube_sync_ledger_bytes)", "bytes"),),
            unit="bytes",
        ),
        Panel(
            "Reports of the remediator",
            "What it told the ledger of its writes: late ones came after the write had gone on.",
            (
                (
                    f"sum by (outcome) (increase(kube_sync_ledger_reports_total{_RATE}))",
                    "{{outcome}}",
                ),
            ),
        ),
    ),
)

_PUBLISHING = Row(
    "PlacementDecisions",
    (
        Panel(
            "PlacementDecisions",
            "Ours that the API server holds.",
            (("sum(kube_sync_placement_decisions)", "objects"),),
        ),
        Panel(
            "Left as they are",
            "Resources whose PlacementDecisions are not written, by why.",
            (("sum by (reason) (kube_sync_placement_decisions_held) or vector(0)", "{{reason}}"),),
        ),
        Panel(
            "Writes",
            "By outcome; retried ones come again, fenced ones another process is to do.",
            (
                (
                    f"sum by (outcome) (rate(kube_sync_placement_decision_writes_total{_RATE}))",
                    "{{outcome}}",
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
