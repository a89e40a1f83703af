"""Patches of annotations and statuses.

- Server-side apply for what a decision wants: the field manager owns exactly these keys; uid and
  resourceVersion bind it to the object and the state that the decision was made on.
- JSON Patch, bound to both too, to remove or restore what no field manager owns.
- Merge patch, bound to the resourceVersion, for a status annotation on a foreign object.
- Server-side apply of the status subresource for a kind's own status.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec

from kube_sync.errors import Conflict, NotFound, Terminal
from kube_sync.kube.client import KubeClient
from kube_sync.kube.meta import Amend, Apply
from kube_sync.objects import GroupVersionResource, ObjectKey

# The message for every patch that does not fit (apiserver, endpoints/handlers/patch.go); for an
# invalid value the message names it.
_TEST_FAILED = "the server rejected our request due to an error in our request"
# The smallest answer, for those that do not need it.
METADATA: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
_TYPES: Final = {
    "apply": "application/apply-patch+yaml",
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
}


@dataclass(frozen=True, slots=True)
class ObjectReference:
    """One object of a kind, identified by its uid."""

    gvr: GroupVersionResource
    kind: str
    key: ObjectKey
    uid: str


Form = Literal["apply", "merge", "json"]


async def patch(
    client: KubeClient,
    path: str,
    body: object,
    form: Form,
    manager: str,
    *,
    force: bool = True,
    accept: str = METADATA,
) -> bytes:
    """Send one PATCH as a field manager, and return the answer, by default only the metadata.

    `force`: an apply takes what other managers own. Raises SyncError.
    """
    forced = {"force": str(force).lower()} if form == "apply" else {}
    return await client.request(
        "PATCH",
        path,
        params={"fieldManager": manager, **forced},
        body=msgspec.json.encode(body),
        content_type=_TYPES[form],
        accept=accept,
    )


async def apply_metadata(
    client: KubeClient,
    gvr: GroupVersionResource,
    kind: str,
    key: ObjectKey,
    wanted: Apply,
    manager: str,
) -> None:
    """Apply annotations and labels (server-side apply), and take their ownership by force.

    Raises SyncError: NotFound when the object is gone or replaced by another of its name, Conflict
    when it has changed.
    """
    metadata: dict[str, Any] = {"name": key.name, "uid": wanted.uid}
    metadata["annotations"] = dict(wanted.annotations)
    # Omitted if empty: an apply gives up the fields that it does not name, so they are removed.
    metadata |= {"labels": dict(wanted.labels)} if wanted.labels else {}
    metadata |= {"resourceVersion": wanted.version} if wanted.version else {}
    body = {"apiVersion": gvr.api_version, "kind": kind, "metadata": metadata}
    # Forced: the policy's value replaces the existing one (design, "Initial Placement").
    with gone_if_another():
        await patch(client, gvr.path(key.namespace, key.name), body, "apply", manager)


async def apply_status(
    client: KubeClient,
    of: ObjectReference,
    status: Mapping[str, Any],
    manager: str,
    accept: str = METADATA,
    *,
    version: str = "",
) -> bytes:
    """Apply these fields of the status subresource (server-side apply), and own no others of it.

    `version` is the resourceVersion of the object that they are about; empty: any. Returns the
    answer in the format of `accept`, by default the smallest. Raises SyncError: NotFound when the
    object is gone or replaced by another of its name, Conflict when it has changed.
    """
    metadata = {"name": of.key.name, "uid": of.uid}
    metadata |= {"resourceVersion": version} if version else {}
    body = {
        "apiVersion": of.gvr.api_version,
        "kind": of.kind,
        "metadata": metadata,
        "status": dict(status),
    }
    path = of.gvr.path(of.key.namespace, of.key.name) + "/status"
    # Forced: we own the conditions of our types, whoever wrote them last.
    with gone_if_another():
        return await patch(client, path, body, "apply", manager, accept=accept)


async def amend_metadata(
    client: KubeClient,
    gvr: GroupVersionResource,
    key: ObjectKey,
    wanted: Amend,
    manager: str,
) -> None:
    """Set and remove annotations and labels by a JSON Patch, whoever owns them.

    Raises SyncError: NotFound when the object is gone, Conflict when it has changed or was replaced
    by another of its name.
    """
    with changed_if_untrue():
        path, operations = gvr.path(key.namespace, key.name), list(_operations(wanted))
        await patch(client, path, operations, "json", manager)


async def annotate(
    client: KubeClient,
    gvr: GroupVersionResource,
    key: ObjectKey,
    version: str,
    annotations: Mapping[str, str | None],
    manager: str,
) -> None:
    """Set annotations, or remove them (None), if the object is still at resourceVersion `version`.

    Raises SyncError: Conflict when it is not.
    """
    body = {"metadata": {"resourceVersion": version, "annotations": dict(annotations)}}
    await patch(client, gvr.path(key.namespace, key.name), body, "merge", manager)


def _operations(wanted: Amend) -> Iterator[dict[str, Any]]:
    """Yield a JSON Patch (RFC 6902) that succeeds only for the state that was read."""
    yield {"op": "test", "path": "/metadata/uid", "value": wanted.uid}
    yield {"op": "test", "path": "/metadata/resourceVersion", "value": wanted.version}
    for name, values in (("annotations", wanted.annotations), ("labels", wanted.labels)):
        if values and name in wanted.bare:
            yield {"op": "add", "path": f"/metadata/{name}", "value": dict(values)}
            continue
        for key, value in sorted(values.items()):
            path = f"/metadata/{name}/" + key.replace("~", "~0").replace("/", "~1")
            # `add` replaces an existing member (section 4.1).
            member = {"op": "add", "path": path, "value": value}
            yield {"op": "remove", "path": path} if value is None else member


@contextmanager
def gone_if_another() -> Iterator[None]:
    """Raise NotFound if the API server reports a uid mismatch: the object was replaced."""
    try:
        yield
    except (Conflict, Terminal) as error:
        # The messages: registry/generic "uid mismatch", and metadata.uid is immutable.
        if "uid mismatch" in str(error) or "metadata.uid" in str(error):
            raise NotFound(str(error)) from error
        raise


@contextmanager
def changed_if_untrue() -> Iterator[None]:
    """Raise Conflict for a failed `test`, which is a 422 like an invalid value."""
    try:
        yield
    except Terminal as error:
        if _TEST_FAILED in str(error):
            raise Conflict(str(error)) from error
        raise
