"""The agent's hands on its own cluster: apply a manifest as its strategy says, read, delete."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from kube_sync.errors import NotFound
from kube_sync.kube.client import KubeClient
from kube_sync.objects import GroupVersionResource
from tests.ocm.works import Body

_MANAGER = "work-agent"  # where a work names none


class NoSuchKind(Exception):
    """The cluster has no such kind."""


class NotAllowed(Exception):
    """The executor of a work may not write what it brings."""


class Spoke:
    """One managed cluster, as its work agent sees it."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client

    async def meta(self, ordinal: int, manifest: Body) -> dict[str, Any]:
        """Return the resourceMeta of a manifest, with its resource if the cluster knows it."""
        group, _, version = manifest["apiVersion"].rpartition("/")
        known = {
            "ordinal": ordinal,
            "group": group,
            "version": version,
            "kind": manifest["kind"],
            "namespace": manifest["metadata"].get("namespace", ""),
            "name": manifest["metadata"]["name"],
        }
        root = f"/apis/{group}/{version}" if group else f"/api/{version}"
        try:
            answer = msgspec.json.decode(await self._client.request("GET", root))
        except NotFound:
            return known
        for resource in answer["resources"]:
            if resource["kind"] == manifest["kind"] and "/" not in resource["name"]:
                inside = known["namespace"] if resource["namespaced"] else ""
                return known | {"resource": resource["name"], "namespace": inside}
        return known

    async def read(self, meta: Body) -> Body | None:
        """Return an object, None where it is not there. Raises SyncError."""
        try:
            answer = await self._client.request("GET", _path(meta))
        except NotFound:
            return None
        found: Body = msgspec.json.decode(answer)
        return found

    async def check(self, executor: Body | None, meta: Body) -> None:
        """Ask what OCM's agent asks of an executor, as of what goes with the work.

        Raises NotAllowed, SyncError.
        """
        if executor is None:
            return
        account = executor["subject"]["serviceAccount"]
        user = f"system:serviceaccount:{account['namespace']}:{account['name']}"
        about = {name: meta.get(name, "") for name in ("group", "resource", "namespace", "name")}
        for verb in ("create", "update", "patch", "get", "delete"):
            spec = {"user": user, "resourceAttributes": about | {"verb": verb}}
            answer = await self._client.request(
                "POST",
                "/apis/authorization.k8s.io/v1/subjectaccessreviews",
                body=msgspec.json.encode({"spec": spec}),
            )
            if not msgspec.json.decode(answer)["status"]["allowed"]:
                msg = f"the executor {user} may not {verb} {about['resource']}"
                raise NotAllowed(msg)

    async def apply(self, meta: Body, manifest: Body, strategy: Mapping[str, Any]) -> None:
        """Make an object what its manifest says. Raises NoSuchKind, SyncError."""
        if not meta.get("resource"):
            msg = f'the server doesn\'t have a resource type "{meta["kind"]}"'
            raise NoSuchKind(msg)
        match strategy.get("type", "Update"):
            case "ServerSideApply":
                await self._server_side(meta, manifest, strategy.get("serverSideApply", {}))
            case "Update" | "CreateOnly" as kind:
                await self._write(meta, manifest, update=kind == "Update")
            case "ReadOnly":
                await self._client.request("GET", _path(meta))
            case other:
                msg = f"the stand-in does not know the updateStrategy {other}"
                raise NotImplementedError(msg)

    async def delete(self, meta: Body) -> bool:
        """Delete an object and return whether it is gone. Raises SyncError.

        In the background, whatever the work's propagationPolicy: that one only says what is left.
        """
        try:
            await self._client.request(
                "DELETE", _path(meta), params={"propagationPolicy": "Background"}
            )
        except NotFound:
            return True
        return await self.read(meta) is None

    async def _server_side(self, meta: Body, manifest: Body, options: Mapping[str, Any]) -> None:
        if options.get("ignoreFields"):
            msg = "the stand-in does not know ignoreFields"
            raise NotImplementedError(msg)
        await self._client.request(
            "PATCH",
            _path(meta),
            params={
                "fieldManager": options.get("fieldManager", _MANAGER),
                "force": str(options.get("force", False)).lower(),
            },
            body=msgspec.json.encode(manifest),
            content_type="application/apply-patch+yaml",
        )

    async def _write(self, meta: Body, manifest: Body, *, update: bool) -> None:
        found = await self.read(meta)
        if found is None:
            collection = _path({**meta, "name": None})
            await self._client.request("POST", collection, body=msgspec.json.encode(manifest))
            return
        wanted = _merged(found, manifest)
        if update and wanted != found:
            await self._client.request("PUT", _path(meta), body=msgspec.json.encode(wanted))


def _merged(found: Body, manifest: Body) -> dict[str, Any]:
    """Return an object with the manifest's fields; of its metadata, labels and annotations."""
    metadata = dict(found["metadata"])
    for name in ("labels", "annotations"):
        if manifest["metadata"].get(name):
            metadata[name] = metadata.get(name, {}) | manifest["metadata"][name]
    return {**found, **manifest, "metadata": metadata}


def _path(meta: Body) -> str:
    gvr = GroupVersionResource(meta["group"], meta["version"], meta["resource"])
    return gvr.path(meta["namespace"] or None, meta["name"])


def said(error: Exception) -> str:
    """Return what a server said, without its HTTP status."""
    text = str(error)
    return text.partition(" ")[2] if text[:3].isdigit() else text
