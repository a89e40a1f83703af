"""The ways in which annotations and statuses are written.

Server-side apply for what a decision wants (the field manager owns exactly these keys; the uid
makes sure that it is the object that was decided on, the resourceVersion that it is the state of
it that was read); a JSON Patch, bound to both too, to take away what no field manager owns or to
give it back; a merge patch, bound to the resourceVersion, for a status on somebody else's object;
server-side apply of the subresource for a status that is a kind's own.
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

# Of every patch that does not fit (apiserver, endpoints/handlers/patch.go); a refused value is
# named instead.
_TEST_FAILED = "the server rejected our request due to an error in our request"
_METADATA: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"


@dataclass(frozen=True, slots=True)
class ObjectReference:
    """One object of a kind, and no other one of its name."""

    gvr: GroupVersionResource
    kind: str
    key: ObjectKey
    uid: str


class Applied(Protocol):
    """What an object is to have, and in which state it was when that was found out."""

    @property
    def uid(self) -> str:
        """The object's."""
        ...

    @property
    def annotations(self) -> Mapping[str, str]:
        """All of them that the manager owns from now on."""
        ...

    @property
    def labels(self) -> Mapping[str, str]:
        """The same of labels."""
        ...

    @property
    def version(self) -> str:
        """The resourceVersion of that state; empty: any."""
        ...


class Amended(Protocol):
    """What is to be set or removed (None) of an object in which state."""

    @property
    def uid(self) -> str:
        """The object's."""
        ...

    @property
    def annotations(self) -> Mapping[str, str | None]:
        """Those that change."""
        ...

    @property
    def labels(self) -> Mapping[str, str | None]:
        """The same of labels."""
        ...

    @property
    def version(self) -> str:
        """The resourceVersion of that state."""
        ...

    @property
    def bare(self) -> Collection[str]:
        """Which of `annotations` and `labels` the object has none of."""
        ...


async def apply_metadata(
    client: KubeClient,
    gvr: GroupVersionResource,
    kind: str,
    key: ObjectKey,
    wanted: Applied,
    manager: str,
) -> None:
    """Make `manager` own these annotations and labels, whoever wrote them before.

    Raises SyncError: NotFound when the object is gone, also when another one has its name,
    Conflict when it has changed.
    """
    metadata: dict[str, Any] = {"name": key.name, "uid": wanted.uid}
    metadata["annotations"] = dict(wanted.annotations)
    # Left out where there are none: an apply gives up what it does not name, and so they go.
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
            # The answer is not needed: ask for the smallest there is.
            accept=_METADATA,
        )


async def apply_status(
    client: KubeClient,
    of: ObjectReference,
    status: Mapping[str, Any],
    manager: str,
    accept: str = _METADATA,
) -> bytes:
    """Make `manager` own these fields of the status and no others of it, by the subresource.

    Returns the answer, in the form that `accept` asks for; by default the smallest there is.
    Raises SyncError: NotFound when the object is gone, also when another one has its name.
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
            # Forced: the conditions are ours by their types, whoever wrote them last.
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
    """Set and remove annotations and labels, whoever owns them, in the name of `manager`.

    Raises SyncError: NotFound when the object is gone, Conflict when it has changed or another one
    has its name.
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
    """Set annotations, or remove them (None), if the object is still at `version`.

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
    """Yield a JSON Patch (RFC 6902) that fits only the object in the state that was read."""
    yield {"op": "test", "path": "/metadata/uid", "value": wanted.uid}
    yield {"op": "test", "path": "/metadata/resourceVersion", "value": wanted.version}
    for name, values in (("annotations", wanted.annotations), ("labels", wanted.labels)):
        if values and name in wanted.bare:
            yield {"op": "add", "path": f"/metadata/{name}", "value": dict(values)}
            continue
        for key, value in sorted(values.items()):
            path = f"/metadata/{name}/" + key.replace("~", "~0").replace("/", "~1")
            # `add` replaces a member that is there (section 4.1).
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
    """Tell by what the API server says of the uid that the object is not there any more."""
    try:
        yield
    except (Conflict, Terminal) as error:
        # In these words: registry/generic "uid mismatch", and metadata.uid is immutable.
        if "uid mismatch" in str(error) or "metadata.uid" in str(error):
            raise NotFound(str(error)) from error
        raise


@contextmanager
def changed_if_untrue() -> Iterator[None]:
    """Tell a `test` that failed, which is a 422 too, from a value that is refused."""
    try:
        yield
    except Terminal as error:
        if _TEST_FAILED in str(error):
            raise Conflict(str(error)) from error
        raise
