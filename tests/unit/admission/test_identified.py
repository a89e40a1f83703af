"""Which load of OPA's data an answer is from: who is asked, and what comes of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from kube_sync.admission.engine_errors import Failed, Passing
from kube_sync.admission.identified import identifying_client
from tests.fakes.engine import PATH, review, stand_in
from tests.fakes.http import Recorded, answer

USUAL = {"annotations": {"by": "usual"}}
DECISION = {"annotations": {"by": "reviewed"}}
ENTERED = {"annotations": {"by": "canary"}}


@dataclass
class Came:
    """What came of an ask."""

    decision: Any
    epoch: str
    paths: list[str]


def _at(path: str) -> Callable[[Recorded], bool]:
    return lambda request: request.path == path


async def _asked(
    document: object, status: int = 200, *, wanted: bool = True, canary: bool = False, **target: Any
) -> Came:
    """Return what comes of an ask where OPA says this of the decision and its epoch."""
    async with stand_in(lambda _: USUAL) as engine:
        for path, code, said in (
            ("/reviewed", status, document),
            ("/entry", 200, {"result": {"side": "canary", "decision": ENTERED}}),
        ):
            engine.http.fault(_at(path), answer(code, json.dumps(said).encode()), times=9)
        root = engine.http.url
        found = replace(engine.target(**target), entry=f"{root}/entry", reviewed=f"{root}/reviewed")
        async with identifying_client(found, lambda: canary, lambda: wanted) as client:
            asked = review()
            try:
                said = await client.ask(asked, asked.object)
            except (Failed, Passing) as error:
                came: tuple[Any, str] = error, ""
            else:
                came = json.loads(said.decision), said.epoch
        return Came(*came, [request.path for request in engine.http.requests])


async def test_answer_has_the_epoch_that_opa_names_with_it() -> None:
    came = await _asked({"result": {"epochs": ["e"], "decision": DECISION}})
    assert came == Came(DECISION, "e", ["/reviewed"])


@pytest.mark.parametrize("epochs", [[], ["e", "f"]])
async def test_answer_has_no_epoch_where_none_or_two_are_loaded(epochs: list[str]) -> None:
    came = await _asked({"result": {"epochs": epochs, "decision": DECISION}})
    assert came == Came(DECISION, "", ["/reviewed"])


@pytest.mark.parametrize(
    ("status", "document"),
    [(200, {}), (404, {}), (401, {}), (403, {}), (200, {"result": {"allow": True}})],
)
async def test_where_opa_cannot_name_it_it_is_asked_in_the_usual_way(
    status: int, document: object
) -> None:
    """It is empty, or of an older version, or its authorization is: nobody is denied for it."""
    came = await _asked(document, status)
    assert came == Came(USUAL, "", ["/reviewed", PATH])


async def test_undefined_decision_is_not_asked_for_again() -> None:
    came = await _asked({"result": {"epochs": ["e"]}})
    assert isinstance(came.decision, Failed)
    assert (came.decision.why, came.paths) == ("undefined", ["/reviewed"])


async def test_failed_evaluation_is_not_tried_in_the_usual_way() -> None:
    errors = [{"code": "eval_type_error", "message": "not an object"}]
    came = await _asked({"code": "internal_error", "message": "m", "errors": errors}, 500)
    assert isinstance(came.decision, Failed)
    assert (came.decision.why, came.paths) == ("evaluation-error", ["/reviewed"])


async def test_epoch_is_not_asked_for_while_answers_are_not_kept() -> None:
    came = await _asked({"result": {"epochs": ["e"], "decision": DECISION}}, wanted=False)
    assert came == Came(USUAL, "", [PATH])


async def test_while_a_canary_may_exist_its_entry_is_asked() -> None:
    came = await _asked({"result": {"epochs": ["e"], "decision": DECISION}}, canary=True)
    assert came == Came(ENTERED, "", ["/entry"])


async def test_another_engine_is_asked_in_the_usual_way() -> None:
    async with (
        stand_in(lambda _: USUAL) as engine,
        identifying_client(engine.target(), lambda: False, lambda: True) as client,
    ):
        asked = review()
        assert json.loads((await client.ask(asked, asked.object)).decision) == USUAL
        await client.probe()
        assert [request.path for request in engine.http.requests] == [PATH, PATH]


async def test_probe_asks_for_the_decision_itself() -> None:
    async with stand_in(lambda _: USUAL) as engine:
        found = replace(engine.target(), reviewed=f"{engine.http.url}/reviewed")
        async with identifying_client(found, lambda: False, lambda: True) as client:
            await client.probe()
            assert client.where.startswith("policy engine")
        assert [request.path for request in engine.http.requests] == [PATH]
