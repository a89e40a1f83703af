"""What the configuration makes of an update that changes what the policy decides."""

from __future__ import annotations

from functools import partial

import aiohttp
import msgspec
import pytest

from kube_sync.admission.decision_client import DecisionClient
from kube_sync.admission.engine_formats import Answer
from kube_sync.admission.policygate import PolicyGate
from kube_sync.admission.requested_values import view
from kube_sync.admission.review import Review
from kube_sync.admission.server import PATH, webhook_app
from kube_sync.config import Admission
from kube_sync.decisions.decision import REQUESTED
from kube_sync.runtime.httpserver import serving
from tests.fakes.reviews import Json, body, resource, response, stored

_JSON = {"Content-Type": "application/json"}
HELD = resource({"a": "1", REQUESTED: '{"a":null}'})
SENT = resource({"a": "2", REQUESTED: '{"a":null}'})


class Engine:
    """Decides what it always decides; what it was asked is kept."""

    def __init__(self) -> None:
        self.asked: list[bytes] = []

    where = "policy engine"

    async def ask(self, _review: Review, found: msgspec.Raw) -> Answer:
        self.asked.append(bytes(found))
        return Answer(b'{"annotations":{"a":"1"}}')

    async def probe(self) -> None:
        pass


async def _answer(settings: Admission, engine: Engine, user: str = "developer") -> bytes:
    seen = partial(view, remediator=settings.remediator)
    judge = DecisionClient(engine, PolicyGate((), static=True), seen)
    review = body(SENT, operation="UPDATE", oldObject=HELD, userInfo={"username": user})
    async with (
        serving(webhook_app(judge, settings), ("127.0.0.1", 0)) as port,
        aiohttp.ClientSession() as session,
        session.post(f"http://127.0.0.1:{port}{PATH}", data=review, headers=_JSON) as found,
    ):
        return await found.read()


async def test_to_restore_is_to_admit_with_a_warning_and_to_note_the_request() -> None:
    answer = await _answer(Admission(), Engine())
    assert stored(SENT, answer) == resource({"a": "1", REQUESTED: '{"a":"2"}'})
    assert response(answer)["warnings"] == [
        "annotation a: decided by the placement policy, whose value stands"
    ]


async def test_to_deny_names_the_key_and_who_may_change_it() -> None:
    found = response(await _answer(Admission(owned="deny", remediator="robot"), Engine()))
    assert found == {
        "uid": "r1",
        "allowed": False,
        "status": {
            "code": 403,
            "message": "annotation a: decided by the placement policy, only robot may change this",
            "reason": "Forbidden",
        },
    }


@pytest.mark.parametrize(("user", "seen"), [("robot", b'"annotations":{}'), ("me", b'"a":"2"')])
async def test_only_the_configured_remediator_asks_for_nothing(user: str, seen: bytes) -> None:
    engine = Engine()
    answer = await _answer(Admission(owned="deny", remediator="robot"), engine, user)
    assert seen in engine.asked[0]
    found: Json = response(answer)
    assert found["allowed"] is (user == "robot")
