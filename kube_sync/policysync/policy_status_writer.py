"""Writes the sync status of the hub's policies: the places of their copies, and conditions.

Invariant: it is written only if it differs, and equal copies give equal bytes; a policy that is no
longer synced, or has no copies, carries nothing of ours. Annotations are bounded, since those of an
object are, and the status reports what does not fit. Clusters report one by one, so the minimum
interval between writes grows with the number of clusters: the load of the hub's API server does
not grow with them. The last report is always written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec
import structlog

from kube_sync.errors import NotFound, Refused, Terminal
from kube_sync.guard import Withheld
from kube_sync.kube.client import KubeClient
from kube_sync.kube.statuses import json_object
from kube_sync.kube.wholeobjects import read_object
from kube_sync.objects import ObjectKey
from kube_sync.policysync.aggregate import aggregate, extra_values
from kube_sync.policysync.copies import PLACED, STATUS, PolicyId
from kube_sync.policysync.desired import Desired
from kube_sync.policysync.downstream import Downstream
from kube_sync.policysync.hub_status_writer import HubStatusWriter, removals_held
from kube_sync.policysync.hubstate import HubState
from kube_sync.policysync.placers import Subject
from kube_sync.policysync.policy_state import PolicyState

_MOST: Final = 64 * 1024  # bytes of the extra status fields; annotations have 256 KiB together
_MOST_PLACED: Final = 96 * 1024  # bytes of the list of copies
_TEXT: Final = 256  # characters of one of them
_EACH_SECONDS: Final = 0.05  # between two writes, for every cluster
_MOST_SECONDS: Final = 10.0

_sorted = msgspec.json.Encoder(order="sorted")

Values = Mapping[str, str | int | bool]


@dataclass(frozen=True, slots=True)
class PolicyAnnotations:
    """Annotations of a policy (None: the annotation is absent), and what did not fit in them."""

    annotations: Mapping[str, str | None]
    cut: tuple[str, ...] = ()


def placed_annotations(
    policy: PolicyId,
    clusters: Iterable[str],
    values: Mapping[str, Values],
    downstream: Downstream,
) -> PolicyAnnotations:
    """Return the annotations of a policy with copies on clusters.

    `values` are the extra status fields by cluster.
    """
    namespace = downstream.namespace(policy.namespace)
    listed = [
        {"cluster": cluster, "name": policy.name, "namespace": namespace}
        for cluster in sorted(clusters)
    ]
    copies = _fitting((_sorted.encode(one).decode() for one in listed), _MOST_PLACED)
    fields = _fitting(_encoded_fields(values), _MOST)
    cut = [
        f"the annotation {name} has room for {len(kept)} of {of} clusters"
        for name, kept, of in ((PLACED, copies, len(listed)), (STATUS, fields, len(values)))
        if len(kept) < of
    ]
    found = {
        PLACED: f"[{','.join(copies)}]" if listed else None,
        STATUS: f"{{{','.join(fields)}}}" if values else None,
    }
    return PolicyAnnotations(found, tuple(cut))


def _fitting(entries: Iterable[str], most: int) -> list[str]:
    """Return as many entries as fit, in their order."""
    kept: list[str] = []
    size = 2
    for entry in entries:
        size += len(entry.encode()) + 1
        if size > most:
            break
        kept.append(entry)
    return kept


def _encoded_fields(values: Mapping[str, Values]) -> Iterator[str]:
    for cluster, fields in sorted(values.items()):
        # Cut, and the same text always alike.
        short = {k: v[:_TEXT] if isinstance(v, str) else v for k, v in fields.items()}
        yield _sorted.encode({cluster: short}).decode()[1:-1]


log: structlog.stdlib.BoundLogger = structlog.get_logger()


class Pace:
    """Limits the rate of status writes for each policy."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock` is monotonic seconds."""
        self._clock = clock
        self._next: dict[Subject, float] = {}

    def wait(self, key: Subject) -> float:
        """Return the seconds until the next write; 0: now."""
        return max(0.0, self._next.get(key, 0.0) - self._clock())

    def record_write(self, key: Subject, clusters: int) -> None:
        """Record a write for so many clusters."""
        self._next[key] = self._clock() + min(_MOST_SECONDS, _EACH_SECONDS * clusters)

    def forget(self, key: Subject) -> None:
        """Drop the record of a policy."""
        self._next.pop(key, None)


class PolicyStatus:
    """Writes the policies of the hub."""

    def __init__(
        self, client: KubeClient, state: HubState, writer: HubStatusWriter, downstream: Downstream
    ) -> None:
        self._client = client
        self._state = state
        self._writer = writer
        self._downstream = downstream

    async def write(
        self, found: PolicyState, held: Mapping[str, Withheld], errors: Mapping[str, str]
    ) -> bool:
        """Update annotations and status; return whether that took a write.

        Raises SyncError.
        """
        body, kind, gvr = found.body, found.kind, found.policy.gvr
        if body is None or kind is None:
            return False
        wanted = found.wanted or Desired()
        extra = extra_values(wanted, found.placed)
        annotations = placed_annotations(found.policy, found.placed, extra, self._downstream)
        conditions = (
            *aggregate(wanted, found.placed, found.targets.others, errors, annotations.cut),
            *removals_held(held),
        )
        store, key = self._state.policies(gvr), ObjectKey(found.policy.namespace, found.policy.name)
        try:
            failed: Refused | Terminal | None = None
            try:
                body = await self._writer.annotate(gvr, body, annotations.annotations)
                store.record_write(key, body)
                if annotations.cut and body is not found.body:
                    log.warning("annotation_cut", gvr=str(gvr), key=str(key), cut=annotations.cut)
            except (Refused, Terminal) as error:
                failed = error  # the status is written all the same
            if kind.conditions:
                body = await self._writer.conditions(gvr, body, conditions, kind=kind.kind)
            elif kind.ancestors:
                body = await self._writer.ancestors(gvr, body, found.gateways, conditions)
            store.record_write(key, body)
            if failed is not None:
                raise failed
        except NotFound:
            return False  # gone, as the watch will show
        return body is not found.body

    async def clean(self, policy: PolicyId) -> None:
        """Remove all our annotations and conditions from a policy whose kind is no longer synced.

        What cannot be removed for good is left. Raises SyncError if a retry may succeed.
        """
        gvr, key = policy.gvr, ObjectKey(policy.namespace, policy.name)
        try:
            response = await read_object(self._client, gvr, key)
        except (Refused, Terminal) as error:
            # The permission went with its kind: what may not be written is left.
            log.warning("policy_not_cleaned", gvr=str(gvr), key=str(key), error=str(error))
            return
        if response is None:
            return
        body = json_object(response)
        try:
            body = await self._writer.annotate(gvr, body, {PLACED: None, STATUS: None})
            body = await self._writer.conditions(gvr, body, ())
            await self._writer.ancestors(gvr, body, (), ())
        except NotFound:
            return
        except (Refused, Terminal) as error:
            # Its schema may have changed so that the object is no longer valid.
            log.warning("policy_not_cleaned", gvr=str(gvr), key=str(key), error=str(error))
