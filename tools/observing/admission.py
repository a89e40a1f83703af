"""The dashboard of admission: how reviews are answered, and whether the API server still asks."""

from __future__ import annotations

from tools.observing.grafana import Dashboard, Panel, Row

_RATE = "[$__rate_interval]"

_REVIEWS = Row(
    "Reviews of placement",
    (
        Panel(
            "Reviews",
            "By outcome. Denied is a decision of the policy; undecidable means that there was no"
            " decision, and the review was denied for that reason.",
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
            "Median and 99th percentile. The API server gives up after the timeout of its"
            " registration.",
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
            "Requests to the policy engine",
            "By outcome; every outcome except answered makes reviews undecidable.",
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
            "1 while the policy engine does not answer: every review is denied at once.",
            (("max by (instance) (kube_sync_admission_engine_down)", "{{instance}}"),),
        ),
        Panel(
            "Events of denials",
            "By outcome; dropped means that there were too many at once.",
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
            "1 while failurePolicy is Fail, so that the API server denies requests without an"
            " answer, as it should from the first policy on; and whether this process maintains"
            " the registration.",
            (
                ("max(kube_sync_admission_registration_closed)", "closed"),
                ("max(kube_sync_admission_registration_kept)", "kept"),
            ),
        ),
        Panel(
            "Writes of the registration",
            "By outcome; there are none if nothing changes.",
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
            "Certificates expire in",
            "Time until the certificates of servers expire; replaced files are read without a"
            " restart.",
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
