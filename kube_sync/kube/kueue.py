"""The kinds of Kueue that a MultiKueue dispatcher reads: Workloads, and the clusters for them.

They are those of `kueue.x-k8s.io/v1beta1` (sigs.k8s.io/kueue, apis/kueue/v1beta1): an
AdmissionCheck of the controller `kueue.x-k8s.io/multikueue` names a MultiKueueConfig, which lists
the MultiKueueClusters that Workloads with this check may be copied to.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypeVar

import msgspec

from kube_sync.config.remediation import KUEUE_WORKLOADS
from kube_sync.errors import NO_JSON, Retriable
from kube_sync.kube.collection import Item
from kube_sync.objects import GroupVersionResource

WORKLOADS: Final = KUEUE_WORKLOADS
_GROUP, _VERSION = WORKLOADS.group, WORKLOADS.version
ADMISSION_CHECKS: Final = GroupVersionResource(_GROUP, _VERSION, "admissionchecks")
MULTIKUEUE_CONFIGS: Final = GroupVersionResource(_GROUP, _VERSION, "multikueueconfigs")
MULTIKUEUE_CLUSTERS: Final = GroupVersionResource(_GROUP, _VERSION, "multikueueclusters")

_CONTROLLER: Final = "kueue.x-k8s.io/multikueue"
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Workload:
    """What a dispatcher needs to know of a Workload; times are Unix seconds.

    `nominated_at` is when who owns the nominations last changed what they own: they were not
    changed later. 0 if nobody owns them.
    """

    uid: str
    created_at: float = 0.0
    deleted: bool = False
    reserved: bool = False  # its ClusterQueue has reserved quota
    finished: bool = False
    cluster: str | None = None  # the one that admitted it
    nominated: tuple[str, ...] = ()
    nominated_at: float = 0.0
    checks: tuple[tuple[str, str], ...] = ()  # names and states of its admission checks, in order


@dataclass(frozen=True, slots=True)
class ClusterState:
    """Whether Kueue is connected to a worker cluster; the message says why it is not."""

    active: bool
    message: str = ""


class _Condition(msgspec.Struct):
    type: str = ""
    status: str = ""
    message: str = ""


class _Check(msgspec.Struct):
    name: str
    state: str = ""


class _WorkloadStatus(msgspec.Struct, rename="camel"):
    conditions: list[_Condition] | None = None
    admission_checks: list[_Check] | None = None
    nominated_cluster_names: list[str] | None = None
    cluster_name: str | None = None

    def has(self, condition: str) -> bool:
        """Return whether a condition is true."""
        return any(one.type == condition and one.status == "True" for one in self.conditions or ())


class _OwnedStatus(msgspec.Struct):
    nominated: dict[str, object] | None = msgspec.field(
        name="f:nominatedClusterNames", default=None
    )


class _Owned(msgspec.Struct):
    status: _OwnedStatus = msgspec.field(name="f:status", default_factory=_OwnedStatus)


class _Manager(msgspec.Struct):
    time: datetime | None = None
    fields: _Owned = msgspec.field(name="fieldsV1", default_factory=_Owned)


class _Metadata(msgspec.Struct, rename="camel"):
    uid: str = ""
    creation_timestamp: datetime | None = None
    deletion_timestamp: str | None = None
    managed_fields: list[_Manager] | None = None

    @property
    def nominated_at(self) -> float:
        """When who owns the nominations last changed what they own."""
        managers = self.managed_fields or ()
        owners = [one for one in managers if one.fields.status.nominated is not None]
        return max((_seconds(one.time) for one in owners), default=0.0)


class _Workload(msgspec.Struct):
    metadata: _Metadata
    status: _WorkloadStatus = msgspec.field(default_factory=_WorkloadStatus)


class _Parameters(msgspec.Struct, rename="camel"):
    api_group: str = ""
    kind: str = ""
    name: str = ""


class _CheckSpec(msgspec.Struct, rename="camel"):
    controller_name: str = ""
    parameters: _Parameters | None = None


class _AdmissionCheck(msgspec.Struct):
    spec: _CheckSpec = msgspec.field(default_factory=_CheckSpec)


class _ConfigSpec(msgspec.Struct):
    clusters: list[str] | None = None


class _Config(msgspec.Struct):
    spec: _ConfigSpec = msgspec.field(default_factory=_ConfigSpec)


class _ClusterStatus(msgspec.Struct):
    conditions: list[_Condition] | None = None


class _Cluster(msgspec.Struct):
    status: _ClusterStatus = msgspec.field(default_factory=_ClusterStatus)


_workloads = msgspec.json.Decoder(_Workload)
_checks = msgspec.json.Decoder(_AdmissionCheck)
_configs = msgspec.json.Decoder(_Config)
_clusters = msgspec.json.Decoder(_Cluster)


def parse_workload(body: bytes) -> Workload:
    """Decode a Workload. Raises the errors in `errors.NO_JSON`."""
    found = _workloads.decode(body)
    metadata, status = found.metadata, found.status
    return Workload(
        metadata.uid,
        _seconds(metadata.creation_timestamp),
        metadata.deletion_timestamp is not None,
        status.has("QuotaReserved"),
        status.has("Finished"),
        status.cluster_name,
        tuple(status.nominated_cluster_names or ()),
        metadata.nominated_at,
        tuple((check.name, check.state) for check in status.admission_checks or ()),
    )


def admitted_to(body: bytes) -> frozenset[str]:
    """Return the cluster that has admitted a Workload, from its JSON; none of anything else.

    Of a check that waits for the job to end the state is Pending meanwhile, else Ready. Kueue
    evicts a Workload for which a check is in another one.
    """
    try:
        found = parse_workload(body)
    except NO_JSON:
        return frozenset()
    lost = found.deleted or any(state in ("Retry", "Rejected") for _, state in found.checks)
    return frozenset() if lost or not found.cluster else frozenset([found.cluster])


def workload_of(item: Item) -> Workload:
    """Decode a Workload of a LIST or a watch. Raises Retriable."""
    return _decoded(item, parse_workload)


def config_name(item: Item) -> str | None:
    """Return the MultiKueueConfig of an AdmissionCheck; empty: it names none; None: not ours.

    Raises Retriable.
    """
    spec = _decoded(item, _checks.decode).spec
    if spec.controller_name != _CONTROLLER:
        return None
    found = spec.parameters
    if found is None or (found.api_group, found.kind) != (_GROUP, "MultiKueueConfig"):
        return ""
    return found.name


def config_clusters(item: Item) -> tuple[str, ...]:
    """Return the clusters that a MultiKueueConfig lists. Raises Retriable."""
    return tuple(_decoded(item, _configs.decode).spec.clusters or ())


def cluster_state(item: Item) -> ClusterState:
    """Return the state of a MultiKueueCluster. Raises Retriable."""
    conditions = _decoded(item, _clusters.decode).status.conditions or ()
    active = next((one for one in conditions if one.type == "Active"), None)
    if active is None:
        return ClusterState(active=False, message="Kueue has not connected to it yet")
    return ClusterState(active.status == "True", active.message)


def _seconds(time: datetime | None) -> float:
    return 0.0 if time is None else time.timestamp()


def _decoded(item: Item, decode: Callable[[bytes], _T]) -> _T:
    try:
        return decode(item.body)
    except NO_JSON as error:  # of another version: what is cached stays
        msg = f"{item.key} cannot be read: {error}"
        raise Retriable(msg) from error
