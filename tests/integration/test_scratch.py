"""The scratch OPA, with the pinned program."""

from __future__ import annotations

import json
import resource
import time
from pathlib import Path
from unittest.mock import ANY

import pytest

from kube_sync.errors import Misconfigured, Retriable, TooExpensive
from kube_sync.opa.inspection import Inspected
from kube_sync.opa.modules import plain_package
from kube_sync.opa.scratch import ScratchOpa
from kube_sync.runtime.subprocess_limits import ResourceLimits
from tests.parts import quickly
from tools.servers.binaries import ensure_binary
from tools.servers.running import Launcher


@pytest.fixture
def scratch(launcher: Launcher) -> ScratchOpa:
    assert launcher.form  # which has the program prepared
    return ScratchOpa(str(ensure_binary("opa")))


def stand_in(folder: Path, script: str) -> ScratchOpa:
    """Return a scratch OPA whose program is a few lines of shell, but for its capabilities."""
    program = folder / "opa"
    known = '[ "$1" = capabilities ] && exec echo "{}"'
    program.write_text(f"#!/bin/sh\n{known}\n{script}\n", encoding="utf-8")
    program.chmod(0o755)
    return ScratchOpa(str(program), seconds=0.5)


async def test_modules_that_compile_together_have_no_causes(scratch: ScratchOpa) -> None:
    modules = {"ns/a/m.rego": "package a\nf(x) := x", "ns/b/policy": "package b\ny := data.a.f(1)"}
    assert await scratch.check(modules) == []


async def test_error_names_the_module_by_its_id_although_no_file_could_be_called_so(
    scratch: ScratchOpa,
) -> None:
    for policy_id in ("ns/b/policy", "ns/../etc/x.rego", "/abs//é%.rego", "static/./a.rego"):
        (cause,) = await scratch.check({policy_id: "package b\ny := f(1)"})
        assert cause["location"] == {"file": policy_id, "row": 2, "col": 6}
        assert cause["code"] == "rego_type_error"


async def test_every_error_is_told_not_only_the_first_ten(scratch: ScratchOpa) -> None:
    modules = {f"ns/p/{i}.rego": f"package p{i}\nx := f{i}(1)" for i in range(30)}
    causes = await scratch.check(modules)
    assert {cause["location"]["file"] for cause in causes} == modules.keys()


async def test_only_old_rego_gets_the_hint(scratch: ScratchOpa) -> None:
    modules = {"a": "package a\np[x] { x := 1 }", "b": "package b\np := :=", "c": "package c"}
    hinted = {
        cause["location"]["file"]
        for cause in await scratch.check(modules)
        if "--rego-v1" in cause["message"]
    }
    assert hinted == {"a"}


async def test_inspection_tells_packages_and_where_builtins_are_that_are_refused_to_some(
    scratch: ScratchOpa,
) -> None:
    sources = {
        "a": 'package a["b c"].d\nx := http["send"]({"url": data.u})',
        "b": "package b\nx := count([])",
        "broken": "package",
    }
    found = await scratch.inspect(sources)
    assert found == {"a": Inspected(("a", "b c", "d"), {"http.send": 2}), "b": Inspected(("b",))}


async def test_trees_come_as_opa_compiled_them(scratch: ScratchOpa) -> None:
    modules = {"ns/a/m": "package a\nf(x) := x", "b": "package b\ny := data.a.f(z) if z := 1"}
    raws = await scratch.compiled(modules)
    assert raws.keys() == modules.keys()
    trees = {policy_id: json.loads(bytes(raw)) for policy_id, raw in raws.items()}
    assert "__local" in json.dumps(trees["b"])
    assert [part["value"] for part in trees["ns/a/m"]["package"]["path"]] == ["data", "a"]


async def test_trees_of_what_does_not_compile_are_no_answer(scratch: ScratchOpa) -> None:
    with pytest.raises(Retriable, match="does not answer"):
        await scratch.compiled({"a": "package a\nx := f(1)"})


async def test_parsed_trees_tell_the_rows_of_rules_and_what_does_not_parse_is_left_out(
    scratch: ScratchOpa,
) -> None:
    modules = {f"ns/{i}": "package a\n" + "\n" * i + "x := 1" for i in range(9)}
    trees = await scratch.parsed(modules | {"broken": "package"})
    rows = {i: tree["rules"][0]["head"]["location"]["row"] for i, tree in trees.items()}
    assert rows == {f"ns/{i}": i + 2 for i in range(9)}


