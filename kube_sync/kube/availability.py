"""Decide whether a kind is still served, and so whether a 404 means that it is gone.

Invariant: a kind that is not found has no effect until it is confirmed to be gone. A 404 alone
proves nothing: a proxy without a backend returns it, and so does an API server that is starting. A
built-in kind is always served, so it is never gone. Any other kind is gone only when discovery
answers properly without it and its CustomResourceDefinition is gone. Discovery lags behind the
definitions for some seconds after a start. So without permission to read the definition, the kind
must be missing from discovery for `SURE_SECONDS` first.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Final

import msgspec

from kube_sync.errors import NO_JSON, NotFound, Refused, Retriable, SyncError, Unconfirmed
from kube_sync.kube.client import KubeClient
from kube_sync.kube.discovery import is_namespaced, is_served
from kube_sync.objects import GroupVersionResource

DEFINITIONS: Final = GroupVersionResource("apiextensions.k8s.io", "v1", "customresourcedefinitions")
SURE_SECONDS: Final = 10.0
_STABLE: Final = re.compile(r"v[1-9][0-9]*")
# Not apiextensions.k8s.io: there are API servers without CustomResourceDefinitions. A group without
# a dot cannot be that of a CustomResourceDefinition.
_BUILT_IN: Final = frozenset(
    {
        "admissionregistration.k8s.io",
        "apiregistration.k8s.io",
        "authentication.k8s.io",
        "authorization.k8s.io",
        "certificates.k8s.io",
        "coordination.k8s.io",
        "discovery.k8s.io",
        "events.k8s.io",
        "flowcontrol.apiserver.k8s.io",
        "networking.k8s.io",
        "node.k8s.io",
        "rbac.authorization.k8s.io",
        "scheduling.k8s.io",
        "storage.k8s.io",
    }
)


class _Version(msgspec.Struct):
    name: str
    served: bool


class _Spec(msgspec.Struct):
    versions: list[_Version] = []


class _Definition(msgspec.Struct):
    spec: _Spec


def is_built_in(gvr: GroupVersionResource) -> bool:
    """Return whether every Kubernetes API server serves a resource, by definition."""
    grouped = "." not in gvr.group or gvr.group in _BUILT_IN
    return grouped and _STABLE.fullmatch(gvr.version) is not None


class Availability:
    """Tracks whether one kind is served; call `confirm` for each 404."""

    def __init__(
        self,
        client: KubeClient,
        gvr: GroupVersionResource,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._gvr = gvr
        self._clock = clock
        self._lacking_since: float | None = None  # as discovery reports it, without interruption

    def seen(self) -> None:
        """Record that the API server has just served the kind."""
        self._lacking_since = None

    async def confirm(self, error: NotFound) -> None:
        """Return if a 404 means that the kind is gone. Raises Unconfirmed otherwise."""
        try:
            doubt = await self._doubt()
        except SyncError as failed:
            doubt = str(failed)
        if doubt is not None:
            msg = f"{self._gvr}: {error}; this is not believed, since {doubt}"
            raise Unconfirmed(msg) from error

    async def is_gone(self) -> bool:
        """Return whether the kind is confirmed to be gone. Raises SyncError."""
        return await self._doubt() is None

    async def is_namespaced(self) -> bool:
        """Return whether the kind is namespaced. Raises SyncError; NotFound if the kind is gone."""
        try:
            return await is_namespaced(self._client, self._gvr)
        except NotFound as error:
            await self.confirm(error)
            raise

    async def _doubt(self) -> str | None:
        """Return why the kind may be there, None if it is gone. Raises SyncError."""
        if is_built_in(self._gvr):
            return "the kind is built in"
        since, self._lacking_since = self._lacking_since, None
        if await is_served(self._client, self._gvr):
            return "discovery has the kind"
        defined = await self._is_defined()
        if defined is None:
            self._lacking_since = since = self._clock() if since is None else since
            if self._clock() - since < SURE_SECONDS:
                return f"discovery has to lack the kind for {SURE_SECONDS:.0f} s first"
        return "its CustomResourceDefinition is there" if defined else None

    async def _is_defined(self) -> bool | None:
        """Return whether a definition of this version is stored, None if that is unknown."""
        name = f"{self._gvr.resource}.{self._gvr.group}"
        try:
            body = await self._client.request("GET", DEFINITIONS.path(name=name))
            versions = msgspec.json.decode(body, type=_Definition).spec.versions
        except NotFound as error:
            # The API server's own 404 names the missing object; any other 404 comes from something
            # else.
            return False if name in str(error) else None
        except Refused:
            return None
        except NO_JSON as error:
            msg = f"the CustomResourceDefinition {name} cannot be read: {error}"
            raise Retriable(msg) from error
        return any(version.served and version.name == self._gvr.version for version in versions)
