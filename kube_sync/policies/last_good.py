"""The ConfigMap `kube-sync-last-good`: the modules of each policy when it last compiled.

Invariant: it is read once, when the replicator starts, and never influences what compiles. Without
it (no permissions, no namespace) the last good versions are in memory alone, after one warning. A
record that could not be read is not replaced: its content is merged into what is written.
"""

from __future__ import annotations

import base64
import gzip
from collections.abc import Mapping
from typing import Final, Protocol

import msgspec
import structlog

from kube_sync.errors import Conflict, NotFound, Refused, Retriable, SyncError
from kube_sync.kube.lease import Leadership
from kube_sync.kube.policymaps import CONFIGMAPS
from kube_sync.objects import ObjectKey
from kube_sync.opa.scratch import Modules
from kube_sync.policies.set_compiler import Versions

log: structlog.stdlib.BoundLogger = structlog.get_logger()

NAME = "kube-sync-last-good"
_KEY = "modules.json.gz"
UNREADABLE: Final = (msgspec.MsgspecError, ValueError, OSError, EOFError)
_MERGE_PATCH: Final = "application/merge-patch+json"
_LARGEST = 900_000  # bytes of the body; the API server takes 1 MiB


class _ConfigMap(msgspec.Struct, rename="camel"):
    binary_data: dict[str, str] | None = None


class Api(Protocol):
    """The API server."""

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        content_type: str = "application/json",
    ) -> bytes:
        """Make one request. Raises SyncError."""


class LastGood:
    """Reads the record in one namespace, and writes it while this replica is the leader."""

    def __init__(self, client: Api, namespace: str, leadership: Leadership) -> None:
        self._client = client
        self._leadership = leadership
        self._namespace = namespace
        self._saved: bytes | None = None
        self._unread = False  # a record that could not be read may hold more
        self._late: dict[ObjectKey, Modules] = {}  # content of that record, once it was read
        self._complained = False

    async def load(self) -> dict[ObjectKey, Modules]:
        """Return the recorded last good versions. Raises SyncError if that cannot be determined."""
        try:
            body = await self._client.request("GET", CONFIGMAPS.path(self._namespace, NAME))
        except NotFound as error:
            # The API server's own 404 names the missing object; any other 404 comes from something
            # else.
            if NAME not in str(error):
                msg = f"ConfigMap {self._namespace}/{NAME}: {error}; this is not believed"
                raise Retriable(msg) from error
            self._unread = False
            return {}
        except Refused as error:
            self._unread = True
            self._complain(error)
            return {}
        self._unread = False
        try:
            return unpacked(body)
        except UNREADABLE as error:
            log.warning("last_good_policies_unreadable", configmap=NAME, error=str(error))
            return {}

    async def save(self, good: Versions) -> None:
        """Write the record if it has changed; a failure is logged, not raised."""
        if not self._leadership.held:
            return
        try:
            if self._unread:
                self._late = await self.load()
            packed, left_out = fitting({**self._late, **good}, _LARGEST)
            if self._unread or packed == self._saved:
                return
            await self._write(packed)
            self._saved = packed
            if left_out:
                names = ", ".join(map(str, left_out))
                msg = f"all together are more than a ConfigMap takes; without {names}"
                raise Refused(msg)
        except SyncError as error:
            self._complain(error)
        else:
            self._complained = False

    async def _write(self, packed: bytes) -> None:
        record = {"binaryData": {_KEY: base64.b64encode(packed).decode()}}
        await patch_record(self._client, self._namespace, record)

    def _complain(self, error: SyncError) -> None:
        if not self._complained:
            where = f"{self._namespace}/{NAME}"
            log.warning("last_good_policies_not_kept", configmap=where, error=str(error))
        self._complained = True


async def patch_record(
    client: Api, namespace: str, content: Mapping[str, Mapping[str, str | None]]
) -> None:
    """Merge keys into the ConfigMap (None: remove), or create it. Raises SyncError.

    Other keys stay: each replicator has its own.
    """
    path, patch = CONFIGMAPS.path(namespace, NAME), msgspec.json.encode(content)
    try:
        await client.request("PATCH", path, body=patch, content_type=_MERGE_PATCH)
    except NotFound:
        metadata = {"name": NAME, "namespace": namespace}
        new = {
            field: {key: value for key, value in keys.items() if value is not None}
            for field, keys in content.items()
        }
        whole = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, **new}
        try:
            body = msgspec.json.encode(whole)
            await client.request("POST", CONFIGMAPS.path(namespace), body=body)
        except Conflict:  # another replica created it first
            await client.request("PATCH", path, body=patch, content_type=_MERGE_PATCH)


def fitting(good: Versions, largest: int) -> tuple[bytes, list[ObjectKey]]:
    """Return the record, and the policies left out: the largest, if it is too large.

    Otherwise whoever may write one policy could keep all others off the record.
    """
    kept, left_out = dict(good), list[ObjectKey]()
    while len(packed := _packed(kept)) > largest:
        left_out.append(max(kept, key=lambda key: sum(map(len, kept[key].values()))))
        del kept[left_out[-1]]
    return packed, left_out


def _packed(good: Versions) -> bytes:
    record = {str(key): modules for key, modules in sorted(good.items())}
    return gzip.compress(msgspec.json.encode(record, order="deterministic"), mtime=0)


def unpacked(body: bytes) -> dict[ObjectKey, Modules]:
    """Parse a record from the API server's JSON. Raises one of UNREADABLE."""
    found = msgspec.json.decode(body, type=_ConfigMap).binary_data or {}
    return versions_of(found.get(_KEY, ""))


def versions_of(text: str) -> dict[ObjectKey, Modules]:
    """Parse the base64 text of what `fitting` packed. Raises one of UNREADABLE."""
    content = gzip.decompress(base64.b64decode(text) or gzip.compress(b"{}"))
    record = msgspec.json.decode(content, type=dict[str, dict[str, str]])
    return {ObjectKey(*key.split("/", 1)): modules for key, modules in record.items()}
