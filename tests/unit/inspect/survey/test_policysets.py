from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from kube_sync.errors import Retriable
from kube_sync.inspect.survey.policysets import NotCompiled, PolicySet, set_of_opa, sets_of_files
from kube_sync.inspect.survey.progress import Progress
from kube_sync.opa.client import CompiledPolicy
from kube_sync.opa.scratch import Cause, Modules


class Compiler:
    """Says against modules what it is told to say."""

    def __init__(self, against: Callable[[Modules], list[Cause]] = lambda _modules: []) -> None:
        self.check_sync = against
        self.lost: set[str] = set()
        self.broken: dict[str, msgspec.Raw] = {}

    async def check(self, modules: Modules) -> list[Cause]:
        return self.check_sync(modules)

    async def compiled(self, modules: Modules) -> dict[str, msgspec.Raw]:
        trees = {i: {"compiled": s} for i, s in modules.items() if i not in self.lost}
        return {i: msgspec.Raw(msgspec.json.encode(t)) for i, t in trees.items()} | self.broken

    async def parsed(self, modules: Modules) -> dict[str, Any]:
        return {i: {"parsed": s} for i, s in modules.items()}


def cause(file: str, message: str = "bad") -> Cause:
    return {"code": "rego_type_error", "message": message, "location": {"file": file, "row": 3}}


async def sets(sources: dict[str, str], compiler: Compiler) -> list[PolicySet]:
    return await sets_of_files(sources, "all", compiler, Progress(lambda _line: None))


FILES = {"a/x.rego": "1", "b/y.rego": "2"}


async def test_files_that_compile_together_are_one_set_with_both_trees() -> None:
    (found,) = await sets(FILES, Compiler())
    assert found.name == "all"
    module, _ = found.modules
    assert (module.name, module.compiled, module.parsed) == (
        "a/x.rego",
        {"compiled": "1"},
        {"parsed": "1"},
    )


async def test_folders_that_compile_only_by_themselves_are_sets_of_their_own() -> None:
    compiler = Compiler(lambda modules: [cause("a/x.rego")] if len(modules) > 1 else [])
    found = await sets(FILES, compiler)
    assert [(s.name, [m.name for m in s.modules]) for s in found] == [
        ("a", ["a/x.rego"]),
        ("b", ["b/y.rego"]),
    ]


async def test_one_folder_that_does_not_compile_is_told_with_file_and_row() -> None:
    compiler = Compiler(lambda modules: [cause(file) for file in modules])
    with pytest.raises(NotCompiled) as raised:
        await sets({"a/x.rego": "1", "a/y.rego": "2"}, compiler)
    assert str(raised.value).splitlines() == [
        "the policies do not compile",
        "a/x.rego:3: rego_type_error: bad",
        "a/y.rego:3: rego_type_error: bad",
    ]


async def test_fault_of_one_folder_is_told_before_what_is_only_wrong_together() -> None:
    def against(modules: Modules) -> list[Cause]:
        alone = [cause("b/y.rego", "unsafe")] if "b/y.rego" in modules else []
        return alone if len(modules) == 1 else [*alone, cause("a/x.rego", "redeclared")]

    with pytest.raises(NotCompiled) as raised:
        await sets(FILES, Compiler(against))
    assert str(raised.value).splitlines()[1:] == [
        "b by itself:",
        "b/y.rego:3: rego_type_error: unsafe",
        "all together:",
        "a/x.rego:3: rego_type_error: redeclared",
    ]


async def test_cause_without_a_place_is_told_too() -> None:
    compiler = Compiler(lambda _modules: [{"code": "timeout", "message": "too long"}])
    with pytest.raises(NotCompiled, match="timeout: too long"):
        await sets({"a.rego": ""}, compiler)


async def test_file_without_a_tree_is_named_and_not_left_out() -> None:
    """Two names may become one in the scratch OPA."""
    compiler = Compiler()
    compiler.lost.add("a/x.rego")
    with pytest.raises(Retriable, match=r"^a/x\.rego: OPA gave no syntax tree"):
        await sets(FILES, compiler)


async def test_tree_that_cannot_be_read_is_told_with_its_file() -> None:
    compiler = Compiler()
    compiler.broken["b/y.rego"] = msgspec.Raw(b"[" * 100_000)
    with pytest.raises(Retriable, match=r"^b/y\.rego: OPA's syntax tree cannot be read"):
        await sets(FILES, compiler)


@pytest.mark.parametrize("compiler", [None, Compiler()])
async def test_policies_of_an_opa_are_one_set_with_rows_if_there_is_a_parser(
    compiler: Compiler | None,
) -> None:
    held = [CompiledPolicy("b", "2", {"of": "b"}), CompiledPolicy("a", "1", {"of": "a"})]
    found = await set_of_opa(held, "opa", compiler, Progress(lambda _line: None))
    assert [(m.name, m.compiled) for m in found.modules] == [("a", {"of": "a"}), ("b", {"of": "b"})]
    assert found.modules[0].parsed == (None if compiler is None else {"parsed": "1"})