HEADS = [
    "package a",
    "package a.b_c.d9\n",
    "# package x\n\n  # more\n\tpackage a.b # why\n",
    "package a\nimport data.b",
    "package a; x := 1",
    "package a\n.b",
    "package a.\nb",
    "package a # c\n# d\n.b",
    'package a # c\n["b"]',
    'package a["b"]',
    'package a.b["c d"].e',
    "package\na",
    "package a .b",
    "package a. b",
    "package  \t a",
    "package é",
    "package a.é",
    "package a-b",
    "package input",
    "package data.a",
    "package a.if",
    "package a\u00a0.b",
    "\ufeffpackage a",
    "package a\r\n.b",
    "package a#\r.b",
    "package",
    "packagea",
    "import data.x\npackage a",
]


async def test_package_read_off_the_first_line_is_the_parser_s(scratch: ScratchOpa) -> None:
    sources = {str(index): f"{head}\n\nq := 1\n" for index, head in enumerate(HEADS)}
    found = await scratch.inspect(sources)
    read = {i: package for i, source in sources.items() if (package := plain_package(source))}
    # What does not parse at all is found out by compiling it.
    assert {i: package for i, package in read.items() if i in found} == {
        i: found[i].package for i in read if i in found
    }
    assert read.keys() >= {"0", "1", "2", "3"}


async def test_program_that_compiles_sees_nothing_of_the_environment_of_this_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor the folder that this process is in."""
    monkeypatch.setenv("KUBE_SYNC_TOKEN", "hidden")
    seen = tmp_path / "seen"
    scratch = stand_in(tmp_path, f"{{ env; pwd; }} > {seen}; echo '{{}}'")
    await scratch.check({"a": "package a"})
    names = {line.partition("=")[0] for line in seen.read_text().splitlines() if "=" in line}
    assert names - {"PWD", "OLDPWD", "SHLVL", "_"} == {"HOME", "GOMEMLIMIT"}
    assert str(Path.cwd()) not in seen.read_text().splitlines()


async def test_nothing_is_left_behind(
    scratch: ScratchOpa, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    await scratch.check({"a": "package a\nx := f(1)"})
    await scratch.inspect({"a": "package a"})
    assert list(tmp_path.iterdir()) == []  # noqa: ASYNC240 - nobody waits


def test_program_that_is_not_there_is_a_mistake_in_the_configuration() -> None:
    with pytest.raises(Misconfigured, match=r'^opa\.binary: there is no program "/no/opa"'):
        ScratchOpa("/no/opa")


async def test_compilation_that_takes_too_long_is_a_fault_of_the_set(tmp_path: Path) -> None:
    (cause,) = await stand_in(tmp_path, "exec sleep 60").check({"a": "package a"})
    message = "too expensive to compile (more than 0.5 s)"
    assert cause == {"code": "too_expensive", "message": message}


SMALL = ResourceLimits(256 * 2**20, 30)
GREEDY = {  # how a policy makes OPA take memory without end, by what OPA does then
    "compile": f"package a\n\nx := [{','.join(['1'] * 480_000)}]\n",
    "evaluate": "package a\nx := count(numbers.range(1, 1e10))",
    "comprehend": """package a
x := count([1 | some i in r; some j in r; some k in r])
r := numbers.range(1, 3000)
""",
}


@pytest.fixture
def small(launcher: Launcher) -> ScratchOpa:
    assert launcher.form
    return ScratchOpa(str(ensure_binary("opa")), limits=SMALL)


async def test_compilation_without_end_is_ended_by_the_limit_of_memory(small: ScratchOpa) -> None:
    (cause,) = await small.check({"a.rego": GREEDY["compile"]})
    message = "too expensive to compile (more than 256 MiB of memory)"
    assert cause == {"code": "too_expensive", "message": message}
    # The kernel refuses it at once: a look at it now and then would be late.
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss < 600 * 2**10


@pytest.mark.parametrize("how", quickly(1, ["evaluate", "comprehend"]))
async def test_evaluation_without_end_is_ended_by_the_limit_of_memory(
    small: ScratchOpa, how: str
) -> None:
    with pytest.raises(TooExpensive, match="opa eval: more than 256 MiB of memory"):
        await small.evaluated({"a.rego": GREEDY[how]}, {}, {}, "data.a.x")


async def test_evaluation_without_end_is_ended_by_the_limit_of_cpu_time(
    launcher: Launcher,
) -> None:
    assert launcher.form
    busy = """package a
