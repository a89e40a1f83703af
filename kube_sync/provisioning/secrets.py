"""Parses and makes one Secret: its content, and whether it is ours.

Invariant: a Secret without our mark has another owner: its content is used and never changed;
an unreadable one raises, so that it is neither taken for an empty one nor overwritten. No error
quotes the content.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from kube_sync.errors import NO_JSON, Terminal
from kube_sync.kube.meta import ObjectMeta
from kube_sync.objects import GroupVersionResource, ObjectKey

SECRETS: Final = GroupVersionResource("", "v1", "secrets")
OPAQUE: Final = "Opaque"
TLS: Final = "kubernetes.io/tls"
SINCE: Final = "kube-sync.io/provisioned-at"  # Unix seconds; a Secret with it is ours
# Without it Argo CD reads no Secret that a generator names ("Plugin Generator").
PART_OF_ARGOCD: Final = {"app.kubernetes.io/part-of": "argocd"}
_LABELS: Final = {
    "app.kubernetes.io/name": "kube-sync",
    "app.kubernetes.io/managed-by": "kube-sync-provision",
}
_NONE: Final[Mapping[str, str]] = {}


@dataclass(frozen=True, slots=True)
class Content:
    """The content of a Secret; `since` is None if it is not ours."""

    data: Mapping[str, bytes] = field(repr=False)
    type: str = OPAQUE
    since: float | None = None


class _Secret(msgspec.Struct):
    metadata: ObjectMeta
    data: dict[str, str] | None = None
    type: str = OPAQUE


def read_secret(name: str, body: bytes) -> tuple[Content, ObjectMeta]:
    """Parse a Secret; return its content and its metadata. Raises Terminal."""
    try:
        found = msgspec.json.decode(body, type=_Secret)
        data = {key: base64.b64decode(text) for key, text in (found.data or {}).items()}
    except (*NO_JSON, ValueError):
        # Without its cause, which quotes the content.
        msg = f"Secret {name} is not to be read as one"
        raise Terminal(msg) from None
    since = (found.metadata.annotations or {}).get(SINCE)
    return Content(data, found.type, _number(since)), found.metadata


def written(
    key: ObjectKey, content: Content, before: ObjectMeta, labels: Mapping[str, str] = _NONE
) -> dict[str, Any]:
    """Return a Secret of ours; `labels` are there beside those of all our Secrets.

    `before` is the metadata of the one that it replaces: labels and annotations of others stay.
    """
    metadata = {
        "name": key.name,
        "namespace": key.namespace,
        "labels": {**(before.labels or {}), **_LABELS, **labels},
        "annotations": {**(before.annotations or {}), SINCE: f"{content.since or 0:.0f}"},
    }
    data = {key: base64.b64encode(value).decode() for key, value in content.data.items()}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": metadata,
        "type": content.type,
        "data": data,
    }


def _number(text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:  # an invalid time counts as the oldest
        return 0.0
