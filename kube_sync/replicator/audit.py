"""Audit OPA's data: compare the resourceVersions of a sample of keys, in rotation.

The epoch proves that OPA is the one that was loaded, not that nobody wrote to it by hand. So each
check asks a generated module for the resourceVersions of up to a hundred keys, in rotation over all
of them. Invariant: no false alarm. The check runs in the Writer's own task, so no write of ours is
in flight, and a Mirror's view of OPA's data does not change during the query. An OPA without the
module, or with one for another root, gives no answer, and then nothing is concluded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import msgspec
import structlog

from kube_sync.config import TOPOLOGY
from kube_sync.errors import NO_JSON, EpochLost, SyncError
from kube_sync.objects import ObjectKey
from kube_sync.observability import metrics
from kube_sync.opa.client import QueryApi
from kube_sync.replicator.mirror import Mirror

log: structlog.stdlib.BoundLogger = structlog.get_logger()

AUDIT_MODULE = "kube_sync/replicator/audit"
_VERSIONS = "kube_sync/audit/versions"
_KEYS = 100  # in one query, over all collections
# Nobody waits for the answer, but the next change waits for the end of the query.
_SECONDS = 2.0
_COLLECTION = ObjectKey("", "")  # stands for the collection itself, if it is empty


@dataclass(frozen=True, slots=True)
class _Sample:
    collection: Mirror
    key: ObjectKey
    version: str

    @property
    def still_holds(self) -> bool:
        """Whether OPA should still have the version that it had when it was queried."""
        if not self.collection.loaded:
            return False
        return self.key == _COLLECTION or self.collection.holds(self.key) == self.version


class Audit:
    """Compares part of OPA's data with the Mirrors, another part each time."""

    def __init__(self, opa: QueryApi, root: str) -> None:
        self._opa = opa
        self._root = root
        self._rest: dict[str, Iterator[ObjectKey]] = {}  # by collection, keys not checked yet

    async def check(self, collections: Iterable[Mirror]) -> None:
        """Compare a sample of each collection. Raises EpochLost if OPA holds something else."""
        loaded = [collection for collection in collections if collection.loaded]
        share = max(1, _KEYS // max(1, len(loaded)))
        samples = [found for collection in loaded for found in self._of(collection, share)]
        answer = await self._query(samples)
        if answer is None:
            return
        try:
            found = msgspec.json.decode(answer, type=dict[str, str])
        except NO_JSON as error:  # not an answer of the module
            log.warning("audit_not_understood", error=str(error))
            return
        for index, sample in enumerate(samples):
            self._compare(sample, found.get(str(index)))

    def _compare(self, sample: _Sample, found: str | None) -> None:
        name, key = sample.collection.name, sample.key
        if found == sample.version or not sample.still_holds:
            return
        metrics.audit_differences.labels(name).inc()
        log.warning("opa_differs", collection=name, key=str(key), missing=found is None)
        msg = f"OPA does not hold {name} as it was written: somebody else changed it"
        raise EpochLost(msg)

    async def _query(self, samples: Sequence[_Sample]) -> bytes | None:
        items = [[s.collection.name, s.key.namespace, s.key.name] for s in samples]
        body = msgspec.json.encode({"input": {"root": self._root, "items": items}})
        try:
            async with asyncio.timeout(_SECONDS):
                return await self._opa.query(_VERSIONS, body)
        except (SyncError, TimeoutError) as error:
            # Whether OPA is reachable is found out by the heartbeat.
            log.info("audit_unanswered", error=str(error) or type(error).__name__)
            return None

    def _of(self, collection: Mirror, share: int) -> list[_Sample]:
        """Take the next keys of one collection, and start over after the last."""
        if not collection.object_count:
            return [_Sample(collection, _COLLECTION, "")]
        keys = list(islice(self._rest.get(collection.name, iter(())), share))
        if not keys:
            # A copy: the keys may change before the last one is checked.
            self._rest[collection.name] = iter(list(collection.keys()))
            keys = list(islice(self._rest[collection.name], share))
        versions = ((key, collection.holds(key)) for key in keys)
        return [
            _Sample(collection, key, version) for key, version in versions if version is not None
        ]


# Below the first rule, with root and topology name substituted.
_RULES = """\
# One field each, so that OPA reads no whole object.
_versions[index] := data[ROOT][collection][namespace][name].metadata.resourceVersion if {
	some index, [collection, namespace, name] in input.items
	namespace != ""
}

_versions[index] := data[ROOT][collection][name].metadata.resourceVersion if {
	some index, [collection, "", name] in input.items
	name != ""
}

_present[index] := "" if {
	some index, [collection, namespace, name] in input.items
	namespace != ""
	data[ROOT][collection][namespace][name].metadata.name
}

_present[index] := "" if {
	some index, [collection, "", name] in input.items
	name != ""
	data[ROOT][collection][name].metadata.name
}

# A record that is made here has no metadata; it is a small one.
_present[index] := "" if {
	some index, ["TOPOLOGY", section, name] in input.items
	_ = data[ROOT]["TOPOLOGY"][section][name]
}

_present[index] := "" if {
	some index, [collection, "", ""] in input.items
	data[ROOT][collection]
}
"""


def audit_module(root: str) -> str:
    """Return the Rego module that reports the resourceVersions of objects below `root`.

    `input.items` are [collection, namespace, name], the namespace "" if cluster-scoped. The answer
    is {index: resourceVersion}, "" for an object without one. An empty name asks for the collection
    itself: "" if it exists.
    """
    name = msgspec.json.encode(root).decode()
    return f"""package kube_sync.audit

# No answer where the replicator has another root than this was made for.
versions := object.union(_present, _versions) if input.root == {name}

{_RULES.replace("TOPOLOGY", TOPOLOGY).replace("ROOT", name)}"""
