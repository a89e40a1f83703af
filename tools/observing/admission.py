"""The dashboard of admission: how reviews are answered, and whether the API server still asks."""

from __future__ import annotations

from tools.observing.grafana import Dashboard, Panel, Row

_RATE = "[$__rate_interval]"

_REVIEWS = Row(
    "Reviews of placement",
    (
        Panel(
            "Reviews",
            "By outcome. Denied is the policy's word; undecidable means that there was none, and"
            " that the review was denied for want of it.",
            (
                (
                    f"sum by (outcome) (rate(kube_sync_admission_seconds_count{_RATE}))",
                    "{{outcome}}",
                ),
            ),
            unit="reqps",
        ),
        Panel(
            "Time to answer",
            "Half of all, and the slowest of a hundred. The API server gives up after the time in"
            " its registration.",
            tuple(
                (
                    (
                        f"histogram_quantile({q}, sum by (le)"
                        f" (rate(kube_sync_admission_seconds_bucket{_RATE})))"
                    ),
                    f"p{q * 100:.0f}",
                )
                for q in (0.5, 0.99)
            ),
            unit="s",
        ),
        Panel(
            "Without a decision",
            "Share of the reviews that were undecidable.",
            (
                (
                    (
                        f'sum(rate(kube_sync_admission_seconds_count{{outcome="undecidable"}}{_RATE}))'
                        f" / sum(rate(kube_sync_admission_seconds_count{_RATE}))"
                    ),
                    "undecidable",
                ),
            ),
            unit="percentunit",
        ),
        Panel(
            "Questions to the policy engine",
            "By outcome; everything but answered is a reason of undecidable reviews.",
            (
                (
                    f"sum by (outcome) (rate(kube_sync_admission_engine_attempts_total{_RATE}))",
                    "{{outcome}}",
                ),
            ),
            unit="reqps",
        ),
        Panel(
            "Answers by class",
            "By outcome; differed must be 0 (admission.classes: verify compares each with OPA's).",
            (
                (
                    f"sum by (outcome) (rate(kube_sync_admission_class_answers_total{_RATE}))",
                    "{{outcome}}",
                ),
            ),
            unit="reqps",
        ),
        Panel(
            "Policy engine down",
            "1 while it is known not to answer: every review is denied at once.",
            (("max by (instance) (kube_sync_admission_engine_down)", "{{instance}}"),),
        ),
        Panel(
            "Events of denials",
            "By what became of them; dropped ones were too many at once.",
            (
                (
                    (
                        f"sum by (outcome) (increase(kube_sync_admission_events_total{_RATE}))"
                        " or vector(0)"
                    ),
                    "{{outcome}}",
                ),
            ),
        ),
    ),
)

_REGISTRATION = Row(
    "Registration and certificates",
    (
        Panel(
            "Closed",
            "1 while the API server refuses what admission gives no answer to (failurePolicy Fail),"
            " as it is to be from the first policy on; beside it whether this process keeps it.",
            (
                ("max(kube_sync_admission_registration_closed)", "closed"),
                ("max(kube_sync_admission_registration_kept)", "kept"),
            ),
        ),
        Panel(
            "Writes of the registration",
            "By outcome; in quiet times there are none.",
            (
                (
                    (
                        f"sum by (outcome)"
                        f" (increase(kube_sync_admission_registration_writes_total{_RATE}))"
                    ),
                    "{{outcome}}",
                ),
            ),
        ),
        Panel(
            "Certificates end in",
            "Time until the certificates that servers use expire; replaced files are taken up"
            " without"
            " a restart.",
            (
                (
                    "min by (server) (kube_sync_certificate_expiry_timestamp_seconds - time())",
                    "{{server}}",
                ),
            ),
            unit="s",
            kind="stat",
        ),
    ),
)

ADMISSION = Dashboard(
    "kube-sync-admission",
    "kube-sync / Admission",
    "How are reviews answered, and does the API server still ask?",
    (_REVIEWS, _REGISTRATION),
)
