"""Policy ConfigMaps into OPA, and the outcome back to whoever wrote them.

Keeps true: a module that OPA refuses changes nothing (its last good version, if this process has
seen one, stays in force), delays no other module, and says why on its own ConfigMap; a module
whose key or ConfigMap is gone is unloaded. Reconciling an unchanged world writes nothing.

It loads one module at a time, so modules that need each other are tried again as long as any
attempt succeeds; a cycle between modules cannot be loaded this way.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Iterable, Sequence
from importlib.resources import files
from typing import NoReturn, Protocol

import msgspec
import structlog

from kube_sync.errors import Refused, Retriable, SyncError
from kube_sync.kube.policymaps import PolicyMap, PolicyMaps
from kube_sync.observability import metrics
from kube_sync.observability.readiness import Readiness
from kube_sync.opa.client import OpaError, PolicyRejected
from kube_sync.opa.paths import DataPath
from kube_sync.runtime.backoff import Backoff

log: structlog.stdlib.BoundLogger = structlog.get_logger()

_INSPECT = "kube_sync/replicator/inspect"
_FINDINGS = "kube_sync/inspect/findings"
_OK = '{"status":"ok"}'


class PolicyApi(Protocol):
    """The part of OPA that holds policies."""

    async def policy_ids(self) -> list[str]:
        """Return the ids of all modules."""
        ...

    async def put_policy(self, policy_id: str, source: str) -> None:
        """Load one module, or raise PolicyRejected."""
        ...

    async def delete_policy(self, policy_id: str) -> None:
        """Unload one module."""
        ...

    async def query(self, path: str, body: bytes) -> bytes | None:
        """Ask for a document."""
        ...


# Told the digest of the modules in force, and how many they are.
Changed = Callable[[str, int], None]
Annotate = Callable[[PolicyMap, str], Awaitable[None]]


class PolicyLoader:
    """Makes OPA hold what the policy ConfigMaps say; it outlives the epochs of OPA's data."""

    def __init__(
        self,
        opa: PolicyApi,
        annotate: Annotate,
        roots: Sequence[DataPath],
        readiness: Readiness,
        *,
        backoff: Backoff | None = None,
    ) -> None:
        """`roots` are where replicated data lies."""
        self._opa = opa
        self._annotate = annotate
        self._roots = roots
        self._readiness = readiness
        self._backoff = backoff or Backoff(longest=5.0)
        self._news = asyncio.Event()
        self._held: dict[str, str | None] = {}  # source by id; None: held, but not known
        self._last_good: dict[str, str] = {}
        self._told: str | None = None
        self._changed: Changed = _nobody

    def wake(self) -> None:
        """Say that a policy ConfigMap may have changed."""
        self._news.set()

    async def run(
        self,
        maps: Sequence[PolicyMaps],
        loaded: asyncio.Event,
        applied: asyncio.Event,
        changed: Changed,
    ) -> NoReturn:
        """Once the data is `loaded`, keep OPA's modules equal to `maps`.

        Sets `applied` when they are for the first time, and tells `changed` the digest in force
        and of how many modules it is.
        """
        self._told, self._changed = None, changed
        self._readiness.waiting("policies", "they are loaded after the data")
        await loaded.wait()
        while not all(found.listed for found in maps):
            self._readiness.waiting("policies", "the policy ConfigMaps are not listed yet")
            self._news.clear()
            await self._news.wait()
        adopted = False
        while True:
            self._news.clear()
            try:
                if not adopted:
                    await self._adopt([found.namespace for found in maps])
                    adopted = True
                await self._reconcile([policy for found in maps for policy in found])
            except SyncError as error:
                self._readiness.waiting("policies", str(error))
                await self._backoff.wait(getattr(error, "retry_after", None))
                continue
            self._readiness.met("policies")
            applied.set()
            self._backoff.progressed()
            await self._news.wait()

    async def _adopt(self, namespaces: Sequence[str]) -> None:
        """Learn which of our modules this OPA holds; their source has to be written again."""
        source = files("kube_sync.replicator").joinpath("inspect.rego").read_text(encoding="utf-8")
        await self._opa.put_policy(_INSPECT, source)
        ours = tuple(f"{namespace}/" for namespace in namespaces)
        self._held = dict.fromkeys(i for i in await self._opa.policy_ids() if i.startswith(ours))

    async def _reconcile(self, policies: Sequence[PolicyMap]) -> None:
        wanted = {i: source for policy in policies for i, source in policy.modules.items()}
        failures = await self._load(wanted)
        failures |= await self._unload([i for i in self._held if i not in wanted])
        for policy_id in failures.keys() & wanted.keys():
            await self._fall_back(policy_id)
        self._last_good = {i: s for i, s in self._last_good.items() if i in wanted}
        metrics.policies_in_force.set(len(self._held))
        if (in_force := digest(self._held)) != self._told:
            self._told = in_force
            self._changed(in_force, len(self._held))
        for policy in policies:
            await self._tell(policy, [failures[i] for i in policy.modules if i in failures])

    async def _load(self, wanted: dict[str, str]) -> dict[str, OpaError]:
        missing = [i for i, source in wanted.items() if self._held.get(i) != source]
        return await self._rounds(missing, lambda i: self._put(i, wanted[i]))

    async def _unload(self, unwanted: Iterable[str]) -> dict[str, OpaError]:
        failures = await self._rounds(unwanted, self._delete)
        for policy_id, error in failures.items():
            log.warning("policy_not_unloaded", policy=policy_id, error=str(error))
        return failures

    async def _rounds(
        self, policy_ids: Iterable[str], attempt: Callable[[str], Awaitable[None]]
    ) -> dict[str, OpaError]:
        """Attempt each; go round again while that helps, since one may need another."""
        failures: dict[str, OpaError] = {}
        waiting = sorted(policy_ids)
        while waiting:
            for policy_id in waiting:
                try:
                    await attempt(policy_id)
                    failures.pop(policy_id, None)
                except PolicyRejected as error:
                    failures[policy_id] = error.error
                except Refused as error:
                    # OPA's own authorization: this namespace is not among those it lets us load.
                    failures[policy_id] = OpaError("unauthorized", str(error))
            if len(failures) == len(waiting):
                break
            waiting = sorted(failures)
        for policy_id, failure in failures.items():
            metrics.policy_loads.labels("rejected").inc()
            log.warning("policy_rejected", policy=policy_id, error=str(failure))
        return failures

    async def _put(self, policy_id: str, source: str) -> None:
        if findings := await self._inspect(source):
            message = "; ".join(findings)
            cause = {"code": "forbidden", "message": message, "location": {"file": policy_id}}
            raise PolicyRejected(OpaError("forbidden", message, [cause]))
        await self._opa.put_policy(policy_id, source)
        self._held[policy_id] = self._last_good[policy_id] = source
        metrics.policy_loads.labels("loaded").inc()
        log.info("policy_loaded", policy=policy_id)

    async def _delete(self, policy_id: str) -> None:
        await self._opa.delete_policy(policy_id)
        del self._held[policy_id]
        log.info("policy_unloaded", policy=policy_id)

    async def _fall_back(self, policy_id: str) -> None:
        """Put the last good version into an OPA that holds none, or one we do not know."""
        good = self._last_good.get(policy_id)
        if good is None or self._held.get(policy_id) == good:
            return
        try:
            await self._put(policy_id, good)
        except PolicyRejected as error:
            log.warning("last_good_policy_rejected", policy=policy_id, error=str(error))

    async def _inspect(self, source: str) -> list[str]:
        body = msgspec.json.encode({"input": {"source": source, "roots": self._roots}})
        answer = await self._opa.query(_FINDINGS, body)
        if answer is None:
            msg = "OPA lost the inspection module"
            raise Retriable(msg)
        return msgspec.json.decode(answer, type=list[str])

    async def _tell(self, policy: PolicyMap, failures: Sequence[OpaError]) -> None:
        status = _status(failures)
        if policy.status == status:
            return
        try:
            await self._annotate(policy, status)
        except SyncError as error:
            # The status is news for people; it never steers nor delays what is in force. A
            # conflict means that the ConfigMap changed: its next version gets a status of its own.
            log.warning("policy_status_not_written", policy=str(policy.key), error=str(error))


def _nobody(_digest: str, _modules: int) -> None:
    """Hear nothing: no epoch has begun."""


def digest(modules: dict[str, str | None]) -> str:
    """Return a short name for a set of modules: equal sets, equal names."""
    content = msgspec.json.encode(sorted(modules.items()))
    return hashlib.sha256(content).hexdigest()[:16]


def _status(failures: Sequence[OpaError]) -> str:
    if not failures:
        return _OK
    error = OpaError(
        failures[0].code,
        failures[0].message,
        [cause for failure in failures for cause in failure.errors or [{"message": str(failure)}]],
    )
    return msgspec.json.encode({"status": "error", "error": error}).decode()
