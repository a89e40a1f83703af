"""A replicator's own key in the ConfigMap of last good policies: versions under trial or refused.

Invariant: each replicator patches only its own key, named after its host, so that replicators do
not overwrite each other. It waits for the API server two seconds at most, and continues without it
after one warning. Versions are recorded by digest, without their content, except those to restore
while OPA keeps ending.
"""

from __future__ import annotations

import asyncio
import re
import time
from typing import Final

import msgspec
import structlog

from kube_sync.errors import NO_JSON, NotFound, SyncError
from kube_sync.kube.policymaps import CONFIGMAPS
from kube_sync.policies.last_good import NAME, Api, patch_record
from kube_sync.policies.opa_crashes import STOOD_SECONDS, Count

log: structlog.stdlib.BoundLogger = structlog.get_logger()

_PREFIX: Final = "quarantine."
_SECONDS: Final = 2.0
_STALE_SECONDS: Final = 86_400.0  # a key of another host, unwritten for so long, is removed


class State(msgspec.Struct, omit_defaults=True):
    """The record of one replicator."""

    trying: dict[str, int] = {}  # by digest: trials begun without an end
    refused: dict[str, str] = {}  # by digest: the reason
    written: int = 0  # seconds since 1970
    counts: dict[str, Count] = {}  # by digest: ends of OPA with it, oldest first
    ends: int = 0  # ends of OPA since a version was last blamed
    before: str = ""  # the versions before these, packed
    doubtful: dict[str, str] = {}  # by digest: the policy; blamed since OPA last stood
    ended: int = 0  # the last end of OPA: seconds since 1970


class _ConfigMap(msgspec.Struct):
    data: dict[str, str] | None = None


class Marker:
    """Reads the records of all replicators, and writes that of this one."""

    def __init__(self, client: Api, namespace: str, host: str) -> None:
        self._client = client
        self._namespace = namespace
        self._key = _PREFIX + re.sub(r"[^-._a-zA-Z0-9]", "_", host)
        self._there = False  # whether the key exists, as far as known
        self._stale: list[str] = []
        self._complained = False

    async def load(self) -> State:
        """Return this host's record, with all versions that any host refuses."""
        try:
            async with asyncio.timeout(_SECONDS):
                path = CONFIGMAPS.path(self._namespace, NAME)
                body = await self._client.request("GET", path)
            found = _states(body)
        except NotFound:
            return State()
        except (SyncError, TimeoutError, *NO_JSON) as error:
            self._complain(error)
            return State()
        own = found.get(self._key, State())
        self._there = self._key in found
        now = time.time()
        self._stale = [
            key
            for key, state in found.items()
            if key != self._key and now - state.written > _STALE_SECONDS
        ]
        refused = {d: why for state in found.values() for d, why in state.refused.items()}
        if now - own.ended > STOOD_SECONDS:
            own.counts, own.ends, own.before, own.doubtful = {}, 0, "", {}
        own.refused = refused | own.refused
        return own

    async def write(self, state: State) -> None:
        """Write the record; a failure is logged and not raised."""
        says = bool(state.trying or state.refused or state.counts or state.doubtful)
        if not says and not self._there:
            return
        state.written = int(time.time())
        text = msgspec.json.encode(state).decode() if says else None
        data = {**dict.fromkeys(self._stale), self._key: text}
        try:
            async with asyncio.timeout(_SECONDS):
                await patch_record(self._client, self._namespace, {"data": data})
        except (SyncError, TimeoutError) as error:
            self._complain(error)
        else:
            self._there, self._stale, self._complained = says, [], False

    def _complain(self, error: Exception) -> None:
        if not self._complained:
            where = f"{self._namespace}/{NAME}"
            log.warning("policy_trials_not_marked", configmap=where, error=str(error) or "late")
        self._complained = True


def _states(body: bytes) -> dict[str, State]:
    data = msgspec.json.decode(body, type=_ConfigMap).data or {}
    return {
        key: msgspec.json.decode(text, type=State)
        for key, text in data.items()
        if key.startswith(_PREFIX)
    }
