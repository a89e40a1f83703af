"""The entry of a canary: who is asked, and what comes of it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from kube_sync.admission.engine import EngineClient
from kube_sync.admission.engine_errors import Failed, Passing
from kube_sync.admission.engine_formats import Answer
from kube_sync.admission.entry import EntryClient, entry_client
from tests.fakes.engine import PATH, review, stand_in
from tests.fakes.http import answer

EVALUATION_ERROR = {
    "code": "internal_error",
    "message": "error(s) occurred while evaluating query",
    "errors": [{"code": "eval_type_error", "message": "not an object"}],
}


async def _ask(client: EngineClient | EntryClient) -> Answer:
    asked = review()
    return await client.ask(asked, asked.object)


async def _sided(entry: object, status: int = 200, **target: Any) -> tuple[Any, list[str]]:
    """Return what comes of an ask where the entry says this, and which paths were asked."""
    async with stand_in(lambda _: {"annotations": {"by": "usual"}}) as engine:
        where = engine.http.url + "/entry"
        engine.http.fault(
            lambda request: request.path == "/entry",
            answer(status, json.dumps(entry).encode()),
            times=9,
        )
        found = replace(engine.target(**target), entry=where)
        async with entry_client(found, lambda: True) as client:
            try:
                said: Any = json.loads((await _ask(client)).decision)
            except (Failed, Passing) as error:
                said = error
        return said, [request.path for request in engine.http.requests]


async def test_where_a_canary_may_be_its_entry_decides() -> None:
    decision = {"annotations": {"by": "canary"}}
    said, paths = await _sided({"result": {"side": "canary", "decision": decision}})
    assert (said, paths) == (decision, ["/entry"])


@pytest.mark.parametrize(
    ("dialect", "status", "said"), [("v1", 200, {}), ("v1", 404, {}), ("v0", 404, {})]
)
async def test_where_opa_has_no_entry_it_is_asked_as_ever(
    dialect: str, status: int, said: object
) -> None:
    """A canary that is counted first, was halted, or is on its way out: nobody is denied for it."""
    answered, paths = await _sided(said, status, dialect=dialect)
    if dialect == "v1":
        assert answered == {"annotations": {"by": "usual"}}
    assert paths == ["/entry", PATH]


async def test_what_the_side_of_an_object_leaves_undecided_is_not_asked_of_the_other() -> None:
    said, paths = await _sided({"result": {"side": "canary"}})
    assert isinstance(said, Failed)
    assert (said.why, paths) == ("undefined", ["/entry"])


@pytest.mark.parametrize(
    ("status", "entry", "why"),
    [
        (500, EVALUATION_ERROR, "evaluation-error"),
        (401, {}, "unauthorized"),
        (503, {}, "overloaded"),
        (200, {"result": {"allow": True}}, "malformed"),
    ],
)
async def test_what_goes_wrong_at_the_entry_is_no_reason_to_ask_the_other_side(
    status: int, entry: object, why: str
) -> None:
    said, paths = await _sided(entry, status)
    assert isinstance(said, (Failed, Passing))
    assert (said.why, paths) == (why, ["/entry"])


async def test_without_a_canary_its_entry_is_not_asked() -> None:
    async with stand_in() as engine:
        found = replace(engine.target(), entry=engine.http.url + "/entry")
        async with entry_client(found, lambda: False) as client:
            await _ask(client)
            await client.probe()
        assert [request.path for request in engine.http.requests] == [PATH, PATH]