x if { some i in r; some j in r; some k in r; i + j + k == 0 }
r := numbers.range(1, 3000)
"""
    scratch = ScratchOpa(str(ensure_binary("opa")), limits=ResourceLimits(2**31, 1))
    with pytest.raises(TooExpensive, match="opa eval: more than 1 s of CPU time"):
        await scratch.evaluated({"a.rego": busy}, {}, {}, "data.a.x")


async def test_scratch_opa_runs_limited_first_to_go_and_without_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBE_SYNC_SECRET", "s3cret")
    script = "ulimit -Hd; ulimit -Ht; ulimit -Hn; cat /proc/$$/oom_score_adj; env"
    quoted = f"({script}) | sed 's/.*/\"&\"/' | tr '\\n' , | sed 's/,$//'"
    head = '{"result": [{"expressions": [{"value": ['
    program = f"read -r _; printf '{head}'; {quoted}; echo ']}}]}}]}}'"
    told = await stand_in(tmp_path, program).evaluated({}, {}, "", "1")
    assert told[:4] == [str(512 * 2**10), "30", "256", "1000"]
    environment = {line.partition("=")[0] for line in told[4:]}
    assert environment - {"PWD", "SHLVL", "_", "OLDPWD"} == {"HOME", "GOMEMLIMIT"}


async def test_answer_without_end_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kube_sync.opa.process._OUTPUT_BYTES", 2**20)
    with pytest.raises(TooExpensive, match="more than 1 MiB of output"):
        await stand_in(tmp_path, "exec yes").evaluated({}, {}, {}, "1")


async def test_inspection_that_takes_too_long_refuses_the_module_at_fault_alone(
    tmp_path: Path,
) -> None:
    script = """grep -q slow "$4" && exec sleep 60; echo '{"package": {"path": [{}]}}'"""
    found = await stand_in(tmp_path, script).inspect({"a": "slow", "b": "b", "c": "c"})
    fault = "too expensive to parse (more than 0.5 s)"
    assert found == {
        "a": Inspected((), fault=fault, until=ANY),
        "b": Inspected(()),
        "c": Inspected(()),
    }
    assert found["a"].until > time.monotonic()


@pytest.mark.parametrize("script", ["echo oops; exit 3", "echo '{}'; exit 1", "exit 1"])
async def test_answer_that_is_none_is_tried_again_later(tmp_path: Path, script: str) -> None:
    with pytest.raises(Retriable, match="no answer"):
        await stand_in(tmp_path, script).check({"a": "package a"})


@pytest.mark.parametrize("script", ["echo oops; exit 3", "exit 0"])
async def test_parser_that_gives_no_answer_is_a_fault_of_the_module(
    tmp_path: Path, script: str
) -> None:
    """It may be a module that no parser survives: what it would do in a compiler nobody knows."""
    found = await stand_in(tmp_path, script).inspect({"a": "package a"})
    assert found["a"].fault.startswith("the scratch OPA gave no answer")


async def test_parser_that_is_killed_is_not_asked_about_the_same_module_for_a_while(
    tmp_path: Path,
) -> None:
    """The kernel may have killed it for what others took: so it is asked again in the end."""
    runs = tmp_path / "runs"
    scratch = stand_in(tmp_path, f"echo $1 >> {runs}; kill -9 $$")
    for _ in range(2):
        (cause,) = await scratch.check({"a.rego": "package a\n\nx := print(1)\n"})
        assert cause["code"] == "too_expensive"
        assert cause["message"] == "too expensive to parse (more than 512 MiB of memory)"
    assert runs.read_text() == "parse\n"


async def test_parsing_that_takes_too_long_or_says_nonsense_is_tried_again_later(
    tmp_path: Path,
) -> None:
    with pytest.raises(Retriable, match=r"opa parse: more than 0\.5 s"):
        await stand_in(tmp_path, "exec sleep 60").parsed({"a": "package a"})
    with pytest.raises(Retriable, match="no answer: oops"):
        await stand_in(tmp_path, "echo oops").parsed({"a": "package a", "b": "package b"})


async def test_program_that_does_not_start_is_tried_again_later(tmp_path: Path) -> None:
    scratch = stand_in(tmp_path, "")
    (tmp_path / "opa").unlink()
    with pytest.raises(Retriable, match="does not start: No such file"):
        await scratch.check({"a": "package a"})


async def test_query_is_evaluated_over_modules_data_and_input(scratch: ScratchOpa) -> None:
    modules = {"a/b/c.rego": "package a\nsum := data.n.one + input.two"}
    data, asked = {"n": {"one": 1}}, {"two": 2}
    assert await scratch.evaluated(modules, data, asked, "data.a.sum") == 3
    assert await scratch.evaluated(modules, data, {}, "data.a.sum") is None


async def test_query_that_cannot_be_evaluated_is_told_in_opas_words(scratch: ScratchOpa) -> None:
    with pytest.raises(Retriable, match="OPA cannot evaluate it: rego_parse_error: "):
        await scratch.evaluated({}, {}, {}, "data.a.")
    with pytest.raises(Retriable, match="rego_unsafe_var_error: "):
        await scratch.evaluated({"a.rego": "package a\nx := y"}, {}, {}, "data.a.x")


async def test_evaluation_that_takes_too_long_is_given_up(tmp_path: Path) -> None:
    with pytest.raises(Retriable, match=r"opa eval: more than 0\.5 s"):
        await stand_in(tmp_path, "exec sleep 60").evaluated({}, {}, {}, "1")
