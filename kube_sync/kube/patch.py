"""Patches of annotations and statuses.

- Server-side apply for what a decision wants: the field manager owns exactly these keys; uid and
  resourceVersion bind it to the object and the state that the decision was made on.
- JSON Patch, bound to both too, to remove or restore what no field manager owns.
- Merge patch, bound to the resourceVersion, for a status annotation on a foreign object.
- Server-side apply of the status subresource for a kind's own status.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Protocol

import msgspec

from kube_sync.errors import Conflict, NotFound, Terminal
from kube_sync.kube.client import KubeClient
from kube_sync.objects import GroupVersionResource, ObjectKey

# The message for every patch that does not fit (apiserver, endpoints/handlers/patch.go); for an
# invalid value the message names it.
_TEST_FAILED = "the server rejected our request due to an error in our request"
_METADATA: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"


@dataclass(frozen=True, slots=True)
class ObjectReference:
    """One object of a kind, identified by its uid."""

    gvr: GroupVersionResource
    kind: str
    key: ObjectKey
    uid: str


class Applied(Protocol):
    """The wanted metadata of an object, and the state of the object that it was computed from."""

    @property
    def uid(self) -> str:
        """The object's uid."""
        ...

    @property
    def annotations(self) -> Mapping[str, str]:
        """All annotations that the manager owns from now on."""
        ...

    @property
    def labels(self) -> Mapping[str, str]:
        """All labels that the manager owns from now on."""
        ...

    @property
    def version(self) -> str:
        """The resourceVersion of that state; empty: any."""
        ...


class Amended(Protocol):
    """The metadata to set or remove (None) of an object in a given state."""

    @property
    def uid(self) -> str:
        """The object's uid."""
        ...

    @property
    def annotations(self) -> Mapping[str, str | None]:
        """The annotations that change."""
        ...

    @property
    def labels(self) -> Mapping[str, str | None]:
        """The labels that change."""
        ...

    @property
    def version(self) -> str:
        """The resourceVersion of that state."""
        ...

    @property
    def bare(self) -> Collection[str]:
        """Those of `annotations` and `labels` that the object lacks entirely."""
        ...


async def apply_metadata(
    client: KubeClient,
    gvr: GroupVersionResource,
    kind: str,
    key: ObjectKey,
    wanted: Applied,
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
    body = {
        "apiVersion": gvr.api_version,
        "kind": kind,
        "metadata": metadata,
    }
    with gone_if_another():
        await client.request(
            "PATCH",
            gvr.path(key.namespace, key.name),
            # Forced: the policy's value replaces the existing one (design, "Initial Placement").
            params={"fieldManager": manager, "force": "true"},
            body=msgspec.json.encode(body),
            content_type="application/apply-patch+yaml",
            # The answer is not needed: request the smallest.
            accept=_METADATA,
        )


async def apply_status(
    client: KubeClient,
    of: ObjectReference,
    status: Mapping[str, Any],
    manager: str,
    accept: str = _METADATA,
) -> bytes:
    """Apply these fields of the status subresource (server-side apply), and own no others of it.

    Returns the answer in the format of `accept`, by default the smallest. Raises SyncError:
    NotFound when the object is gone or replaced by another of its name.
    """
    body = {
        "apiVersion": of.gvr.api_version,
        "kind": of.kind,
        "metadata": {"name": of.key.name, "uid": of.uid},
        "status": dict(status),
    }
    with gone_if_another():
        return await client.request(
            "PATCH",
            of.gvr.path(of.key.namespace, of.key.name) + "/status",
            # Forced: we own the conditions of our types, whoever wrote them last.
            params={"fieldManager": manager, "force": "true"},
            body=msgspec.json.encode(body),
            content_type="application/apply-patch+yaml",
            accept=accept,
        )


async def amend_metadata(
    client: KubeClient,
    gvr: GroupVersionResource,
    key: ObjectKey,
    wanted: Amended,
    manager: str,
) -> None:
    """Set and remove annotations and labels by a JSON Patch, whoever owns them.

    Raises SyncError: NotFound when the object is gone, Conflict when it has changed or was replaced
    by another of its name.
    """
    with changed_if_untrue():
        await client.request(
            "PATCH",
            gvr.path(key.namespace, key.name),
            params={"fieldManager": manager},
            body=msgspec.json.encode(list(_operations(wanted))),
            content_type="application/json-patch+json",
            accept=_METADATA,
        )


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
    await client.request(
        "PATCH",
        gvr.path(key.namespace, key.name),
        params={"fieldManager": manager},
        body=msgspec.json.encode(body),
        content_type="application/merge-patch+json",
        accept=_METADATA,
    )


def _operations(wanted: Amended) -> Iterator[dict[str, Any]]:
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
            yield (
                {"op": "remove", "path": path}
                if value is None
                else {
                    "op": "add",
                    "path": path,
                    "value": value,
                }
            )


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
