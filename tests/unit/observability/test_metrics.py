from __future__ import annotations

from collections import Counter as Tally
from itertools import product
from typing import get_args

from prometheus_client import REGISTRY, Counter
from prometheus_client.metrics import MetricWrapperBase

from kube_sync.guard import additions
from kube_sync.kube import fencedwriter
from kube_sync.observability import metrics
from kube_sync.policysync import hub_status_writer
from kube_sync.remediation import writer
from kube_sync.topology.status import owned_configmaps

ALL = {name: found for name, found in vars(metrics).items() if isinstance(found, MetricWrapperBase)}
# Named as client-go names them, with its label for the name of a queue: dashboards for these exist.
# Their values are words of the code.
CLIENT_GO = {name: found for name, found in ALL.items() if name.startswith("workqueue_")}
OURS = {name: found for name, found in ALL.items() if name not in CLIENT_GO}


def _name(metric: MetricWrapperBase) -> str:
    (found,) = metric.describe()
    return str(found.name)


def test_metrics_are_found_at_all() -> None:
    assert len(ALL) > 10


def test_every_name_is_unique_and_prefixed() -> None:
    names = Tally(map(_name, ALL.values()))
    assert all(_name(found).startswith("kube_sync_") for found in OURS.values())
    assert names.most_common(1)[0][1] == 1


def test_every_name_is_that_of_its_variable() -> None:
    """So that what a dashboard shows can be found in the code."""
    assert set(map(_name, OURS.values())) == {f"kube_sync_{name}" for name in OURS}
    assert set(map(_name, CLIENT_GO.values())) == CLIENT_GO.keys()


def test_the_metrics_of_queues_are_those_that_dashboards_for_client_go_read() -> None:
    assert CLIENT_GO.keys() == {
        "workqueue_adds",
        "workqueue_depth",
        "workqueue_longest_running_processor_seconds",
        "workqueue_queue_duration_seconds",
        "workqueue_retries",
        "workqueue_unfinished_work_seconds",
        "workqueue_work_duration_seconds",
    }
    assert {found._labelnames for found in CLIENT_GO.values()} == {("name",)}  # noqa: SLF001 - as below


def test_no_label_names_an_object() -> None:
    """Each would be a time series of its own, and tell what runs here."""
    labels = {
        label
        for found in OURS.values()
        for label in found._labelnames  # noqa: SLF001 - there is no public way before a first value
    }
    forbidden = {"name", "namespace", "key", "uid", "object", "policy", "path", "configmap"}
    assert labels.isdisjoint(forbidden)
    # Each of these takes its values from the configuration or the code, never from an object.
    known = {"resource", "reason", "type", "operation", "outcome", "lease", "server"}
    known |= {"system", "way", "kind", "version", "command", "method", "status", "port", "effect"}
    known |= {"code", "builtin", "sink"}  # of warnings, of OPA, of the configuration
    assert labels <= known


def test_every_metric_is_explained() -> None:
    assert all(one.documentation.strip() for found in ALL.values() for one in found.describe())


def test_faults_are_told_as_0_before_the_first() -> None:
    """In a series that begins with 1 no alert sees a rise."""
    for name, labels in (
        ("kube_sync_topology_writes_total", {"operation": "status", "outcome": "forbidden"}),
        ("kube_sync_policy_sync_writes_total", {"operation": "remove", "outcome": "failed"}),
        ("kube_sync_admission_registration_writes_total", {"outcome": "failed"}),
        ("kube_sync_remediations_total", {"outcome": "refused"}),
    ):
        assert REGISTRY.get_sample_value(name, labels) is not None


def test_what_begins_at_0_is_what_there_can_be() -> None:
    """A word that is added is added here, too."""

    def children(counter: Counter) -> set[tuple[str, ...]]:
        return set(metrics._AT_ZERO[counter])  # noqa: SLF001 - the registry has what other tests add

    assert children(metrics.remediations) == {
        (word,) for word in (*get_args(writer.Status), "held", "dry-run")
    }
    assert children(metrics.generator_answers) == {
        (status,) for status in ("200", "400", "401", "404", "409", "503")
    }
    assert children(metrics.remediation_additions) == {
        (word,) for word in (*get_args(additions.Step), "ended")
    }
    for counter, operations, success in (
        (metrics.topology_writes, ("status", *get_args(owned_configmaps.Operation)), "written"),
        (
            metrics.policy_sync_writes,
            ("apply", "leave", "remove", *get_args(hub_status_writer.Operation)),
            "done",
        ),
    ):
        outcomes = {word for _, word in fencedwriter.OUTCOMES} | {success, "failed", "fenced"}
        assert children(counter) == set(product(operations, outcomes))
