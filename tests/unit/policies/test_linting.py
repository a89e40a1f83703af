"""The linting beside the reconciler: of which source a warning is, and what failures do to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Collection, Sequence
from contextlib import suppress
from typing import Any

import pytest

from kube_sync.errors import Retriable
from kube_sync.opa.analysis.syntax import Clause, Module, Rule, Scalar
from kube_sync.opa.scratch import Cause, Modules
from kube_sync.policies.linter import Known
from kube_sync.policies.linting import Linting

DECISION = ("io", "k8s", "federation", "admission")
ID = "ns/p/m.rego"


def module(name: str, rule: str) -> Module:
    path = tuple(Scalar("string", part) for part in (*DECISION, rule))
    clause = Clause((), Scalar("number", "1"), ())
    found = Rule(
        name=rule,
        path=path,
        function=False,
        member=False,
        default=False,
        clauses=(clause,),
        number=0,
    )
    return Module(name, (found,), DECISION)


class Opa:
    """Each source is the name of its one rule; `broken` makes it give no answer."""

    def __init__(self) -> None:
        self.broken = False
        self.asked = 0
        self.failing: list[Cause] = []
        self.parsed_modules: list[str] = []

    async def modules(self, modules: Modules) -> Sequence[Module]:
        self.asked += 1
        if self.broken:
            msg = "no answer"
            raise Retriable(msg)
        return [module(name, source) for name, source in modules.items()]

    async def parsed(self, modules: Modules) -> dict[str, Any]:
        self.parsed_modules += modules
        return {name: {"rules": [{"head": {"location": {"row": 3}}}]} for name in modules}

    async def builtin_errors(self, _modules: Modules, _given: Collection[str]) -> list[Cause]:
        return self.failing


class Bench:
    """A Linting that runs."""

    def __init__(self, again: float = 60.0, settle: float = 0.0) -> None:
        self.opa = Opa()
        self.changes = 0
        self.linting = Linting(
            self.opa,
            self.opa,
            self._known,
            self._changed,
            errors=self.opa,
            again=again,
            settle=settle,
        )

    async def _known(self, documents: frozenset[str]) -> Known:
        return Known(DECISION, "kubernetes", {}, frozenset(), documents)

    def _changed(self) -> None:
        self.changes += 1

    def look(self, source: str) -> None:
        self.linting.look({ID: source}, {ID: source}, ())

    def codes(self, source: str) -> list[tuple[str, int]]:
        return [(one.code, one.row) for one in self.linting.warnings(ID, source)]

    async def until(self, source: str, codes: list[tuple[str, int]]) -> None:
        async with asyncio.timeout(5):
            while self.codes(source) != codes:  # noqa: ASYNC110 - a thread works in between
                await asyncio.sleep(0)


@pytest.fixture
async def bench() -> AsyncGenerator[Bench]:
    found = Bench()
    task = asyncio.create_task(found.linting.run())
    yield found
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def test_warning_is_on_the_source_that_was_linted_and_on_no_other(bench: Bench) -> None:
    bench.look("anotations")
    await bench.until("anotations", [("unknown_rule", 3)])
    assert bench.codes("annotations") == []
    assert bench.changes >= 1


async def test_only_modules_with_a_finding_are_parsed(bench: Bench) -> None:
    right, wrong = "ns/p/right.rego", "ns/p/wrong.rego"
    sources = {right: "_x", wrong: "anotations"}
    bench.linting.look(sources | {"ns/p/user.rego": "errors"}, {wrong: "anotations"}, ())
    async with asyncio.timeout(5):
        while not bench.linting.warnings(wrong, "anotations"):  # noqa: ASYNC110 - as above
            await asyncio.sleep(0)
    assert bench.opa.parsed_modules == [wrong]


async def test_opa_without_an_answer_leaves_no_warning_and_ends_nothing(bench: Bench) -> None:
    bench.opa.broken = True
    bench.opa.failing = [
        {
            "code": "eval_builtin_error",
            "message": "to_number: odd",
            "location": {"file": ID, "row": 7},
        }
    ]
    bench.look("anotations")
    await bench.until("anotations", [("eval_builtin_error", 7)])
    bench.opa.broken, bench.opa.failing = False, []
    bench.look("errrors")
    await bench.until("errrors", [("unknown_rule", 3)])


async def test_set_that_could_not_be_linted_is_linted_later() -> None:
    bench = Bench(again=0.01)
    bench.opa.broken = True
    bench.look("anotations")
    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        task = group.create_task(bench.linting.run())
        while bench.opa.asked < 2:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0)
        bench.opa.broken = False
        await bench.until("anotations", [("unknown_rule", 3)])
        task.cancel()


async def test_unchanged_set_is_not_linted_again(bench: Bench) -> None:
    bench.look("anotations")
    await bench.until("anotations", [("unknown_rule", 3)])
    bench.look("anotations")
    bench.look("anotations")
    await asyncio.sleep(0)
    assert bench.opa.parsed_modules == [ID]


async def test_sets_that_follow_each_other_are_linted_once_and_not_put_off_for_ever() -> None:
    bench = Bench(settle=3600.0)
    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        task = group.create_task(bench.linting.run())
        for number in range(11):
            assert bench.opa.asked == 0
            bench.look(f"anotations{number}")
            for _ in range(10):  # turns of the loop
                await asyncio.sleep(0)
        await bench.until("anotations10", [("unknown_rule", 3)])
        assert bench.opa.asked == 1
        task.cancel()
