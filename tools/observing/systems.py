"""The dashboard of the policy systems: scheduling, metadata, topology, and what they write."""

from __future__ import annotations

from tools.observing.grafana import Dashboard, Panel, Row

_RATE = "[$__rate_interval]"

_REVIEWS = Row(
    "Scheduling and metadata",
    (
        Panel(
            "Reviews",
            "By system and outcome.",
            (
                (
                    (
                        f"sum by (system, outcome)"
                        f" (rate(kube_sync_admission_system_seconds_count{_RATE}))"
                    ),
                    "{{system}} {{outcome}}",
                ),
            ),
            unit="reqps",
        ),
        Panel(
            "Time to answer",
            "The slowest of a hundred, by system.",
            (
                (
                    (
                        "histogram_quantile(0.99, sum by (le, system)"
                        f" (rate(kube_sync_admission_system_seconds_bucket{_RATE})))"
                    ),
                    "{{system}}",
                ),
            ),
            unit="s",
        ),
        Panel(
            "Down, and closed",
            "Whether OPA is known not to answer for a system, and whether the API server refuses"
            " what"
            " gets no answer.",
            (
                ("max by (system) (kube_sync_admission_system_down)", "{{system}} down"),
                ("max by (way) (kube_sync_admission_system_closed)", "{{way}} closed"),
            ),
        ),
        Panel(
            "Conditions of policies",
            "Times that they were looked at, by kind; unchanged ones cost no write.",
            (
                (
                    f"sum by (kind, outcome) (increase(kube_sync_policy_conditions_total{_RATE}))",
                    "{{kind}} {{outcome}}",
                ),
            ),
        ),
    ),
)

_TOPOLOGY = Row(
    "Topology",
    (
        Panel(
            "Reconciles",
            "Of the whole topology, by outcome.",
            (
                (
                    f"sum by (outcome) (increase(kube_sync_topology_reconciles_total{_RATE}))",
                    "{{outcome}}",
                ),
            ),
        ),
        Panel(
            "Time of a reconcile",
            "Half of all, and the slowest of a hundred.",
            tuple(
                (
                    (
                        f"histogram_quantile({q}, sum by (le)"
                        f" (rate(kube_sync_topology_reconcile_seconds_bucket{_RATE})))"
                    ),
                    f"p{q * 100:.0f}",
                )
                for q in (0.5, 0.99)
            ),
            unit="s",
        ),
        Panel(
            "Changed objects",
            "That a reconcile took in; several changes of one object count once.",
            ((f"sum(increase(kube_sync_topology_events_total{_RATE}))", "objects"),),
        ),
        Panel(
            "Writes",
            "Of statuses and pictures, by outcome; when nothing changes there are none.",
            (
                (
                    (
                        "sum by (operation, outcome)"
                        f" (increase(kube_sync_topology_writes_total{_RATE}))"
                    ),
                    "{{operation}} {{outcome}}",
                ),
            ),
        ),
    ),
)

_SYNC = Row(
    "Policy sync",
    (
        Panel(
            "Copies",
            "That spokes are to have, that they have, and that are not wanted any more but held by"
            " the brakes.",
            (
                ("max(kube_sync_policy_sync_wanted)", "wanted"),
                ("max(kube_sync_policy_sync_placed)", "placed"),
                ("max(kube_sync_policy_sync_held)", "held"),
            ),
        ),
        Panel(
            "Steps that write",
            "By what they do and by outcome; when nothing changes there are none.",
            (
                (
                    (
                        "sum by (operation, outcome)"
                        f" (increase(kube_sync_policy_sync_writes_total{_RATE}))"
                    ),
                    "{{operation}} {{outcome}}",
                ),
            ),
        ),
        Panel(
            "Time for one policy",
            "To bring its copies and its status up to date: half of all, and the slowest of a"
            " hundred.",
            tuple(
                (
                    (
                        f"histogram_quantile({q}, sum by (le)"
                        f" (rate(kube_sync_policy_sync_reconcile_seconds_bucket{_RATE})))"
                    ),
                    f"p{q * 100:.0f}",
                )
                for q in (0.5, 0.99)
            ),
            unit="s",
        ),
        Panel(
            "Policies that wait",
            "To be looked at; those that are put off after a failure do not count.",
            (("max(kube_sync_policy_sync_waiting)", "policies"),),
        ),
        Panel(
            "Events of policy sync",
            "Of removals that are held and of kinds that are refused, by what became of them.",
            (
                (
                    (
                        f"sum by (outcome) (increase(kube_sync_policy_sync_events_total{_RATE}))"
                        " or vector(0)"
                    ),
                    "{{outcome}}",
                ),
            ),
        ),
    ),
)

SYSTEMS = Dashboard(
    "kube-sync-systems",
    "kube-sync / Policy systems",
    "What do the policy systems decide and write?",
    (_REVIEWS, _TOPOLOGY, _SYNC),
)
