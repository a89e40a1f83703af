"""ConfigMaps that hold JSON data, as `data.<namespace>.<name>.<key>`, as kube-mgmt loads them.

Keeps true: a ConfigMap's document is replaced whole, its good keys with the last good value of each
that is broken; what OPA refuses is told on the ConfigMap and holds up no other; and only what was
written here is ever removed. For that OPA itself holds an index of them,
`/kube_sync/datamaps/<namespace>/<name>` (one key, with its slash), which changes in the same
transaction: what was deleted while no replicator ran is removed by the next one. A refused document
is sent again when its ConfigMap changes, or when OPA is loaded again. Where policies on record lie,
a load brings no document before these are in force: it would be there first, and they refused.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import structlog

from kube_sync.errors import NO_JSON, NotFound, Retriable
from kube_sync.kube.configmaps import ConfigMap, ConfigMaps
from kube_sync.objects import ObjectKey
from kube_sync.observability import metrics
from kube_sync.opa.client import OpaClient, OpaError, PolicyRejected
from kube_sync.opa.paths import DataPath, add_operation, remove_operation
from kube_sync.policies.status import status_of

log: structlog.stdlib.BoundLogger = structlog.get_logger()

INDEX: DataPath = ("kube_sync", "datamaps")
# Namespaces whose place in OPA is taken, and so is the root of what is replicated.
RESERVED = frozenset({"kube_sync", "system"})
NAME = "data-configmaps"  # in metrics, and to whoever is told what was written

_ADOPTED = b""  # in place of a digest: an earlier epoch wrote it
Values = Mapping[str, bytes]


# Sends operations as one PATCH of the epoch; returns when OPA has taken it, raises PolicyRejected
# when it never will, and EpochLost.
Send = Callable[[Sequence[bytes]], Awaitable[None]]
# What was written: the collection's name and the keys that changed in it.
Written = Callable[[str, Collection[ObjectKey]], None]
Want = Callable[[ConfigMap, str], None]
# Returns what tells whether a policy that is to come takes a place; it may raise SyncError.
Claimed = Callable[[], Awaitable[Callable[[DataPath], bool]]]


@dataclass(slots=True)
class LastGood:
    """The values of each ConfigMap that OPA took last; it outlives the epochs."""

    values: dict[ObjectKey, Values] = field(default_factory=dict)


@dataclass(slots=True)
class Unsettled:
    """ConfigMaps of which OPA may hold something new already that nobody was told of yet."""

    name: str = NAME
    keys: set[ObjectKey] = field(default_factory=set)

    @property
    def pending(self) -> int:
        """How many there are."""
        return len(self.keys)


class DataMaps:
    """Brings the ConfigMaps of all `stores` into OPA, in one epoch."""

    def __init__(
        self,
        opa: OpaClient,
        stores: Sequence[ConfigMaps[ConfigMap]],
        reserved: Collection[str],
        want: Want,
        written: Written,
        *,
        good: LastGood | None = None,
        claimed: Claimed | None = None,
    ) -> None:
        """`reserved` are the namespaces whose place in OPA is taken; `want` writes a status.

        What lies at a place that is `claimed` at the load waits for `policies_stand`.
        """
        self._claimed = claimed
        self._claims: Callable[[DataPath], bool] | None = None  # None: OPA itself tells
        self._opa = opa
        self._stores = stores
        self._reserved = frozenset(reserved)
        self._want = want
        self._written = written
        self._good = (good or LastGood()).values
        self._held: dict[ObjectKey, bytes] = {}  # digest of what OPA holds
        self._done: dict[ObjectKey, str] = {}  # the version that was dealt with
        self._news = asyncio.Event()
        self.pending = False
        self.unsettled = Unsettled()

    def wake(self) -> None:
        """Say that a ConfigMap may have changed."""
        self.pending = True
        self._news.set()

    def policies_stand(self) -> None:
        """Say that policies are in force: from here on OPA tells what is taken."""
        if self._claims is not None:
            self._claims = None
            self.wake()

    def places(self) -> list[DataPath]:
        """Return where data lies that was written here."""
        return [_path(key) for key in self._held]

    async def load(self, send: Send) -> None:
        """Once all are listed, make OPA hold them, and nothing that an earlier epoch left.

        Raises SyncError; then it may be called again.
        """
        await self._adopt()
        if self._stores and self._claimed is not None:
            self._claims = await self._claimed()
        while not all(store.listed for store in self._stores):
            self._news.clear()
            await self._news.wait()
        await self.write(send)

    async def write(self, send: Send) -> None:
        """Make OPA hold what the ConfigMaps say now. Raises SyncError."""
        self.pending = False
        wanted = {found.key: found for store in self._stores for found in store}
        for key in [key for key in {*self._held, *self._done} if key not in wanted]:
            await self._forget(key, send)
        for found in wanted.values():
            if self._done.get(found.key) != found.version and not self._waits(found.key):
                await self._bring(found, send)
        self._settle()
        metrics.replicated_objects.labels(NAME).set(len(self._held))

    def _waits(self, key: ObjectKey) -> bool:
        """Tell whether a policy that is to come takes its place, and OPA does not hold it."""
        return self._claims is not None and key not in self._held and self._claims(_path(key))

    async def _adopt(self) -> None:
        """Learn what an earlier epoch wrote, and make sure that there is an index."""
        body = await self._opa.get_data(INDEX)
        try:
            index = msgspec.json.decode(body or b"{}", type=dict[str, Any])
        except NO_JSON as error:
            msg = f"what answers is not OPA, or not its index of data: {error}"
            raise Retriable(msg) from error
        if body is None and self._stores:
            await self._opa.put_data(INDEX, b"{}")
        keys = (ObjectKey(*entry.split("/", 1)) for entry in index if "/" in entry)
        # What is reserved now was not when it was written: by now it is somebody else's.
        self._held = {key: _ADOPTED for key in keys if key.namespace not in self._reserved}
        self._done.clear()

    async def _bring(self, found: ConfigMap, send: Send) -> None:
        values, failures = await self._values(found)
        if found.key.namespace in self._reserved:
            message = f"data.{found.key.namespace} is reserved"
            values, failures = {}, [_failure("reserved", message, str(found.key))]
        try:
            await self._put(found.key, values, send)
        except PolicyRejected as error:
            failures.append(error.error)
        except NotFound as error:
            failures.append(_failure("resource_conflict", str(error), str(found.key)))
        self._done[found.key] = found.version
        for failure in failures:
            log.warning("data_not_loaded", configmap=str(found.key), error=str(failure))
        if (status := status_of(failures)) != found.status:
            self._want(found, status)

    async def _put(self, key: ObjectKey, values: Values, send: Send) -> None:
        if not values:
            if key in self._held:
                await self._remove(key, send)
            return
        document = _document(values)
        digest = hashlib.blake2b(document, digest_size=16).digest()
        if self._held.get(key) == digest:
            return
        self._begin(key)
        # A PATCH creates no parents, and one that it made could be somebody's: OPA alone can tell.
        await self._opa.ensure_data(_path(key))
        await send([add_operation(_path(key), document), add_operation(_entry(key), b"true")])
        self._held[key], self._good[key] = digest, values
        self._note(key, len(document))

    async def _forget(self, key: ObjectKey, send: Send) -> None:
        if key in self._held:
            try:
                await self._remove(key, send)
            except (PolicyRejected, NotFound) as error:
                # Somebody else's by now: it is not ours to remove.
                log.warning("data_not_removed", configmap=str(key), error=str(error))
                self._held.pop(key, None)
        self._good.pop(key, None)
        self._done.pop(key, None)

    async def _remove(self, key: ObjectKey, send: Send) -> None:
        self._begin(key)
        # Removing what is not there would fail the PATCH, and read as an OPA that was lost.
        await self._opa.ensure_data(_path(key))
        await self._opa.ensure_data(_entry(key))
        await send([remove_operation(_path(key)), remove_operation(_entry(key))])
        del self._held[key]
        self._note(key, 0)

    async def _values(self, found: ConfigMap) -> tuple[Values, list[OpaError]]:
        """Return what OPA is to hold, and what is wrong with the rest."""
        values: dict[str, bytes] = {}
        failures: list[OpaError] = []
        for name, text in found.data.items():
            if (reason := why_no_json(text)) is None:
                values[name] = text.encode()
                continue
            failures.append(_failure("invalid_json", reason, f"{found.key}/{name}"))
            if (good := await self._last_good(found.key, name)) is not None:
                values[name] = good
        return values, failures

    async def _last_good(self, key: ObjectKey, name: str) -> bytes | None:
        """Return the value in force of a key; an earlier process's is in OPA alone."""
        if key in self._good or self._held.get(key) != _ADOPTED:
            return self._good.get(key, {}).get(name)
        return await self._opa.get_data((*_path(key), name))

    def _begin(self, key: ObjectKey) -> None:
        """Take note that OPA may hold something new from the first request on."""
        self.unsettled.keys.add(key)

    def _note(self, key: ObjectKey, size: int) -> None:
        metrics.replicated_bytes.labels(NAME).inc(size)
        self._written(NAME, [key])
        self.unsettled.keys.discard(key)

    def _settle(self) -> None:
        """Tell of those that failed: the place that was made for them may be there."""
        if self.unsettled.keys:
            self._written(NAME, sorted(self.unsettled.keys))
            self.unsettled.keys.clear()


def why_no_json(text: str) -> str | None:
    """Return what OPA would have against a value, None: nothing."""
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError) as error:
        return f"not JSON: {error}"
    except RecursionError:
        return "not JSON that OPA takes: nested too deeply"
    return None


def _document(values: Values) -> bytes:
    members = (msgspec.json.encode(name) + b":" + text for name, text in sorted(values.items()))
    return b"{" + b",".join(members) + b"}"


def _failure(code: str, message: str, file: str) -> OpaError:
    cause = {"code": code, "message": message, "location": {"file": file}}
    return OpaError(code, f"{file}: {message}", [cause])


def _path(key: ObjectKey) -> DataPath:
    return key.namespace, key.name


def _entry(key: ObjectKey) -> DataPath:
    return (*INDEX, str(key))
