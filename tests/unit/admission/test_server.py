from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path

import pytest
from prometheus_client import REGISTRY
from structlog.testing import capture_logs

from kube_sync.admission.decision_client import (
    Admitted,
    DecisionReference,
    Denied,
    Undecidable,
    Verdict,
)
from kube_sync.admission.review import Review
from kube_sync.decisions.decision import Decision
from tests.fakes.reviewing import RESOURCE, Judge, webhook
from tests.fakes.reviews import body as review_body


async def test_a_decision_comes_back_as_a_patch(certificates: Path) -> None:
    judge = Judge(Admitted(Decision({"a": "1"})))
    async with webhook(certificates, judge) as server:
        response = await server.review(RESOURCE)
    assert json.loads(base64.b64decode(response.pop("patch"))) == [
        {
            "op": "add",
            "path": "/metadata/annotations",
            "value": {"a": "1", "kube-sync.io/requested": '{"a":null}'},
        }
    ]
    assert response == {"allowed": True, "patchType": "JSONPatch"}
    (asked,) = judge.asked
    assert json.loads(bytes(asked.object)) == RESOURCE


async def test_errors_of_the_policy_deny_with_all_reasons(certificates: Path) -> None:
    async with webhook(certificates, Judge(Denied(("no PCI", "no EU")))) as server:
        assert await server.review(RESOURCE) == {
            "allowed": False,
            "status": {"code": 403, "message": "no PCI; no EU", "reason": "Forbidden"},
        }


async def test_no_decision_denies_with_a_reason(certificates: Path) -> None:
    async with webhook(certificates, Judge(Undecidable("it is undefined", "undefined"))) as server:
        response = await server.review(RESOURCE)
    assert response["allowed"] is False
    assert response["status"]["code"] == 503
    assert response["status"]["message"] == (
        "there is a placement policy, but no decision of it: it is undefined"
    )


@pytest.mark.parametrize(
    ("resource", "request_of_it"),
    [
        (None, {"operation": "DELETE", "oldObject": RESOURCE}),
        ({"metadata": {}}, {"operation": "CONNECT"}),
        (
            {"metadata": {}, "spec": {"replicas": 3}},
            {"operation": "UPDATE", "subResource": "scale"},
        ),
    ],
)
async def test_what_stores_no_main_resource_is_admitted_and_nobody_is_asked(
    certificates: Path, resource: object, request_of_it: dict[str, object]
) -> None:
    """A deletion above all: the only way out when a policy refuses everything."""
    judge = Judge(Denied(("no",)))
    async with webhook(certificates, judge) as server:
        assert await server.review(resource, **request_of_it) == {"allowed": True}
    assert judge.asked == []


@pytest.mark.parametrize("operation", ["CREATE", "UPDATE", "", "PATCH"])
async def test_whatever_else_is_decided_on(certificates: Path, operation: str) -> None:
    """An operation that nobody has heard of least of all opens the door."""
    async with webhook(certificates, Judge(Denied(("no",)))) as server:
        assert (await server.review(RESOURCE, operation=operation))["allowed"] is False


async def test_the_engine_has_less_time_than_the_api_server_gives(certificates: Path) -> None:
    judge = Judge()
    async with webhook(certificates, judge) as server:
        await server.post(review_body(RESOURCE), timeout="2s")
        await server.post(review_body(RESOURCE))
    assert judge.seconds == pytest.approx([1.6, 9.5], abs=0.1)
    assert judge.seconds[0] < 1.6


async def test_the_time_that_a_body_took_to_arrive_is_not_the_engines(certificates: Path) -> None:
    judge, body = Judge(), review_body(RESOURCE)
    head = (
        f"POST /admit/placement?timeout=10s HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n"
    )
    async with webhook(certificates, judge) as server:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", server.port, ssl=server.trusting
        )
        writer.write(head.encode() + b"Content-Type: application/json\r\n\r\n" + body[:10])
        await asyncio.sleep(0.2)
        writer.write(body[10:])
        assert b" 200 " in await reader.readline()
        writer.close()
    assert 9.0 < judge.seconds[0] < 9.31


def _observed(outcome: str) -> float:
    return REGISTRY.get_sample_value("kube_sync_admission_seconds_count", {"outcome": outcome}) or 0


_ASKED = DecisionReference("d-1", "p-1")


@pytest.mark.parametrize(
    ("verdict", "level", "told"),
    [
        (Admitted(Decision(), _ASKED), "info", {"outcome": "admitted"}),
        (
            Denied(("no PCI", "no EU"), _ASKED),
            "info",
            {"outcome": "denied", "reason": "no PCI; no EU"},
        ),
        (
            Undecidable("it takes too long", "timeout", _ASKED),
            "warning",
            {"outcome": "undecidable", "reason": "it takes too long", "why": "timeout"},
        ),
    ],
)
async def test_each_review_is_measured_and_told_without_its_body(
    certificates: Path, verdict: Verdict, level: str, told: dict[str, str]
) -> None:
    before = _observed(told["outcome"])
    resource = RESOURCE | {"data": {"key": "s3cret"}}
    with capture_logs() as logs:
        async with webhook(certificates, Judge(verdict)) as server:
            await server.review(
                resource,
                name="web",
                namespace="shop",
                kind={"group": "apps", "version": "v1", "kind": "ReplicaSet"},
                userInfo={"username": "jane"},
                dryRun=True,
            )
    (record,) = logs
    assert 0 < record.pop("seconds") < 5
    assert record == told | {
        "event": "admission",
        "log_level": level,
        "uid": "r1",
        "operation": "CREATE",
        "kind": "apps/v1 ReplicaSet",
        "object": "shop/web",
        "dry_run": True,
        "decision_id": "d-1",
        "policies": "p-1",
    }
    assert _observed(told["outcome"]) == before + 1
    assert "s3cret" not in str(logs)


async def test_each_refusal_is_told_with_its_reason(certificates: Path) -> None:
    judge, told = Judge(Denied(("no PCI", "no EU"))), []

    def denied(review: Review, outcome: str, reason: str) -> None:
        told.append((review.uid, outcome, reason))

    async with webhook(certificates, judge, denied=denied) as served:
        await served.review(RESOURCE)
        judge.answer = Undecidable("it is undefined", "undefined")
        response = await served.review(RESOURCE)
        judge.answer = Admitted(Decision())
        await served.review(RESOURCE)
    assert told == [
        ("r1", "denied", "no PCI; no EU"),
        ("r1", "undecidable", response["status"]["message"]),
    ]
