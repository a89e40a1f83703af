from __future__ import annotations

import math

import msgspec
import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from kube_sync.observability.merging import Family, merged_page, snapshot


def _over_a_socket(registry: CollectorRegistry) -> list[Family]:
    return msgspec.json.decode(msgspec.json.encode(snapshot(registry)), type=list[Family])


def _value(page: bytes, name: str, **labels: str) -> float:
    (found,) = (
        sample.value
        for family in text_string_to_metric_families(page.decode())
        for sample in family.samples
        if (sample.name, sample.labels) == (name, labels)
    )
    return float(found)


def test_what_counts_is_the_sum_of_all_processes() -> None:
    registries = CollectorRegistry(), CollectorRegistry()
    for seconds, registry in enumerate(registries, start=1):
        counter = Counter("answers", "Answers", ["outcome"], registry=registry)
        counter.labels("allowed").inc(seconds)
        counter.labels(f"only {seconds}").inc()
        Histogram("seconds", "Time", buckets=(1.5, 5), registry=registry).observe(seconds)
        Gauge("workqueue_depth", "Keys", registry=registry).set(seconds)
        Gauge("process_resident_memory_bytes", "Memory", registry=registry).set(seconds)
    page = merged_page(map(_over_a_socket, registries))
    assert _value(page, "answers_total", outcome="allowed") == 3
    assert _value(page, "answers_total", outcome="only 1") == 1
    assert _value(page, "answers_total", outcome="only 2") == 1
    assert _value(page, "seconds_sum") == 3
    assert _value(page, "seconds_count") == 2
    assert [_value(page, "seconds_bucket", le=le) for le in ("1.5", "5.0", "+Inf")] == [1, 2, 2]
    assert _value(page, "workqueue_depth") == 3
    assert _value(page, "process_resident_memory_bytes") == 3


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("kube_sync_ready", 0),
        ("kube_sync_config_valid", 0),
        ("kube_sync_certificate_expiry_timestamp_seconds", 0),
        ("process_start_time_seconds", 0),
        ("kube_sync_admission_engine_down", 1),
        ("kube_sync_admission_registration_kept", 1),
    ],
)
def test_of_what_is_so_or_not_the_page_shows_the_worse(name: str, shown: float) -> None:
    registries = CollectorRegistry(), CollectorRegistry()
    for value, registry in enumerate(registries):
        Gauge(name, "Text", registry=registry).set(value)
    assert _value(merged_page(map(_over_a_socket, registries)), name) == shown


def test_the_page_of_one_process_is_what_the_library_prints() -> None:
    registry = CollectorRegistry()
    Counter("answers", "Answers of\nall", ["outcome"], registry=registry).labels('"x"\\').inc(0.1)
    Histogram("seconds", "Time", ["of"], registry=registry).labels("a").observe(1)
    Gauge("unknown", "Not known", registry=registry).set(math.nan)
    assert merged_page([_over_a_socket(registry)]) == generate_latest(registry)
