from __future__ import annotations

from typing import Any

from kube_sync.analysis.analyzer import Collection
from kube_sync.decisions.decision import REQUESTED
from kube_sync.errors import Retriable
from kube_sync.opa.scratch import Modules
from kube_sync.replicator.policies.reading import Reading
from tests.fakes.compiler import FakeCompiler, reading

ROOTS = {"things": Collection(("kubernetes", "things"))}


class Counting(FakeCompiler):
    """Compiles, unless it is broken."""

    def __init__(self) -> None:
        super().__init__(trees=True)
        self.times = 0
        self.broken = False

    async def compiled(self, modules: Modules) -> dict[str, Any]:
        self.times += 1
        if self.broken:
            msg = "no answer"
            raise Retriable(msg)
        return await super().compiled(modules)


async def collections() -> dict[str, Collection]:
    return ROOTS


def made() -> tuple[Counting, Reading]:
    compiler = Counting()
    return compiler, Reading(compiler, "io/k8s/federation/admission", collections)


async def test_set_is_compiled_once() -> None:
    compiler, found = made()
    one, two = {"a": reading("input.a")}, {"a": reading("input.b")}
    first = await found.need(one)
    assert first == await found.need(one)
    mixed = await found.need(one, two)
    assert mixed.reads.input.paths == (("a",), ("b",))
    assert compiler.times == 2
    assert mixed.collections == ROOTS


async def test_limits_are_read_beside_the_decision() -> None:
    """Apart, or what they read of targets would make classes of them."""
    _, found = made()
    limits = reading("data.kubernetes.things.*.*.spec.c", package="kube_sync_budget")
    need = await found.need({"a": reading("input.a"), "b": limits})
    assert need.reads.resources["things"].paths == ()
    assert need.of("things", target=True).paths == (("a",), ("spec", "c"))
    assert need.of("things", target=False).paths == (("spec", "c"),)


async def test_compiler_without_an_answer_makes_everything_of_this_set_read() -> None:
    compiler, found = made()
    compiler.broken = True
    assert (await found.need({"a": reading("input.a")})).reads.gave_up
    compiler.broken = False
    mended = await found.need({"a": reading("input.a")}, {})
    assert mended.reads.gave_up is None


async def test_who_reads_an_annotation_reads_what_was_asked_for_instead() -> None:
    """Both the fields to replicate and the classes of objects follow from this."""
    _, found = made()
    need = await found.need({"a": reading("input.metadata.annotations.a")})
    kept = (("metadata", "annotations", "a"), ("metadata", "annotations", REQUESTED))
    assert need.reads.input.paths == kept
    assert need.of("things", target=True).paths == kept
    assert need.of("things", target=False).paths == ()
