"""A Kubernetes API server in memory: any resource, LIST in pages, WATCH, PATCH, and faults.

Keeps true what the replicator depends on: one resourceVersion for everything, a LIST is one
moment however many pages it takes, a WATCH tells every change after its start or says 410, and
items of a LIST of a built-in kind carry neither apiVersion nor kind. What a change moves out of a
WATCH's selectors is DELETED there, as in storage/cacher. It checks no schema.
"""

from __future__ import annotations

import asyncio
import base64
import copy
import functools
import json
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml
from aiohttp import web

from kube_sync.certificates import make_authority
from kube_sync.objects import GroupVersionResource, ObjectKey
from tests.fakes.http import FakeServer, Matches, Recorded, served

Json = dict[str, Any]

_PATH = re.compile(
    r"/(?:api/(?P<core>v[^/]+)|apis/(?P<group>[^/]+)/(?P<version>[^/]+))"
    r"(?:/namespaces/(?P<namespace>[^/]+))?/(?P<resource>[^/]+)(?:/(?P<name>[^/]+)(?:/status)?)?"
)
_DISCOVERY = re.compile(r"/(?:api/(?P<core>v[^/]+)|apis/(?P<group>[^/]+)/(?P<version>[^/]+))")
_GROUP = re.compile(r"/(?:api|apis|apis/(?P<group>[^/]+))")
_VERBS = ["create", "delete", "get", "list", "patch", "update", "watch"]
_TYPE_AND_METADATA = {"apiVersion", "kind", "metadata"}
_CRDS = "customresourcedefinitions"
_EXPIRED = "The resourceVersion for the provided watch is too old."


@dataclass(frozen=True)
class _Kind:
    kind: str
    builtin: bool
    namespaced: bool


@dataclass(frozen=True)
class _Change:
    version: int
    type: str
    gvr: GroupVersionResource
    object: Json
    before: Json | None = None


@dataclass(frozen=True)
class _Address:
    gvr: GroupVersionResource
    namespace: str
    name: str


