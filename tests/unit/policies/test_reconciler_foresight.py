"""What the loader says of what policies need, before they are in force and when they are."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from kube_sync.opa.analysis.result import Reads
from kube_sync.policies.bundle import RESOURCE
from kube_sync.policies.required_fields import Need
from tests.fakes.compiler import FakeCompiler, reading
from tests.fakes.http import answer
from tests.fakes.opa import FakeOpa
from tests.unit.async_tools import until
from tests.unit.policies.test_reconciler import Bench, bench, policy_writes

__all__ = ["bench"]


class Asked:
    """Data that notes what is asked of it, if it is news."""

    narrowed = True

    def __init__(self) -> None:
        self.begun: list[Need | None] = []
        self.held: list[list[Need | None]] = []
        self.settled: list[Need | None] = []
        self.enough = True

    def begin(self, needs: Iterable[Need | None]) -> None:
        self.begun += needs

    def hold(self, needs: Iterable[Need | None]) -> bool:
        if (found := list(needs)) not in self.held[-1:]:
            self.held.append(found)
        return self.enough

    def settle(self, need: Need | None) -> None:
        if need not in self.settled[-1:]:
            self.settled.append(need)

    def withheld(self, _reads: Reads) -> dict[str, list[str]]:
        return {}


def inputs(need: Need | None) -> list[str]:
    """Return the members of `input` that are needed."""
    assert need is not None
    assert need.reads.gave_up is None
    return [str(path[0]) for path in need.reads.input.paths]


def source(*names: str) -> str:
    return reading(*(f"input.{name}" for name in names), package="p")


@pytest.fixture
def data(bench: Bench) -> Asked:
    bench.compiler = FakeCompiler(trees=True)
    bench.loader = bench.new_loader()
    bench.data = data = Asked()
    return data


async def test_what_is_needed_is_told_before_the_data_is_loaded(
    bench: Bench, data: Asked, opa: FakeOpa
) -> None:
    bench.loaded.clear()
    bench.put("m", **{"a.rego": source("a")})
    async with bench.running():
        await until(lambda: data.begun)
        assert [inputs(need) for need in data.begun] == [["a"]]
        await until(lambda: "after the data" in bench.readiness.reasons.get("policies", ""))
        assert not any(map(policy_writes, opa.http.requests))
        bench.loaded.set()
        await bench.applied.wait()
        assert [inputs(need) for need in data.settled] == [["a"]]


async def test_what_opa_holds_already_is_needed_until_it_is_replaced(
    bench: Bench, data: Asked, opa: FakeOpa
) -> None:
    opa.policies["policies/m/a.rego"] = source("old")
    bench.put("m", **{"a.rego": source("a")})
    async with bench.applied_once():
        assert [inputs(need) for need in data.begun] == [["a"], ["a", "old"], ["old"]]
        assert [inputs(need) for need in data.settled] == [["a"]]


async def test_failure_to_find_out_is_told_and_tried_again(
    bench: Bench, data: Asked, opa: FakeOpa
) -> None:
    opa.http.fault(lambda r: r.path.startswith("/v1/config"), answer(503))
    async with bench.applied_once():
        assert data.begun
        assert any("503" in reason for reason in bench.readiness.seen)


async def test_policies_wait_until_the_data_has_what_they_read(bench: Bench, data: Asked) -> None:
    bench.put("m", **{"a.rego": source("a")})
    async with bench.applied_once():
        data.enough = False
        bench.put("m", **{"a.rego": source("b")})
        await until(lambda: "listed again" in bench.readiness.reasons.get("policies", ""))
        await bench.ask_for_a_while()
        assert bench.modules == {"m/a.rego": source("a")}
        assert [inputs(need) for need in data.settled] == [["a"]]
        data.enough = True
        bench.loader.wake()
        await until(lambda: bench.modules == {"m/a.rego": source("b")})
        await until(lambda: len(data.settled) == 2)
        assert inputs(data.settled[-1]) == ["b"]


async def test_modules_that_go_one_by_one_need_what_any_mixture_of_them_reads(
    bench: Bench, data: Asked
) -> None:
    bench.put("m", **{"a.rego": source("a"), "b.rego": source("b")})
    async with bench.applied_once():
        bench.put("m", **{"a.rego": source("c"), "b.rego": source("d")})
        await until(lambda: len(data.settled) == 2)
        mixtures = [inputs(need) for needs in data.held for need in needs]
        assert ["a", "b", "c", "d"] in mixtures


async def test_delivery_that_broke_off_counts_as_possibly_there(
    bench: Bench, data: Asked, opa: FakeOpa
) -> None:
    bench.put("m", **{"a.rego": source("a"), "b.rego": source("b")})
    async with bench.applied_once():
        lost = opa.http.fault(lambda r: r.path.endswith("/b.rego"), answer(503), times=1_000_000)
        bench.put("m", **{"a.rego": source("c"), "b.rego": source("d")})
        await until(lambda: any("503" in reason for reason in bench.readiness.seen))
        opa.http.faults.remove(lost)
        bench.put("m", **{"a.rego": source("e"), "b.rego": source("f")})
        await until(lambda: data.settled and inputs(data.settled[-1]) == ["e", "f"])
        mixtures = [inputs(need) for needs in data.held for need in needs]
        assert ["a", "b", "c", "d", "e", "f"] in mixtures


async def test_bundle_needs_what_it_reads_and_nothing_in_between(
    bench: Bench, data: Asked, opa: FakeOpa
) -> None:
    opa.config = {"bundles": {"b": {"resource": RESOURCE}}}
    opa.policies["b/m/a.rego"] = source("old")
    data.enough = False
    bench.put("m", **{"a.rego": source("a")})
    async with bench.running():
        await until(lambda: data.held)
        assert [inputs(need) for need in data.begun] == [["a"], ["old"]]
        assert [inputs(need) for need in data.held[0]] == [["a"]]
        await bench.ask_for_a_while()
        assert bench.shelf.published == []
        data.enough = True
        bench.loader.wake()
        await until(lambda: bench.shelf.published)
        assert not data.settled  # OPA has not activated it


async def test_own_policies_that_do_not_compile_here_need_nobody_knows_what(
    bench: Bench, data: Asked, opa: FakeOpa
) -> None:
    opa.policies["own.rego"] = "package own\ndoes not compile\n"
    async with bench.applied_once():
        assert set(data.begun) == {None}
        assert data.settled == [None]


async def test_module_of_unknown_source_that_stays_needs_nobody_knows_what(
    bench: Bench, data: Asked, opa: FakeOpa
) -> None:
    opa.policies["policies/gone/a.rego"] = source("old")
    opa.http.fault(lambda r: r.method == "DELETE", answer(400, b"{}"), times=1_000_000)
    async with bench.applied_once():
        assert data.settled == [None]


async def test_where_all_is_held_nothing_is_asked_before_it_is_in_force(bench: Bench) -> None:
    bench.put("m", **{"a.rego": source("a")})
    async with bench.applied_once():
        assert bench.data.hold([None])
        assert bench.modules == {"m/a.rego": source("a")}
