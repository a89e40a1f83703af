"""Installs the default objects of a cluster with SchedulingPolicies, at start and upgrade.

The order matters: pods are denied as soon as there is a policy. So the roles and their bindings are
created first, OPA has them before there is any policy, and the first policy is the one that
everybody may use: kube-system, which uses the other, is exempt. Failures are reported and retried;
nothing is rolled back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Final, NoReturn

import msgspec
import structlog
import yaml

from kube_sync.admission.scheduling.autoupdate import brought_up, is_bound_elsewhere, is_protected
from kube_sync.admission.scheduling.evidence import COLLECTIONS, KIND
from kube_sync.errors import NotFound, Refused, Retriable, SyncError
from kube_sync.kube.client import KubeClient
from kube_sync.objects import GroupVersionResource
from kube_sync.runtime.backoff import Backoff

log: structlog.stdlib.BoundLogger = structlog.get_logger()

FIELD_MANAGER: Final = "kube-sync-scheduling"
_LONGEST: Final = 5.0  # seconds between two tries
_RIGHTS: Final = "manifests/scheduling-rbac"

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Default:
    """One default object."""

    gvr: GroupVersionResource
    object: Json

    @property
    def name(self) -> str:
        """Its name."""
        return str(self.object["metadata"]["name"])

    @property
    def namespace(self) -> str | None:
        """Its namespace, if it has one."""
        found: str | None = self.object["metadata"].get("namespace")
        return found

    @property
    def is_policy(self) -> bool:
        """Whether it is a SchedulingPolicy, as opposed to a role or binding."""
        return bool(self.object["kind"] == KIND)

    @property
    def data_path(self) -> tuple[str, ...]:
        """Its path in OPA, below the root of what is replicated."""
        inside = (self.namespace,) if self.namespace else ()
        return (self.gvr.resource, *inside, self.name)

    def __str__(self) -> str:
        """`clusterroles.v1.rbac.authorization.k8s.io sp:restricted`."""
        return f"{self.gvr} {self.name}"


def defaults() -> tuple[Default, ...]:
    """Return all objects, in the order of installation."""
    text = (
        files("kube_sync.admission.scheduling")
        .joinpath("bootstrap.yaml")
        .read_text(encoding="utf-8")
    )
    found: Iterable[Json] = yaml.safe_load_all(text)
    return tuple(Default(COLLECTIONS[one["kind"]], one) for one in found)


class Bootstrap:
    """Installs the default objects once, however long it takes."""

    def __init__(
        self,
        client: KubeClient,
        known: Callable[[tuple[str, ...]], Awaitable[bool]],
        note: Callable[[str], None],
        *,
        wanted: Sequence[Default] | None = None,
        backoff: Backoff | None = None,
    ) -> None:
        """`known` returns whether OPA has what is replicated to a path; `note` gets the state."""
        self._client = client
        self._known = known
        self._note = note
        self._wanted = defaults() if wanted is None else wanted
        self._backoff = backoff or Backoff(longest=_LONGEST)

    async def run(self) -> NoReturn:
        """Install what is missing, then sleep until cancelled."""
        reported = ""
        while True:
            try:
                await self._install()
                break
            except SyncError as error:
                # A conflict as well: somebody else was first, so read again.
                reason = f"{error}{_needed(error)}"
                self._note(reason)
                if reason != reported:
                    log.warning("bootstrap_waits", error=reason)
                reported = reason
                retry_after = error.retry_after if isinstance(error, Retriable) else None
            await self._backoff.wait(retry_after)
        self._note("ok")
        log.info("bootstrap_done", objects=len(self._wanted))
        while True:
            await asyncio.Event().wait()

    async def _install(self) -> None:
        for default in self._wanted:
            found = await self._found(default)
            if found is None:
                await self._create(default)
            elif not is_protected(found):
                await self._amend(default, found)

    async def _create(self, default: Default) -> None:
        if default.is_policy:
            await self._rights_known()
        await self._send("POST", default, default.object)
        log.info("bootstrap_created", object=str(default))

    async def _amend(self, default: Default, found: Json) -> None:
        if is_bound_elsewhere(found, default.object):
            # As Kubernetes does: a roleRef is immutable.
            conditions = {"uid": found["metadata"]["uid"]}
            await self._send("DELETE", default, {"preconditions": conditions})
            await self._create(default)
        elif (new := brought_up(found, default.object)) != found:
            await self._send("PUT", default, new)
            log.info("bootstrap_updated", object=str(default))

    async def _rights_known(self) -> None:
        """Check that OPA has the roles and bindings for policies. Raises Retriable."""
        for right in self._wanted:
            if not right.is_policy and not await self._known(right.data_path):
                msg = f"OPA does not have {right} yet"
                raise Retriable(msg)

    async def _found(self, default: Default) -> Json | None:
        path = default.gvr.path(default.namespace, default.name)
        try:
            answer = await self._client.request("GET", path)
        except NotFound:
            return None
        found: Json = msgspec.json.decode(answer)
        return found

    async def _send(self, method: str, default: Default, body: Any) -> None:  # noqa: ANN401 - JSON
        name = None if method == "POST" else default.name
        params = {} if method == "DELETE" else {"fieldManager": FIELD_MANAGER}
        path = default.gvr.path(default.namespace, name)
        await self._client.request(method, path, params=params, body=msgspec.json.encode(body))


def _needed(error: SyncError) -> str:
    if isinstance(error, Refused):
        return f" (needed: {_RIGHTS})"
    return " (is manifests/crds installed?)" if isinstance(error, NotFound) else ""
