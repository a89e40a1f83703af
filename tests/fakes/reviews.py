"""AdmissionReviews as the API server sends them, and what it makes of the answers."""

from __future__ import annotations

import base64
import json
from typing import Any

from kube_sync.admission.review import Review, parse_review

Json = dict[str, Any]


def body(document: object, /, **request: object) -> bytes:
    """Return a review of a create, or of whatever `request` says."""
    return json.dumps(
        {
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "request": {"uid": "r1", "operation": "CREATE", "object": document} | request,
        }
    ).encode()


def resource(annotations: dict[str, str] | None, labels: dict[str, str] | None = None) -> Json:
    """Return an object with these annotations and labels; None: without such a map."""
    metadata: Json = {"name": "web"}
    if annotations is not None:
        metadata["annotations"] = annotations
    if labels is not None:
        metadata["labels"] = labels
    return {"kind": "ReplicaSet", "metadata": metadata, "spec": {"replicas": 3}}


def create(new: Json) -> Review:
    """Return the review of a create."""
    return parse_review(body(new))


def update(new: Json, old: Json, user: str = "developer", manager: str = "kubectl") -> Review:
    """Return the review of an update."""
    by = {"userInfo": {"username": user}, "options": {"fieldManager": manager}}
    return parse_review(body(new, operation="UPDATE", oldObject=old, **by))


def response(answer: bytes) -> Json:
    """Return what is answered to a review of these."""
    document = json.loads(answer)
    assert (document["apiVersion"], document["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    found: Json = document["response"]
    assert found["uid"] == "r1"
    return found


def operations(found: Json) -> list[Json]:
    """Return the JSON Patch of a response."""
    assert found.get("patchType") == ("JSONPatch" if "patch" in found else None)
    decoded: list[Json] = json.loads(base64.b64decode(found.get("patch", "W10=")))
    return decoded


def stored(document: Json, answer: bytes) -> Json:
    """Return what the API server stores of an object that was admitted with this answer."""
    found = response(answer)
    assert found["allowed"] is True
    return patched(document, operations(found))


def patched(document: Json, patch: list[Json]) -> Json:
    """Interpret `add` and `remove` (RFC 6902), which refuse a path that leads nowhere."""
    result: Json = json.loads(json.dumps(document))
    for operation in patch:
        empty, *parents, leaf = operation["path"].split("/")
        assert empty == ""
        below = result
        for part in parents:
            below = below[part]
        name = leaf.replace("~1", "/").replace("~0", "~")
        if operation["op"] == "add":
            below[name] = operation["value"]
        else:
            assert operation == {"op": "remove", "path": operation["path"]}
            del below[name]
    return result
