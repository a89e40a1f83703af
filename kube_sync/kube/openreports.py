"""Reports of OpenReports: what was found about the objects of one namespace.

The shape is that of `openreports.io/v1alpha1` Report in github.com/openreports/reports-api v0.2.1
(config/crd/openreports.io_reports.yaml). In a namespace there is one report of ours, known by its
name and its label; others belong to other writers.

Invariant: equal findings make equal content, whenever they were made: times do not count, so a
report that is right need not be written. A report has a bounded number of results, and says how
many it lacks; its summary counts all. Pure, but for `ReportApi`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import msgspec

from kube_sync.errors import NO_JSON, Retriable
from kube_sync.kube.client import KubeClient
from kube_sync.kube.collection import Item
from kube_sync.kube.meta import ObjectMeta
from kube_sync.kube.slices import MANAGED_BY, OURS
from kube_sync.kube.wholeobjects import apply_object, delete_object
from kube_sync.objects import GroupVersionResource, ObjectKey

REPORTS: Final = GroupVersionResource("openreports.io", "v1alpha1", "reports")
NAME: Final = "kube-sync-placement"
MANAGER: Final = "kube-sync-openreports"  # field manager
LEFT_OUT: Final = "kube-sync.io/results-left-out"  # annotation: how many results are missing
_SOURCE: Final = "kube-sync"
_POLICY: Final = "placement"  # required: what the decisions are about
_BYTES: Final = 500  # of a text: a report has to stay below the 1.5 MiB of an object

Json = dict[str, Any]
Outcome = Literal["error", "fail", "warn"]  # the worst first
_ORDER: Final[Mapping[Outcome, int]] = {"error": 0, "fail": 1, "warn": 2}


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found about one object; `since` are Unix seconds."""

    api_version: str
    kind: str
    key: ObjectKey
    uid: str
    category: str
    rule: str
    result: Outcome
    message: str
    since: int
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Report:
    """Our report in a namespace as the API server stores it; `content` is without times."""

    key: ObjectKey
    uid: str
    content: Json


class _Stored(msgspec.Struct):
    metadata: ObjectMeta
    configuration: Any = None
    results: list[dict[str, Any]] = []
    scope: Any = None
    source: Any = None
    summary: Any = None


_stored = msgspec.json.Decoder(_Stored)


def report_of(item: Item) -> Report | None:
    """Parse a report; None if it is not ours, or has an unknown shape."""
    return _parsed(item.body)


def document(namespace: str, findings: Sequence[Finding], most: int) -> Json:
    """Return the report on a namespace, with at most so many results."""
    ordered = sorted(findings, key=_position)
    counts, left_out = Counter(one.result for one in ordered), len(ordered) - most
    metadata: Json = {"name": NAME, "namespace": namespace, "labels": {MANAGED_BY: OURS}}
    if left_out > 0:
        metadata["annotations"] = {LEFT_OUT: str(left_out)}
    return {
        "apiVersion": REPORTS.api_version,
        "kind": "Report",
        "metadata": metadata,
        "source": _SOURCE,
        "scope": {"apiVersion": "v1", "kind": "Namespace", "name": namespace},
        "configuration": {"limits": {"maxResults": most}},
        "summary": {"pass": 0, "skip": 0, **{name: counts[name] for name in _ORDER}},
        "results": [_result(one) for one in ordered[:most]],
    }


def content(report: Mapping[str, Any]) -> Json:
    """Return what a report says, without times."""
    annotations = report["metadata"].get("annotations") or {}
    return {
        **{name: report.get(name) for name in ("configuration", "scope", "source", "summary")},
        "left_out": annotations.get(LEFT_OUT),
        "results": [_untimed(one) for one in report.get("results") or ()],
    }


class ReportApi:
    """Writes reports at one API server."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client

    async def apply(self, wanted: Json, found: Report | None) -> Report:
        """Apply a report, to the one that was found or to a new one. Raises SyncError.

        Conflict: another manager has a report of that name.
        """
        metadata = wanted["metadata"]
        key = ObjectKey(metadata["namespace"], metadata["name"])
        uid = None if found is None else found.uid
        answer = await apply_object(self._client, REPORTS, key, wanted, MANAGER, uid)
        if (written := _parsed(answer)) is None:
            msg = f"Report {key}: the answer is not the report that was written"
            raise Retriable(msg)
        return written

    async def delete(self, found: Report) -> None:
        """Delete a report; no error if it is gone. Raises SyncError."""
        await delete_object(self._client, REPORTS, found.key, found.uid)


def _parsed(body: bytes) -> Report | None:
    try:
        found = _stored.decode(body)
    except NO_JSON:
        return None
    metadata = found.metadata
    if metadata.name != NAME or (metadata.labels or {}).get(MANAGED_BY) != OURS:
        return None
    said = content(msgspec.to_builtins(found))
    return Report(ObjectKey(metadata.namespace, metadata.name), metadata.uid, said)


def _position(finding: Finding) -> tuple[int, str, str, str]:
    """Return its place: the worst first, then by name; nothing in it changes by itself."""
    return _ORDER[finding.result], finding.kind, finding.key.name, finding.uid


def _result(finding: Finding) -> Json:
    name, namespace = finding.key.name, finding.key.namespace
    subject = {"apiVersion": finding.api_version, "kind": finding.kind, "uid": finding.uid}
    found: Json = {
        "source": _SOURCE,
        "policy": _POLICY,
        "category": finding.category,
        "rule": finding.rule,
        "result": finding.result,
        "scored": True,
        "message": _short(finding.message),
        "timestamp": {"seconds": finding.since, "nanos": 0},
        "resources": [{**subject, "namespace": namespace, "name": name}],
    }
    if finding.properties:
        known = finding.properties.items()
        found["properties"] = {name: _short(text) for name, text in known}
    return found


def _short(text: str) -> str:
    """Return the beginning of a text, cut between two characters."""
    return text.encode()[:_BYTES].decode(errors="ignore")


def _untimed(result: Mapping[str, Any]) -> Json:
    return {name: value for name, value in result.items() if name != "timestamp"}
