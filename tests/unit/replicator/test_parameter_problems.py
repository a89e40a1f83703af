from __future__ import annotations

import pytest

from kube_sync.objects import ObjectKey
from kube_sync.opa.client import OpaClient
from kube_sync.replicator.parameter_problems import ParameterProblems
from tests.fakes.http import Handler, answer
from tests.fakes.opa import FakeOpa
from tests.unit.async_tools import Waits, running, until

LIMITS = ObjectKey("shop", "limits")
PATH = "/v1/data/kube_sync_parameters/problems"


class Bench:
    def __init__(self, opa: FakeOpa, client: OpaClient) -> None:
        self.opa = opa
        self.waits = Waits()
        self.changes = 0
        self.problems = ParameterProblems(client, self._changed, backoff=self.waits.backoff(1.0))

    def _changed(self) -> None:
        self.changes += 1

    def policies_say(self, problems: object) -> None:
        self.opa.data["kube_sync_parameters"] = {"problems": problems}

    @property
    def asked(self) -> int:
        return sum(request.path == PATH for request in self.opa.http.requests)


@pytest.fixture
def bench(opa: FakeOpa, client: OpaClient) -> Bench:
    return Bench(opa, client)


async def test_nothing_is_known_before_policies_are_in_force(bench: Bench) -> None:
    async with running(bench.problems.run()):
        bench.problems.data_written()
        assert bench.problems.of(LIMITS) is None
        bench.problems.policies_changed()
        await until(lambda: bench.changes)
        assert bench.problems.of(LIMITS) == ()
        assert bench.asked == 1


async def test_what_policies_say_is_by_configmap(bench: Bench) -> None:
    bench.policies_say({"shop/limits": ["maxx is no parameter"], "shop/other": ["x"]})
    async with running(bench.problems.run()):
        bench.problems.policies_changed()
        await until(lambda: bench.changes)
        assert bench.problems.of(LIMITS) == ["maxx is no parameter"]
        assert bench.problems.of(ObjectKey("shop", "right")) == ()


async def test_written_data_is_asked_about_and_told_only_if_it_changes_something(
    bench: Bench,
) -> None:
    async with running(bench.problems.run()):
        bench.problems.policies_changed()
        await until(lambda: bench.changes == 1)
        bench.problems.data_written()
        await until(lambda: bench.asked == 2)
        bench.policies_say({"shop/limits": ["wrong"]})
        bench.problems.data_written()
        await until(lambda: bench.changes == 2)
        assert bench.problems.of(LIMITS) == ["wrong"]
        assert bench.asked == 3


async def test_messages_without_end_are_cut(bench: Bench) -> None:
    bench.policies_say({"shop/limits": [str(n) for n in range(1_000)]})
    async with running(bench.problems.run()):
        bench.problems.policies_changed()
        await until(lambda: bench.changes)
        assert len(bench.problems.of(LIMITS) or ()) == 20


@pytest.mark.parametrize("fault", [answer(500), answer(200, b'{"result": {"shop/limits": 1}}')])
async def test_failure_leaves_what_was_known_and_is_tried_again(
    bench: Bench, fault: Handler
) -> None:
    bench.policies_say({"shop/limits": ["wrong"]})
    async with running(bench.problems.run()):
        bench.problems.policies_changed()
        await until(lambda: bench.changes == 1)
        bench.opa.http.fault(lambda request: request.path == PATH, fault)
        bench.policies_say({})
        bench.problems.data_written()
        await until(lambda: bench.waits.seconds)
        await until(lambda: bench.changes == 2)
        assert bench.problems.of(LIMITS) == ()
        assert bench.waits.seconds == [1.0]
