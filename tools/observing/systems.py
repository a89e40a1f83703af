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
            "99th percentile, by system.",
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
            "Whether OPA does not answer for a system, and whether the API server denies requests"
            " without an answer.",
            (
                ("max by (system) (kube_sync_admission_system_down)", "{{system}} down"),
                ("max by (way) (kube_sync_admission_system_closed)", "{{way}} closed"),
            ),
        ),
        Panel(
            "Conditions of policies",
            "Reconciles of conditions, by kind; unchanged conditions are not written.",
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
            "Of the topology, by outcome.",
            (
                (
                    f"sum by (outcome) (increase(kube_sync_topology_reconciles_total{_RATE}))",
                    "{{outcome}}",
                ),
            ),
        ),
        Panel(
            "Time of a reconcile",
            "Median and 99th percentile.",
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
            "Changed objects that a reconcile took into account; several changes of one object"
            " count once.",
            ((f"sum(increase(kube_sync_topology_events_total{_RATE}))", "objects"),),
        ),
        Panel(
            "Writes",
            "Of statuses and pictures, by outcome; there are none if nothing changes.",
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
            "Copies that are wanted on spokes, that exist, and that are unwanted but held by the"
            " brakes.",
            (
                ("max(kube_sync_policy_sync_wanted)", "wanted"),
                ("max(kube_sync_policy_sync_placed)", "placed"),
                ("max(kube_sync_policy_sync_held)", "held"),
            ),
        ),
        Panel(
            "Steps of policy sync",
            "By operation and outcome; there are none if nothing changes.",
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
            "Time to reconcile the copies and the status of one policy: median and 99th"
            " percentile.",
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
            "Policies waiting",
            "In the work queue, without policies that are delayed after a failure.",
            (("max(kube_sync_policy_sync_waiting)", "policies"),),
        ),
        Panel(
            "Events of policy sync",
            "Events of held removals and of refused kinds, by outcome.",
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
