"""Objects of a kube-apiserver without a kubectl process for each, which costs 0.1 s of CPU.

Resources are named as for kubectl (`replicasets`, `ReplicaSet`, `replicasets.apps`) and found by
discovery. One connection is kept open, for one request at a time. What the server refuses is a
ToolError with the message of its Status.
"""

from __future__ import annotations

import http.client
import json
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from tools.servers.errors import ToolError

_TIMEOUT = 30.0
_TRIES, _AGAIN = 100, 0.1  # seconds
_PAUSE = 0.05  # seconds, while a kind is not served yet
_CLOSED = (
    http.client.RemoteDisconnected,
    ConnectionResetError,
    BrokenPipeError,
    ssl.SSLEOFError,
)
_DISCOVERY = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
_AGENT = "kubectl-tests/1"  # which makes `kubectl-tests` the field manager
_JSON, _MERGE = "application/json", "application/merge-patch+json"
_APPLY = "application/apply-patch+yaml"


class KubeApi:
    """A client of one API server with the token of one account."""

    def __init__(self, url: str, ca_file: Path, token: str) -> None:
        context = ssl.create_default_context(cafile=ca_file)
        self.url, self.ca_file = url, ca_file
        host = urlsplit(url).netloc
        self._connection = http.client.HTTPSConnection(host, timeout=_TIMEOUT, context=context)
        self._lock = threading.Lock()
        self._token = token
        self._resources: dict[str, _Resource] = {}  # by each of its names

    def get(self, resource: str, name: str = "", namespace: str = "") -> Any:
        """Return an object, or the list of all of a namespace or, without one, of all of them."""
        found = self.ask("GET", self.path(resource, name, namespace))
        for item in () if name else found["items"]:  # which do not say what they are, in a list
            item.setdefault("apiVersion", found["apiVersion"])
            item.setdefault("kind", found["kind"].removesuffix("List"))
        return found

    def create(
        self, manifest: Mapping[str, Any], *, dry_run: bool = False, strict: bool = True
    ) -> Any:
        """Create the object and return what is stored; `strict` refuses fields nobody knows."""
        query = {"dryRun": "All"} if dry_run else {}
        return self.ask("POST", self._of(manifest), manifest, strict=strict, query=query)

    def create_namespace(self, name: str) -> None:
        """Create a namespace."""
        self.ask("POST", "/api/v1/namespaces", {"metadata": {"name": name}})

    def apply(
        self,
        manifest: Mapping[str, Any],
        *,
        manager: str = "kubectl",
        force: bool = False,
        strict: bool = True,
        dry_run: bool = False,
    ) -> Any:
        """Apply the object on the server's side and return what is stored."""
        path = f"{self._of(manifest)}/{manifest['metadata']['name']}"
        query = {"fieldManager": manager, "force": str(force).lower()}
        if dry_run:
            query["dryRun"] = "All"
        return self.ask("PATCH", path, manifest, _APPLY, strict=strict, query=query)

    def replace(self, manifest: Mapping[str, Any], *, strict: bool = True) -> Any:
        """Put the object in the place of the one of its name and return what is stored."""
        path = f"{self._of(manifest)}/{manifest['metadata']['name']}"
        version = self.ask("GET", path)["metadata"]["resourceVersion"]
        metadata = {"resourceVersion": version, **manifest["metadata"]}
        return self.ask("PUT", path, {**manifest, "metadata": metadata}, strict=strict)

    def merge(
        self,
        resource: str,
        name: str,
        patch: Mapping[str, Any],
        namespace: str = "",
        subresource: str = "",
    ) -> Any:
        """Change an object by a merge patch and return what is stored."""
        path = self.path(resource, name, namespace) + (subresource and f"/{subresource}")
        return self.ask("PATCH", path, patch, _MERGE)

    def label(self, resource: str, name: str, namespace: str = "", **labels: str | None) -> Any:
        """Set labels, or remove those that are None, and return what is stored."""
        return self.merge(resource, name, {"metadata": {"labels": labels}}, namespace)

    def annotate(
        self, resource: str, name: str, annotations: Mapping[str, str | None], namespace: str = ""
    ) -> Any:
        """Set annotations, or remove those that are None, and return what is stored."""
        return self.merge(resource, name, {"metadata": {"annotations": annotations}}, namespace)

    def delete(self, resource: str, name: str, namespace: str = "") -> None:
        """Delete an object at once; one that is not there is no error."""
        path = self.path(resource, name, namespace)
        self.ask("DELETE", path, missing_ok=True, query={"gracePeriodSeconds": "0"})

    def remove(self, manifest: Mapping[str, Any]) -> None:
        """Delete the object of this kind, namespace and name."""
        self.ask("DELETE", f"{self._of(manifest)}/{manifest['metadata']['name']}", missing_ok=True)

    def delete_all(self, resource: str, namespace: str = "") -> None:
        """Delete all objects of a resource, in one namespace or in all."""
        found = self._found(resource)
        if namespace or not found.namespaced:
            status, _ = self._send("DELETE", found.path(found.root, namespace), None, {})
            if status != http.client.METHOD_NOT_ALLOWED:
                return
        for item in self.get(resource, namespace=namespace)["items"]:
            metadata = item["metadata"]
            self.delete(resource, metadata["name"], metadata.get("namespace", ""))

    def await_kind(self, definition: Mapping[str, Any], seconds: float = 60.0) -> None:
        """Wait until the objects of a CustomResourceDefinition can be listed and are discovered."""
        spec, until = definition["spec"], time.monotonic() + seconds
        plural, group = spec["names"]["plural"], spec["group"]
        (version, *_) = (one["name"] for one in spec["versions"] if one["storage"])
        listed = f"/apis/{group}/{version}/{plural}?limit=1"
        while not (
            self._send("GET", listed, None, {})[0] == http.client.OK
            and self._discovers(f"{plural}.{group}", namespaced=spec["scope"] == "Namespaced")
        ):
            if time.monotonic() > until:
                msg = f"{plural}.{group}: not served after {seconds:.0f} s"
                raise ToolError(msg)
            time.sleep(_PAUSE)

    def path(self, resource: str, name: str = "", namespace: str = "") -> str:
        """Return where an object or a collection is."""
        found = self._found(resource)
        return found.path(found.root, namespace) + (f"/{name}" if name else "")

    def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        content_type: str = _JSON,
        *,
        missing_ok: bool = False,
        strict: bool = False,
        query: Mapping[str, str] | None = None,
    ) -> Any:
        """Send one request and return what the answer holds."""
        asked = {**(query or {}), **({"fieldValidation": "Strict"} if strict else {})}
        where = f"{path}?{urlencode(asked)}" if asked else path
        text = None if body is None else json.dumps(body)
        try:
            status, answer = self._send(method, where, text, {"Content-Type": content_type})
        except (OSError, http.client.HTTPException) as error:
            msg = f"{method} {path}: {error!r}"
            raise ToolError(msg) from error
        if status < http.client.BAD_REQUEST or (missing_ok and status == http.client.NOT_FOUND):
            return json.loads(answer)
        msg = f"{method} {path}: {status} {_said(answer)}"
        raise ToolError(msg)

    def close(self) -> None:
        """Close the connection; the next request opens another one."""
        with self._lock:
            self._connection.close()

    def _of(self, manifest: Mapping[str, Any]) -> str:
        version = manifest["apiVersion"]  # which need not be the preferred one
        group = version.rpartition("/")[0]
        found = self._found(f"{manifest['kind']}.{group}" if group else manifest["kind"])
        root = f"/apis/{version}" if group else f"/api/{version}"
        return found.path(root, manifest.get("metadata", {}).get("namespace", "default"))

    def _found(self, resource: str) -> _Resource:
        if not self._knows(resource):
            msg = f"the API server knows no resource {resource}"
            raise ToolError(msg)
        return self._resources[resource]

    def _discovers(self, resource: str, *, namespaced: bool) -> bool:
        """Tell whether a resource is known as it is now: one of its name may have been deleted."""
        for _ in range(2):
            found = self._resources.get(resource)
            if found is not None and found.namespaced == namespaced:
                return True
            self._resources.clear()
            self._discover()
        return False

    def _knows(self, resource: str) -> bool:
        if resource not in self._resources:
            self._discover()
        return resource in self._resources

    def _discover(self) -> None:
        for root in ("/api", "/apis"):
            status, answer = self._send("GET", root, None, {"Accept": _DISCOVERY})
            if status != http.client.OK:
                msg = f"GET {root}: {status} {_said(answer)}"
                raise ToolError(msg)
            for name, found in _resources(json.loads(answer)["items"]):
                self._resources.setdefault(name, found)

    def _send(
        self, method: str, path: str, body: str | None, headers: Mapping[str, str]
    ) -> tuple[int, bytes]:
        sent = {"Authorization": f"Bearer {self._token}", "User-Agent": _AGENT, **headers}
        with self._lock:
            for _ in range(_TRIES):
                try:
                    status, answer = self._once(method, path, body, sent)
                except _CLOSED:  # by a server that was restarted: nothing answered this request
                    status, answer = self._once(method, path, body, sent)
                if status != http.client.TOO_MANY_REQUESTS:
                    break
                time.sleep(_AGAIN)  # a storage that is made anew, as kubectl waits for it
        return status, answer

    def _once(
        self, method: str, path: str, body: str | None, headers: Mapping[str, str]
    ) -> tuple[int, bytes]:
        try:
            self._connection.request(method, path, body, headers)
            answer = self._connection.getresponse()
            return answer.status, answer.read()
        except BaseException:
            self._connection.close()
            raise


@dataclass(frozen=True, slots=True)
class _Resource:
    root: str  # of the preferred version
    plural: str
    namespaced: bool

    def path(self, root: str, namespace: str) -> str:
        """Return where its objects are; those of no namespace pass over one, as in kubectl."""
        within = f"/namespaces/{namespace}" if namespace and self.namespaced else ""
        return f"{root}{within}/{self.plural}"


def _resources(groups: list[Any]) -> Iterator[tuple[str, _Resource]]:
    """Yield each name of each resource with it; the preferred version comes first."""
    for group in groups:
        name = group["metadata"].get("name", "")
        for version in group["versions"]:
            root = f"/apis/{name}/{version['version']}" if name else f"/api/{version['version']}"
            for resource in version["resources"]:
                found = _Resource(root, resource["resource"], resource["scope"] == "Namespaced")
                kind, singular = resource["responseKind"]["kind"], resource["singularResource"]
                for called in (resource["resource"], singular, kind):
                    yield called, found
                    yield f"{called}.{name}", found


def _said(answer: bytes) -> str:
    try:
        return str(json.loads(answer)["message"])
    except (ValueError, KeyError, TypeError):
        return answer.decode(errors="replace")
