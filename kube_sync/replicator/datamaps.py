"""Load ConfigMaps with JSON data as `data.<namespace>.<name>.<key>`, as kube-mgmt does.

Invariant: a ConfigMap's document is replaced whole; a key with broken JSON keeps its last good
value. What OPA rejects is reported on the ConfigMap and blocks no other. Only documents written
here are ever removed: for that, OPA itself holds an index, `/kube_sync/datamaps/<namespace>/<name>`
(one key, with its slash), which changes in the same transaction. So the next replicator removes
what was deleted while none ran. A rejected document is sent again when its ConfigMap changes or OPA
is reloaded. A load writes no document to a path that recorded policies claim before they are in
force: the document would be there first, and OPA would reject the policies. What policies say
against a document is part of its ConfigMap's status (`parameter_problems.py`).
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import structlog

from kube_sync.errors import NotFound, decoded
from kube_sync.kube.configmaps import ConfigMap, ConfigMaps
from kube_sync.objects import ObjectKey
from kube_sync.observability import metrics
from kube_sync.opa.client import OpaClient, OpaError, PolicyRejected
from kube_sync.opa.paths import DataPath, add_operation, remove_operation
from kube_sync.policies.status import status_of

log: structlog.stdlib.BoundLogger = structlog.get_logger()

INDEX: DataPath = ("kube_sync", "datamaps")
# Namespaces whose path in OPA is reserved; so is the root of the replicated data.
RESERVED = frozenset({"kube_sync", "system"})
NAME = "data-configmaps"  # in metrics, and for the `written` callback

_ADOPTED = b""  # in place of a digest: written by an earlier epoch
Values = Mapping[str, bytes]


# Sends operations as one PATCH of the epoch; returns when OPA has applied it, raises PolicyRejected
# if it never will, and EpochLost.
Send = Callable[[Sequence[bytes]], Awaitable[None]]
# Receives what was written: the collection's name and the changed keys.
Written = Callable[[str, Collection[ObjectKey]], None]
Want = Callable[[ConfigMap, str], None]
# Returns what policies say against a ConfigMap's document, None: not known yet.
Problems = Callable[[ObjectKey], Sequence[str] | None]
# Returns a predicate for the paths that recorded policies claim; may raise SyncError.
Claimed = Callable[[], Awaitable[Callable[[DataPath], bool]]]


@dataclass(slots=True)
class LastGood:
    """The last values of each ConfigMap that OPA accepted; they outlive the epochs."""

    values: dict[ObjectKey, Values] = field(default_factory=dict)


@dataclass(slots=True)
class Unsettled:
    """ConfigMaps whose write is in flight: OPA may hold the new state before it is announced."""

    name: str = NAME
    keys: set[ObjectKey] = field(default_factory=set)

    @property
    def pending(self) -> int:
        """The number of these ConfigMaps."""
        return len(self.keys)


class DataMaps:
    """Writes the ConfigMaps of all `stores` into OPA, in one epoch."""

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
        problems: Problems = lambda _key: (),
    ) -> None:
        """`reserved` are the namespaces whose path in OPA is taken; `want` writes a status.

        ConfigMaps at paths that are `claimed` during the load wait for `policies_loaded`.
        """
        self._problems = problems
        self._claimed = claimed
        self._claims: Callable[[DataPath], bool] | None = None  # None: OPA itself rejects conflicts
        self._opa = opa
        self._stores = stores
        self._reserved = frozenset(reserved)
        self._want = want
        self._written = written
        self._good = (good or LastGood()).values
        self._held: dict[ObjectKey, bytes] = {}  # digest of the document in OPA
        self._done: dict[ObjectKey, str] = {}  # the version that was processed
        self._failures: dict[ObjectKey, list[OpaError]] = {}  # of that version
        self._said: dict[ObjectKey, tuple[str, str]] = {}  # a version, and its wanted status
        self._changed = asyncio.Event()
        self.pending = False
        self.unsettled = Unsettled()

    def wake(self) -> None:
        """Notify that a ConfigMap may have changed."""
        self.pending = True
        self._changed.set()

    def policies_loaded(self) -> None:
        """Notify that policies are in force: from now on OPA itself rejects conflicting paths."""
        if self._claims is not None:
            self._claims = None
            self.wake()

    def places(self) -> list[DataPath]:
        """Return the paths of the documents written here."""
        return [_path(key) for key in self._held]

    async def load(self, send: Send) -> None:
        """When all are listed, write all documents, and remove what an earlier epoch left.

        Raises SyncError; then it may be called again.
        """
        await self._adopt()
        if self._stores and self._claimed is not None:
            self._claims = await self._claimed()
        while not all(store.listed for store in self._stores):
            self._changed.clear()
            await self._changed.wait()
        await self.write(send)

    async def write(self, send: Send) -> None:
        """Write the current state of the ConfigMaps into OPA. Raises SyncError."""
        self.pending = False
        wanted = {found.key: found for store in self._stores for found in store}
        for key in [key for key in {*self._held, *self._done} if key not in wanted]:
            await self._forget(key, send)
        for found in wanted.values():
            if self._done.get(found.key) != found.version and not self._waits(found.key):
                await self._write_one(found, send)
            if self._done.get(found.key) == found.version:
                self._report(found)
        self._settle()
        metrics.replicated_objects.labels(NAME).set(len(self._held))

    def _waits(self, key: ObjectKey) -> bool:
        """Return whether a recorded policy claims its path, and OPA does not hold it yet."""
        return self._claims is not None and key not in self._held and self._claims(_path(key))

    async def _adopt(self) -> None:
        """Read the index that an earlier epoch wrote, and create it if it is missing."""
        body = await self._opa.get_data(INDEX)
        problem = "what answers is not OPA, or not its index of data"
        index = decoded(body or b"{}", dict[str, Any], problem)
        if body is None and self._stores:
            await self._opa.put_data(INDEX, b"{}")
        keys = (ObjectKey(*entry.split("/", 1)) for entry in index if "/" in entry)
        # A namespace that is reserved now was not then; its data belongs to somebody else by now.
        self._held = {key: _ADOPTED for key in keys if key.namespace not in self._reserved}
        self._done.clear()

    async def _write_one(self, found: ConfigMap, send: Send) -> None:
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
        self._failures[found.key] = failures
        for failure in failures:
            log.warning("data_not_loaded", configmap=str(found.key), error=str(failure))

    def _report(self, found: ConfigMap) -> None:
        problems, failures = self._problems(found.key), self._failures[found.key]
        if problems is None and not failures:
            return  # or a status of an earlier load would be "ok" until policies are in force
        said = [_failure("invalid_parameters", text, str(found.key)) for text in problems or ()]
        status = status_of([*failures, *said])
        version, last = self._said.get(found.key, ("", ""))
        if status != (last if version == found.version else found.status):
            self._want(found, status)
            self._said[found.key] = found.version, status

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
        # A PATCH creates no parents, and a parent made by PATCH could conflict: only OPA can tell.
        await self._opa.ensure_data(_path(key))
        await send([add_operation(_path(key), document), add_operation(_entry(key), b"true")])
        self._held[key], self._good[key] = digest, values
        self._note(key, len(document))

    async def _forget(self, key: ObjectKey, send: Send) -> None:
        if key in self._held:
            try:
                await self._remove(key, send)
            except (PolicyRejected, NotFound) as error:
                # Taken over by somebody else: not ours to remove.
                log.warning("data_not_removed", configmap=str(key), error=str(error))
                self._held.pop(key, None)
        for known in (self._good, self._done, self._failures, self._said):
            known.pop(key, None)

    async def _remove(self, key: ObjectKey, send: Send) -> None:
        self._begin(key)
        # Removing a missing path would fail the PATCH, and look like a lost OPA.
        await self._opa.ensure_data(_path(key))
        await self._opa.ensure_data(_entry(key))
        await send([remove_operation(_path(key)), remove_operation(_entry(key))])
        del self._held[key]
        self._note(key, 0)

    async def _values(self, found: ConfigMap) -> tuple[Values, list[OpaError]]:
        """Return the values for OPA, and the errors of the others."""
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
        """Return the value in force of a key; one of an earlier process is in OPA alone."""
        if key in self._good or self._held.get(key) != _ADOPTED:
            return self._good.get(key, {}).get(name)
        return await self._opa.get_data((*_path(key), name))

    def _begin(self, key: ObjectKey) -> None:
        """Record that OPA may hold a new state from the first request on."""
        self.unsettled.keys.add(key)

    def _note(self, key: ObjectKey, size: int) -> None:
        metrics.replicated_bytes.labels(NAME).inc(size)
        self._written(NAME, [key])
        self.unsettled.keys.discard(key)

    def _settle(self) -> None:
        """Announce failed writes too: their parent path may have been created."""
        if self.unsettled.keys:
            self._written(NAME, sorted(self.unsettled.keys))
            self.unsettled.keys.clear()


def why_no_json(text: str) -> str | None:
    """Return why OPA would reject a value, None: it would not."""
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
