"""Cache of the target resources, reduced to the metadata that decisions are compared with.

A watch of the remediator's own, so that it compares decisions with the API server and not with the
state of the replicator. It watches whole objects, not metadata only, since an object with
`spec.replicas` 0 does not count as a move, and stores only the fields of `Current`. Of
managedFields (Kubernetes, "Server-Side Apply") it keeps the annotations and labels that the
remediator set and nobody else owns. A JSON Patch counts as operation Update, beside Apply: of
labels it only ever sets decided ones; of annotations it sets decided ones, which are recorded, and
requested ones, which are not the remediator's. So for annotations an Update is ignored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial

import msgspec

from kube_sync.decisions.requested import FIELD_MANAGER
from kube_sync.errors import NO_JSON, Retriable
from kube_sync.guard import ADDITION
from kube_sync.guard.digests import digest
from kube_sync.kube.cache import Cache, Changes
from kube_sync.kube.collection import Item
from kube_sync.objects import ObjectKey
from kube_sync.remediation.plan import Current
from kube_sync.remediation.planner import ReadHealth


class _OwnedMetadata(msgspec.Struct, frozen=True):
    annotations: dict[str, msgspec.Raw] = msgspec.field(name="f:annotations", default={})
    labels: dict[str, msgspec.Raw] = msgspec.field(name="f:labels", default={})


class _Owned(msgspec.Struct, frozen=True):
    metadata: _OwnedMetadata = msgspec.field(name="f:metadata", default=_OwnedMetadata())


class _Manager(msgspec.Struct, rename="camel"):
    manager: str = ""
    operation: str = ""
    fields_v1: _Owned = msgspec.field(name="fieldsV1", default=_Owned())

    @property
    def metadata(self) -> _OwnedMetadata:
        return self.fields_v1.metadata

    @property
    def ours(self) -> bool:
        return self.manager == FIELD_MANAGER

    @property
    def applied_by_us(self) -> bool:
        return self.ours and self.operation == "Apply"


# Not kube.meta: decoded for every object of a collection, where each field costs.
class _Metadata(msgspec.Struct, rename="camel"):
    annotations: dict[str, str] | None = None
    labels: dict[str, str] | None = None
    managed_fields: msgspec.Raw = msgspec.Raw()


class _Spec(msgspec.Struct):
    replicas: msgspec.Raw = msgspec.Raw()


class _Object(msgspec.Struct):
    metadata: _Metadata
    spec: msgspec.Raw = msgspec.Raw()


_objects = msgspec.json.Decoder(_Object)
_managers = msgspec.json.Decoder(list[_Manager] | None)
_specs = msgspec.json.Decoder(_Spec)
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])
_NOWHERE: frozenset[str] = frozenset()
_OURS = FIELD_MANAGER.encode()


class Targets(Cache[Current]):
    """The objects of one target collection; empty while their kind is not served."""

    def __init__(
        self,
        changed: Callable[[ObjectKey], None],
        listed: Callable[[], None] = lambda: None,
        read_health: ReadHealth | None = None,
        *,
        digests: bool = False,
    ) -> None:
        """Call `changed` with each key that differs, and with all at the end of a LIST.

        `listed` is called after that. `read_health` reads where an object is healthy. `digests`:
        every object has a digest of its spec, not only one with a record of an addition.
        """
        super().__init__(
            partial(_current, read_health=read_health, digests=digests),
            self._counted,
            self._all,
            when_unknown="empty",
        )
        self._changed = changed
        self._was_listed = listed
        self.namespaces: Counter[str] = Counter()  # objects that are not idle, by namespace

    def _counted(self, changes: Changes[Current]) -> None:
        for key, (old, new) in changes.items():
            self.namespaces[key.namespace] += _counts(new) - _counts(old)
            if not self.namespaces[key.namespace]:
                # A Counter keeps zeros: deleted namespaces would add up.
                del self.namespaces[key.namespace]
            self._changed(key)

    def _all(self) -> None:
        for key in self.objects:
            self._changed(key)
        self._was_listed()


def _current(item: Item, read_health: ReadHealth | None, *, digests: bool) -> Current:
    try:
        whole = _objects.decode(item.body)
    except NO_JSON as error:  # it exists, but a change of it cannot be computed
        msg = f"{item.key} cannot be read: {error}"
        raise Retriable(msg) from error
    metadata = whole.metadata
    annotations, labels = metadata.annotations or {}, metadata.labels or {}
    ours, our_labels = _alone(metadata.managed_fields)
    return Current(
        item.uid,
        annotations,
        labels,
        item.version,
        ours & annotations.keys(),
        our_labels & labels.keys(),
        _is_idle(whole.spec),
        read_health(annotations, item.body) if read_health else _NOWHERE,
        _digest(whole.spec) if digests or ADDITION in annotations else "",
    )


def _counts(current: Current | None) -> bool:
    return current is not None and not current.idle


def _digest(spec: msgspec.Raw) -> str:
    """Return a digest of a spec without its replicas, which a controller may change often."""
    try:
        fields = _fields.decode(spec or b"{}")
    except NO_JSON:
        fields = {"": spec}
    texts = [(name, bytes(text).decode()) for name, text in sorted(fields.items())]
    return digest([pair for pair in texts if pair[0] != "replicas"])


def _is_idle(spec: msgspec.Raw) -> bool:
    """Return whether zero replicas are wanted; a missing field may mean some."""
    try:
        return bytes(_specs.decode(spec or b"{}").replicas) == b"0"
    except NO_JSON:
        return False


def _alone(raw: msgspec.Raw) -> tuple[frozenset[str], frozenset[str]]:
    """Return the annotations and labels that only the remediator owns."""
    # Fast path: we never wrote most objects, and their managedFields are long.
    if _OURS not in bytes(raw):
        return frozenset(), frozenset()
    try:
        managers = _managers.decode(raw) or []
    except NO_JSON:
        return frozenset(), frozenset()  # unknown: nothing is taken away on a guess
    annotations = ((found.applied_by_us, found.metadata.annotations) for found in managers)
    labels = ((found.ours, found.metadata.labels) for found in managers)
    return _of(annotations), _of(labels)


def _of(owners: Iterable[tuple[bool, Iterable[str]]]) -> frozenset[str]:
    """Return the keys that only we own; each owner comes with whether it is us."""
    ours, others = set[str](), set[str]()
    for is_ours, owned in owners:
        (ours if is_ours else others).update(owned)
    return frozenset(key.removeprefix("f:") for key in ours - others)
