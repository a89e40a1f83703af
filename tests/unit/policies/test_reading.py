from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kube_sync.decisions.decision import REQUESTED
from kube_sync.errors import Retriable
from kube_sync.opa.analysis import analyzer
from kube_sync.opa.analysis.result import Collection
from kube_sync.opa.analysis.syntax import read_module
from kube_sync.opa.scratch import Modules
from kube_sync.policies import reading as reading_module
from kube_sync.policies.reading import Reading
from tests.fakes.compiler import FakeCompiler, reading

ROOTS = {"things": Collection(("kubernetes", "things"))}


class Counting(FakeCompiler):
    """Compiles, unless it is broken."""

    def __init__(self) -> None:
        super().__init__(trees=True)
        self.times = 0
        self.broken = False
        self.instead: dict[str, str] = {}  # what a source compiles as
        self.raw: dict[str, bytes] = {}  # the tree of a source

    async def compiled(self, modules: Modules) -> dict[str, msgspec.Raw]:
        self.times += 1
        if self.broken:
            msg = "no answer"
            raise Retriable(msg)
        known = {i: self.instead.get(source, source) for i, source in modules.items()}
        raw = {i: msgspec.Raw(self.raw[s]) for i, s in modules.items() if s in self.raw}
        return await super().compiled(known) | raw


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


async def test_edit_reads_the_module_that_it_changed_and_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each set by itself was 28 MB of 200 modules, and six sets are remembered."""
    read: list[str] = []

    def counted(name: str, tree: Any) -> Any:
        read.append(name)
        return read_module(name, tree)

    monkeypatch.setattr(reading_module, "read_module", counted)
    _, found = made()
    modules = {name: reading(f"input.{name}") for name in ("a", "b", "c")}
    await found.need(modules)
    need = await found.need(modules | {"b": reading("input.other")})
    assert need.reads.input.paths == (("a",), ("c",), ("other",))
    assert read == ["a", "b", "c", "b"]
    await found.need({"renamed": modules["a"]})  # what is said of it names it
    assert read[4:] == ["renamed"]


async def test_module_that_compiles_to_another_tree_beside_others_is_read_again() -> None:
    compiler, found = made()
    source = reading("input.a")
    await found.need({"a": source})
    compiler.instead[source] = reading("input.b")
    need = await found.need({"a": source, "b": reading("input.c")})
    assert need.reads.input.paths == (("b",), ("c",))


async def test_tree_that_cannot_be_read_makes_everything_read_and_names_its_module() -> None:
    compiler, found = made()
    source = reading("input.a")
    for tree, reason in (
        (b"[", "a: "),
        (b"null", "a: malformed tree"),
        (b"[" * 100_000, "the policies are nested too deeply"),
    ):
        compiler.raw[source] = tree
        need = await found.need({"a": source}, {str(len(tree)): reading("input.b")})
        assert (need.reads.gave_up or "").startswith(reason)
        compiler, found = made()


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


async def test_analysis_that_never_ends_reads_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    def forever(*_: object) -> None:
        while True:
            pass

    monkeypatch.setattr(reading_module, "_SECONDS", 0.05)
    monkeypatch.setattr(analyzer, "analyze_read", forever)
    _, found = made()
    need = await found.need({"a": reading("input.a")})
    assert need.reads.gave_up == "the analysis takes more than 0.05 s"