class FakeApiServer:
    """The cluster's memory, changed by tests directly and by the code under test over HTTP."""

    def __init__(self) -> None:
        self.http = FakeServer(self._serve)
        self.token: str | None = None  # asked of every request when set
        self.page_size: int | None = None  # fewer than the client asks for
        self._kinds: dict[GroupVersionResource, _Kind] = {}
        self._objects: dict[GroupVersionResource, dict[ObjectKey, Json]] = {}
        self._version = 100
        self._history: list[_Change] = []
        self._forgotten = 100  # changes up to this version cannot be watched any more
        self._pages: dict[str, tuple[int, list[Json]]] = {}
        self._watchers: dict[GroupVersionResource, int] = {}
        self._news = asyncio.Event()

    # What a test does to the cluster

    def define(
        self,
        gvr: GroupVersionResource,
        kind: str,
        *,
        builtin: bool = True,
        namespaced: bool = True,
    ) -> None:
        """Serve a resource; one that is not built in is a custom resource."""
        self._kinds[gvr] = _Kind(kind, builtin, namespaced)
        self._objects.setdefault(gvr, {})

    def undefine(self, gvr: GroupVersionResource) -> None:
        """Forget a resource and all its objects, as when a CRD is deleted."""
        del self._kinds[gvr], self._objects[gvr]
        self._version += 1
        self.http.cut()

    def put(self, gvr: GroupVersionResource, key: ObjectKey, **content: Any) -> Json:
        """Create an object, or replace its content; `metadata` is merged."""
        kind, old = self._kinds[gvr], self._objects[gvr].get(key)
        self._version += 1
        metadata: Json = {"name": key.name}
        if key.namespace:
            metadata["namespace"] = key.namespace
        uid = old["metadata"]["uid"] if old else f"uid-{self._version}"
        metadata |= {"uid": uid, "resourceVersion": str(self._version)}
        metadata |= content.pop("metadata", {})
        group_version = f"{gvr.group}/{gvr.version}" if gvr.group else gvr.version
        found = {"apiVersion": group_version, "kind": kind.kind, "metadata": metadata, **content}
        self._store(gvr, key, found, "MODIFIED" if old else "ADDED")
        return found

    def delete(self, gvr: GroupVersionResource, key: ObjectKey) -> None:
        found = copy.deepcopy(self._objects[gvr].pop(key))
        self._version += 1
        found["metadata"]["resourceVersion"] = str(self._version)
        self._tell(_Change(self._version, "DELETED", gvr, found))

    def objects(self, gvr: GroupVersionResource) -> Mapping[ObjectKey, Json]:
        return self._objects.get(gvr, {})

    def get(self, gvr: GroupVersionResource, key: ObjectKey) -> Json:
        return self._objects[gvr][key]

    def compact(self) -> None:
        """Forget what happened: watches of the past and half-read lists end with 410."""
        self._history.clear()
        self._forgotten = self._version
        self._pages.clear()

    def bookmark(self, gvr: GroupVersionResource) -> str:
        """Send a bookmark to every open watch; returns its resourceVersion."""
        self._version += 1
        self._tell(_Change(self._version, "BOOKMARK", gvr, self._empty(gvr)))
        return str(self._version)

    async def watched(self, *gvrs: GroupVersionResource) -> None:
        """Wait until each of these is being watched."""
        await self.http.until(lambda: all(self.watchers(gvr) > 0 for gvr in gvrs))

    def watchers(self, gvr: GroupVersionResource) -> int:
        """Return how many watch this collection."""
        return self._watchers.get(gvr, 0)

    def kubeconfig(self, path: Path, user: Json | None = None) -> str:
        """Write a kubeconfig for this server; returns its path."""
        token = {"token": self.token} if self.token else {}
        user = token if user is None else user
        write_kubeconfig(path, self.http.url, user, **_trusting())
        return str(path)

    # What the server answers

    async def _serve(self, request: web.Request, recorded: Recorded) -> web.StreamResponse:
        if self.token and recorded.headers.get("Authorization") != f"Bearer {self.token}":
            return status(401, "Unauthorized", "Unauthorized")
        if match := _DISCOVERY.fullmatch(recorded.path) or _GROUP.fullmatch(recorded.path):
            return self._discover(match)
        match = _PATH.fullmatch(recorded.path)
        address = _address(match) if match else None
        if address is None or not self._serves(address):
            return _unserved(address)
        if address.name or recorded.method == "POST":
            return self._single(address, recorded)
        if recorded.query.get("watch") == "1":
            return await self._watch(request, recorded, address)
        return self._list(recorded, address)

    def _serves(self, address: _Address) -> bool:
        kind = self._kinds.get(address.gvr)
        return kind is not None and (kind.namespaced or not address.namespace)

    def _groups(self) -> web.Response:
        groups: dict[str, set[str]] = {}
        for gvr in self._kinds:
            groups.setdefault(gvr.group, set()).add(gvr.version)
        found = [
            {"name": name, "versions": [{"groupVersion": f"{name}/{v}", "version": v} for v in vs]}
            for name, vs in groups.items()
            if name
        ]
        return web.json_response({"kind": "APIGroupList", "groups": found})

    def _group(self, group: str) -> web.Response:
        if not group:
            return web.json_response({"kind": "APIVersions", "versions": ["v1"]})
        versions = sorted({gvr.version for gvr in self._kinds if gvr.group == group})
        if not versions:
            return web.Response(status=404, text="404 page not found\n")
        named = [{"groupVersion": f"{group}/{v}", "version": v} for v in versions]
        return web.json_response({"kind": "APIGroup", "name": group, "versions": named})

    def _discover(self, match: re.Match[str]) -> web.Response:
        if match[0] == "/apis":
            return self._groups()
        if match.re is _GROUP:
            return self._group(match["group"] or "")
        group, version = match["group"] or "", match["core"] or match["version"]
        found = [
            {
                "name": gvr.resource + sub,
                "kind": kind.kind,
                "namespaced": kind.namespaced,
                "verbs": _VERBS,
            }
            for gvr, kind in self._kinds.items()
            for sub in ("", "/status")
            if (gvr.group, gvr.version) == (group, version)
        ]
        if not found and (group, version) != ("", "v1"):  # which every real one has
            return web.Response(status=404, text="404 page not found\n")
        return web.json_response({"kind": "APIResourceList", "resources": found})

    def _list(self, recorded: Recorded, address: _Address) -> web.Response:
        if not _supported(self._kinds[address.gvr], recorded):
            return status(400, "BadRequest", "field label not supported: metadata.namespace")
        if token := recorded.query.get("continue"):
            if token not in self._pages:
                return status(410, "Expired", "The provided continue parameter is too old.")
            version, items = self._pages.pop(token)
        else:
            version = self._version
            items = [
                copy.deepcopy(found)
                for found in self._inside(address)
                if _selected(found, recorded)
            ]
        limit = min(int(recorded.query.get("limit") or 10**9), self.page_size or 10**9)
        metadata: Json = {"resourceVersion": str(version)}
        if rest := items[limit:]:
            # The real one is base64: `+`, `/` and `=` have to survive the query.
            token = f"+/{version}.{len(rest)}.{len(self.http.requests)}=="
            metadata["continue"] = token
            self._pages[token] = (version, rest)
        return web.json_response(self._page(recorded, address.gvr, metadata, items[:limit]))

    def _page(
        self, recorded: Recorded, gvr: GroupVersionResource, metadata: Json, items: list[Json]
    ) -> Json:
        kind = self._kinds[gvr]
        if _metadata_only(recorded):
            partial = [{"metadata": item["metadata"]} for item in items]
            name = "PartialObjectMetadataList"
            return _document("meta.k8s.io/v1", name, metadata=metadata, items=partial)
        if kind.builtin:
            for item in items:
                del item["apiVersion"], item["kind"]
        group_version = f"{gvr.group}/{gvr.version}" if gvr.group else gvr.version
        return _document(group_version, f"{kind.kind}List", metadata=metadata, items=items)

    async def _watch(
        self, request: web.Request, recorded: Recorded, address: _Address
    ) -> web.StreamResponse:
        gvr = address.gvr
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        since = int(recorded.query.get("resourceVersion") or 0)
        self._watchers[gvr] = self._watchers.get(gvr, 0) + 1
        self.http.tell()
        try:
            while gvr in self._kinds:
                if since < self._forgotten:  # something happened that nobody can tell any more
                    await response.write(error_event(410))
                    break
                news = self._news
                for change in [c for c in self._history if c.version > since]:
                    since = change.version
                    if change.gvr != gvr or not _within(change.object, address.namespace):
                        continue
                    if (seen := _seen(change, recorded)) is not None:
                        await response.write(_event(seen, partial=_metadata_only(recorded)))
                await news.wait()
        finally:
            self._watchers[gvr] -= 1
        return response

    def _single(self, address: _Address, recorded: Recorded) -> web.Response:
        match recorded.method:
            case "PATCH":
                return self._patch(address, recorded)
            case "POST" | "PUT":
                return self._write(address, recorded)
            case "DELETE":
                return self._delete(address, recorded)
            case _:
                return self._one(address)

    def _one(self, address: _Address) -> web.Response:
        found = self._objects[address.gvr].get(ObjectKey(address.namespace, address.name))
        if found is None:
            return status(404, "NotFound", f'{address.gvr.resource} "{address.name}" not found')
        return web.json_response(found)

    def _patch(self, address: _Address, recorded: Recorded) -> web.Response:
        key, patch = ObjectKey(address.namespace, address.name), recorded.json()
        if recorded.headers["Content-Type"] == "application/json-patch+json":
            return self._json_patch(address, key, patch)
        return self._merge_or_apply(address, recorded, key, patch)

    def _merge_or_apply(
        self, address: _Address, recorded: Recorded, key: ObjectKey, patch: Json
    ) -> web.Response:
        applied = recorded.headers["Content-Type"] == "application/apply-patch+yaml"
        wanted = patch.get("metadata", {})
        old = self._objects[address.gvr].get(key)
        if applied and not recorded.query.get("fieldManager"):
            return status(400, "BadRequest", "PatchOptions: fieldManager: Required value")
        if old is None:
            whole = not self._kinds[address.gvr].builtin or patch.keys() - _TYPE_AND_METADATA
            if applied and "uid" not in wanted and whole:
                return self._write(address, recorded)  # what is whole enough is created
            return _missing(address, has_uid="uid" in wanted, applied=applied)
        if applied and wanted.get("uid", old["metadata"]["uid"]) != old["metadata"]["uid"]:
            return status(422, "Invalid", "metadata.uid: Invalid value: field is immutable")
        version = old["metadata"]["resourceVersion"]
        if wanted.pop("resourceVersion", version) != version:
            message = f'Operation cannot be fulfilled on "{key.name}": the object has been modified'
            return status(409, "Conflict", message)
        new = _merged(old, patch)
        if new != old:  # the real one writes nothing either when nothing changes
            self._version += 1
            new["metadata"]["resourceVersion"] = str(self._version)
            if new.get("spec") != old.get("spec"):
                new["metadata"]["generation"] = old["metadata"].get("generation", 1) + 1
            others = [
                one for one in new["metadata"].get("managedFields", ()) if one != _manager(recorded)
            ]
            new["metadata"]["managedFields"] = [*others, _manager(recorded)]
            self._store(address.gvr, key, new, "MODIFIED")
        return web.json_response(new)

    def _json_patch(self, address: _Address, key: ObjectKey, patch: list[Json]) -> web.Response:
        """Do a JSON Patch (RFC 6902): test, add and remove of members, all or nothing."""
        old = self._objects[address.gvr].get(key)
        if old is None:
            return _missing(address, has_uid=True, applied=False)
        new = copy.deepcopy(old)
        for step in patch:
            *way, name = (
                p.replace("~1", "/").replace("~0", "~") for p in step["path"][1:].split("/")
            )
            parent = functools.reduce(lambda found, part: found[_member(found, part)], way, new)
            name = _member(parent, name)
            match step["op"]:
                case "test" if parent[name] != step["value"]:
                    message = "the server rejected our request due to an error in our request"
                    return status(422, "Invalid", message)
                case "add":
                    parent[name] = step["value"]
                case "remove":
                    del parent[name]
        self._version += 1
        new["metadata"]["resourceVersion"] = str(self._version)
        self._store(address.gvr, key, new, "MODIFIED")
        return web.json_response(new)

    def _write(self, address: _Address, recorded: Recorded) -> web.Response:
        """Create an object (POST), or replace one at the resourceVersion that was read (PUT)."""
        new = recorded.json()
        wanted = new["metadata"]
        key = ObjectKey(address.namespace, address.name or wanted["name"])
        old = self._objects[address.gvr].get(key)
        if recorded.method == "POST" and old is not None:
            return status(409, "AlreadyExists", f'"{key.name}" already exists')
        if recorded.method == "PUT":
            if old is None:
                return status(404, "NotFound", f'"{key.name}" not found')
            version = old["metadata"]["resourceVersion"]
            if wanted.get("resourceVersion", version) != version:
                return status(409, "Conflict", f'"{key.name}": the object has been modified')
        content = {n: v for n, v in new.items() if n not in _TYPE_AND_METADATA}
        kept = ("labels", "annotations", "ownerReferences")
        metadata = {n: v for n, v in wanted.items() if n in kept}
        if recorded.method == "PATCH":
            metadata |= {"managedFields": [_manager(recorded)], "generation": 1}
        return web.json_response(self.put(address.gvr, key, metadata=metadata, **content))

    def _delete(self, address: _Address, recorded: Recorded) -> web.Response:
        """Delete an object that is as the preconditions say."""
        key = ObjectKey(address.namespace, address.name)
        if (old := self._objects[address.gvr].get(key)) is None:
            return status(404, "NotFound", f'"{key.name}" not found')
        conditions = recorded.json().get("preconditions", {}) if recorded.body else {}
        if any(old["metadata"][name] != value for name, value in conditions.items()):
            return status(409, "Conflict", f'"{key.name}": the precondition does not hold')
        if old["metadata"].get("finalizers"):
            leaving = {**old["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}
            self._version += 1
            leaving["resourceVersion"] = str(self._version)
            self._store(address.gvr, key, {**old, "metadata": leaving}, "MODIFIED")
            return web.json_response(self.get(address.gvr, key))
        self.delete(address.gvr, key)
        return web.json_response(_status_body(200, "", ""))

    # The memory

    def _store(self, gvr: GroupVersionResource, key: ObjectKey, found: Json, change: str) -> None:
        before = self._objects[gvr].get(key)
        self._objects[gvr][key] = found
        self._tell(_Change(self._version, change, gvr, copy.deepcopy(found), before))

    def _tell(self, change: _Change) -> None:
        self._history.append(change)
        self._news.set()
        self._news = asyncio.Event()

    def _inside(self, address: _Address) -> list[Json]:
        found = sorted(self._objects[address.gvr].items())
        return [o for _, o in found if _within(o, address.namespace)]

    def _empty(self, gvr: GroupVersionResource) -> Json:
        metadata = {"resourceVersion": str(self._version), "creationTimestamp": None}
        return _document(gvr.version, self._kinds[gvr].kind, metadata=metadata)


@asynccontextmanager
async def fake_apiserver() -> AsyncGenerator[FakeApiServer]:
    """Serve an empty cluster that knows no resource."""
    api = FakeApiServer()
    async with served(api, api.http):
        yield api


@functools.cache
def _trusting() -> Json:
    """Name an authority, though there is no TLS: to read the machine's own takes 0.03 s of CPU."""
    pem = make_authority("nobody").cert_pem
    return {"certificate-authority-data": base64.b64encode(pem).decode()}


def write_kubeconfig(path: Path, server: str, user: Json, **cluster: Any) -> None:
    """Write a kubeconfig with one cluster, one user and one context."""
    context = {"name": "fake", "context": {"cluster": "fake", "user": "fake"}}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "fake",
        "contexts": [context],
        "clusters": [{"name": "fake", "cluster": {"server": server, **cluster}}],
        "users": [{"name": "fake", "user": user}],
    }
    path.write_text(yaml.safe_dump(document), encoding="utf-8")


def lists(gvr: GroupVersionResource) -> Matches:
    """Match the first page of a LIST."""
    return lambda r: _is(r, gvr) and "limit" in r.query and "continue" not in r.query


def continues(gvr: GroupVersionResource) -> Matches:
    """Match a further page of a LIST."""
    return lambda r: _is(r, gvr) and "continue" in r.query


def watches(gvr: GroupVersionResource) -> Matches:
    """Match a WATCH."""
    return lambda r: _is(r, gvr) and "watch" in r.query


def patches(gvr: GroupVersionResource) -> Matches:
    """Match a PATCH of one object."""
    return lambda r: r.method == "PATCH" and f"/{gvr.resource}/" in r.path


def error_event(code: int, reason: str = "Expired") -> bytes:
    """Return the line in which a WATCH says that it cannot go on."""
    document = {"type": "ERROR", "object": _status_body(code, reason, _EXPIRED)}
    return json.dumps(document).encode() + b"\n"


def status(code: int, reason: str, message: str, retry_after: str | None = None) -> web.Response:
    """Return a failure as the API server words it."""
    headers = {"Retry-After": retry_after} if retry_after else None
    return web.json_response(_status_body(code, reason, message), status=code, headers=headers)


def _status_body(code: int, reason: str, message: str) -> Json:
    body = {"status": "Failure", "message": message, "reason": reason, "code": code}
    return _document("v1", "Status", metadata={}, **body)


def _document(version: str, kind: str, **content: Any) -> Json:
    return {"kind": kind, "apiVersion": version, **content}


def _unserved(address: _Address | None) -> web.Response:
    if address is not None and address.gvr.resource == _CRDS and address.name:
        # Every real one stores definitions, and names the one that it lacks.
        return status(404, "NotFound", f'{_CRDS} "{address.name}" not found')
    # Not a Status: the real one never gets as far as that.
    return web.Response(status=404, text="404 page not found\n")


def _is(recorded: Recorded, gvr: GroupVersionResource) -> bool:
    match = _PATH.fullmatch(recorded.path)
    return recorded.method == "GET" and match is not None and _address(match).gvr == gvr


def _address(match: re.Match[str]) -> _Address:
    version = match["core"] or match["version"]
    gvr = GroupVersionResource(match["group"] or "", version, match["resource"])
    return _Address(gvr, match["namespace"] or "", match["name"] or "")


def _manager(recorded: Recorded) -> Json:
    applied = recorded.headers["Content-Type"] == "application/apply-patch+yaml"
    name = recorded.query.get("fieldManager", "")
    return {"manager": name, "operation": "Apply" if applied else "Update", "fieldsV1": {}}


def _metadata_only(recorded: Recorded) -> bool:
    return "as=PartialObjectMetadata" in recorded.headers.get("Accept", "")


def _within(found: Json, namespace: str) -> bool:
    inside = found["metadata"].get("namespace")
    # A bookmark is in no namespace and for everybody.
    return not namespace or inside in (None, namespace)


def _seen(change: _Change, recorded: Recorded) -> _Change | None:
    """Return a change as a watch with these selectors is told of it, None for not at all."""
    if change.type == "BOOKMARK":
        return change
    now = change.type != "DELETED" and _selected(change.object, recorded)
    was = change.object if change.type == "DELETED" else change.before
    before = was is not None and _selected(was, recorded)
    if not now and not before:
        return None
    word = "DELETED" if not now else "MODIFIED" if before else "ADDED"
    return replace(change, type=word)


def _selected(found: Json, recorded: Recorded) -> bool:
    metadata = found["metadata"]
    fields = {f"metadata.{name}": metadata.get(name, "") for name in ("name", "namespace")}
    return _matches(recorded.query.get("labelSelector"), metadata.get("labels") or {}) and _matches(
        recorded.query.get("fieldSelector"), fields
    )


def _matches(selector: str | None, values: Mapping[str, str]) -> bool:
    """Read `a=b`, `a!=b` and `a`, joined by commas."""
    for term in (selector or "").split(","):
        name, sign, value = re.fullmatch(r"([^=!]*)(!=|=|)(.*)", term).groups()  # type: ignore[union-attr] # it matches all
        present = name in values if not sign else values.get(name) == value
        if name and present == (sign == "!="):
            return False
    return True


def _supported(kind: _Kind, recorded: Recorded) -> bool:
    return kind.namespaced or "metadata.namespace" not in recorded.query.get("fieldSelector", "")


def _event(change: _Change, *, partial: bool) -> bytes:
    found = change.object
    if partial:
        metadata = found["metadata"]
        found = _document("meta.k8s.io/v1", "PartialObjectMetadata", metadata=metadata)
    return json.dumps({"type": change.type, "object": found}).encode() + b"\n"


def _missing(address: _Address, *, has_uid: bool, applied: bool) -> web.Response:
    if applied and has_uid:
        return status(409, "Conflict", "uid mismatch: the provided object specified uid")
    if applied:
        return status(422, "Invalid", f'"{address.name}" is invalid')
    return status(404, "NotFound", f'{address.gvr.resource} "{address.name}" not found')


def _member(parent: Any, name: Any) -> Any:
    """Return what a part of a JSON pointer is called in a list or an object."""
    return int(name) if isinstance(parent, list) else name


def _merged(old: Json, patch: Json) -> Json:
    """Apply a merge patch (RFC 7396); an apply of annotations comes to the same."""
    new = copy.deepcopy(old)
    for name, value in patch.items():
        if value is None:
            new.pop(name, None)
        elif isinstance(value, dict):
            below = new.get(name)
            new[name] = _merged(below if isinstance(below, dict) else {}, value)
        else:
            new[name] = value
    return new
