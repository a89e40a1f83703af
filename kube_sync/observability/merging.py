"""One page of metrics for several processes that do the same work.

Invariant: what counts is the sum of all processes, so that nothing is lost or doubled. Of what is
so or not, the page shows the worse, or what holds for any of them.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec
from prometheus_client import REGISTRY, Metric, generate_latest
from prometheus_client.registry import Collector

# Gauges of which the least counts: bad news, and times.
_LEAST: Final = frozenset(
    {
        "kube_sync_certificate_expiry_timestamp_seconds",
        "kube_sync_config_valid",
        "kube_sync_ready",
        "kube_sync_resource_known",
        "process_start_time_seconds",
    }
)
_SUMMED: Final = frozenset({"counter", "histogram", "summary"})
_CREATED: Final = "_created"  # the time at which a counter began
_SUMMED_GAUGES: Final = ("process_", "workqueue_depth")


class Sample(msgspec.Struct, frozen=True):
    """One value; None stands for what JSON has not (NaN)."""

    name: str
    labels: dict[str, str]
    value: float | None


class Family(msgspec.Struct, frozen=True):
    """A metric of one process, with all its samples."""

    name: str
    documentation: str
    type: str
    samples: tuple[Sample, ...]


def snapshot(registry: Collector = REGISTRY) -> list[Family]:
    """Return the metrics of this process."""
    return [
        Family(
            found.name,
            found.documentation,
            found.type,
            tuple(Sample(one.name, dict(one.labels), one.value) for one in found.samples),
        )
        for found in registry.collect()
    ]


def merged_page(snapshots: Iterable[Sequence[Family]]) -> bytes:
    """Return the text of the metrics of several processes together."""
    families: dict[str, Family] = {}
    values: dict[str, dict[tuple[str, tuple[tuple[str, str], ...]], float]] = {}
    for family in (family for one in snapshots for family in one):
        families.setdefault(family.name, family)
        known = values.setdefault(family.name, {})
        for sample in family.samples:
            key = sample.name, tuple(sorted(sample.labels.items()))
            value = math.nan if sample.value is None else sample.value
            known[key] = _rule(family, sample)(known[key], value) if key in known else value
    return generate_latest(_Merged(families, values))


def _rule(family: Family, sample: Sample) -> Callable[[float, float], float]:
    if sample.name in _LEAST or sample.name.endswith(_CREATED):
        return min
    if family.type in _SUMMED or sample.name.startswith(_SUMMED_GAUGES):
        return operator.add
    return max


# By inheritance, since the library asks for it.
class _Merged(Collector):
    def __init__(
        self,
        families: dict[str, Family],
        values: dict[str, dict[tuple[str, tuple[tuple[str, str], ...]], float]],
    ) -> None:
        self._families = families
        self._values = values

    def collect(self) -> Iterable[Metric]:
        for name, family in self._families.items():
            metric = Metric(name, family.documentation, family.type)
            for (sample, labels), value in self._values[name].items():
                metric.add_sample(sample, dict(labels), value)
            yield metric
