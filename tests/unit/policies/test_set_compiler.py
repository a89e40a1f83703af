"""Which versions are in force, with a compiler made of one line: what may not be together."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from kube_sync.objects import ObjectKey
from kube_sync.opa.scratch import Cause, Modules
from kube_sync.policies.set_compiler import Candidate, Choice, Versions, choose

# Looks at all sources together and yields (complaint, the module that it is located in).
Rule = Callable[[set[str]], Iterable[tuple[str, str]]]


class Compiler:
    """Sources are words; `rule` says what is wrong with a set of them."""

    def __init__(self, *rules: Rule) -> None:
        self.rules = rules
        self.asked: list[set[str]] = []

    async def __call__(self, modules: Modules) -> list[Cause]:
        sources = set(modules.values())
        self.asked.append(sources)
        where = {source: policy_id for policy_id, source in modules.items()}
        return [
            {"message": message, "location": {"file": where.get(source, "elsewhere"), "row": 1}}
            for rule in self.rules
            for message, source in rule(sources)
        ]


def broken(word: str) -> Rule:
    return lambda found: [(f"undefined {word}", word)] if word in found else []


def needs(word: str, other: str) -> Rule:
    missing = f"{word} needs {other}"
    return lambda found: [(missing, word)] if word in found and other not in found else []


def conflict(word: str, other: str, located: str) -> Rule:
    return lambda found: (
        [("conflicting rules", located)] if word in found and other in found else []
    )


def key(name: str) -> ObjectKey:
    return ObjectKey("ns", name)


def modules(name: str, word: str) -> dict[str, str]:
    return {f"ns/{name}/m.rego": word}


def wanted(**words: str) -> dict[ObjectKey, Candidate]:
    """Return candidates, the first one named being the oldest."""
    return {
        key(name): Candidate(modules(name, word), f"2026-01-{index:02}")
        for index, (name, word) in enumerate(words.items(), 1)
    }


def good(**words: str) -> Versions:
    return {key(name): modules(name, word) for name, word in words.items()}


def in_force(choice: Choice) -> dict[str, str]:
    return {k.name: next(iter(found.values())) for k, found in choice.modules.items() if found}


def messages(choice: Choice, name: str) -> list[str]:
    return [cause["message"] for cause in choice.failures[key(name)]]


async def test_set_that_compiles_is_compiled_once() -> None:
    check = Compiler()
    choice = await choose(wanted(a="a1", b="b1"), {}, check)
    assert in_force(choice) == {"a": "a1", "b": "b1"}
    assert len(check.asked) == 1
    assert not choice.failures


async def test_nothing_wanted_is_nothing_compiled() -> None:
    check = Compiler()
    assert in_force(await choose({}, {}, check)) == {}
    assert check.asked == []


async def test_only_the_faulty_one_falls_back() -> None:
    choice = await choose(
        wanted(a="a2", b="bad", c="c1"), good(a="a1", b="b1"), Compiler(broken("bad"))
    )
    assert in_force(choice) == {"a": "a2", "b": "b1", "c": "c1"}
    assert messages(choice, "b") == ["undefined bad"]
    assert list(choice.failures) == [key("b")]


async def test_faulty_one_without_a_good_version_is_left_out() -> None:
    choice = await choose(wanted(a="a1", b="bad"), {}, Compiler(broken("bad")))
    assert in_force(choice) == {"a": "a1"}


async def test_refused_one_is_not_even_tried() -> None:
    check = Compiler()
    candidates = wanted(a="a1") | {
        key("b"): Candidate(modules("b", "b2"), "", ({"message": "package system is reserved"},))
    }
    choice = await choose(candidates, good(b="b1"), check)
    assert in_force(choice) == {"a": "a1", "b": "b1"}
    assert all("b2" not in asked for asked in check.asked)
    assert messages(choice, "b") == ["package system is reserved"]


async def test_one_that_needs_a_faulty_one_is_left_out_and_says_why() -> None:
    check = Compiler(broken("lib"), needs("a1", "lib"))
    choice = await choose(wanted(a="a1", b="lib", c="c1"), {}, check)
    assert in_force(choice) == {"c": "c1"}
    assert messages(choice, "a") == ["a1 needs lib"]


async def test_two_that_need_each_other_come_together() -> None:
    check = Compiler(needs("a2", "b2"), needs("b2", "a2"), needs("a1", "b1"))
    choice = await choose(wanted(a="a2", b="b2"), good(a="a1", b="b1"), check)
    assert in_force(choice) == {"a": "a2", "b": "b2"}


async def test_two_that_need_each_other_come_although_a_third_is_faulty() -> None:
    check = Compiler(needs("a2", "b2"), needs("b2", "a2"), broken("bad"))
    choice = await choose(wanted(a="a2", b="b2", c="bad"), good(a="a1", b="b1"), check)
    assert in_force(choice) == {"a": "a2", "b": "b2"}


async def test_edit_that_breaks_an_unchanged_one_is_at_fault_itself() -> None:
    """The error is located where the function is called, not where it was dropped."""
    check = Compiler(needs("a1", "lib1"))
    choice = await choose(
        wanted(a="a1", lib="lib2", other="o2"), good(a="a1", lib="lib1", other="o1"), check
    )
    assert in_force(choice) == {"a": "a1", "lib": "lib1", "other": "o2"}
    assert messages(choice, "lib") == ["a1 needs lib1"]
    assert list(choice.failures) == [key("lib")]


async def test_edits_that_only_together_break_an_unchanged_one_do_not_both_pass() -> None:
    def both(found: set[str]) -> Iterable[tuple[str, str]]:
        return [("too much", "a1")] if {"x2", "y2"} & found and "a1" in found else []

    choice = await choose(
        wanted(a="a1", x="x2", y="y2"), good(a="a1", x="x1", y="y1"), Compiler(both)
    )
    assert in_force(choice) == {"a": "a1", "x": "x1", "y": "y1"}


async def test_newcomer_that_conflicts_with_a_good_one_is_left_out_and_both_are_named() -> None:
    check = Compiler(conflict("a1", "b1", located="a1"))
    choice = await choose(wanted(b="b1", a="a1"), good(a="a1"), check)
    assert in_force(choice) == {"a": "a1"}
    assert choice.conflicts == {key("a"): {key("b")}, key("b"): {key("a")}}
    assert messages(choice, "b") == ["conflicting rules"]


@pytest.mark.parametrize("located", ["a1", "b1"])
async def test_of_two_new_ones_that_conflict_the_older_is_in_force(located: str) -> None:
    check = Compiler(conflict("a1", "b1", located=located))
    choice = await choose(wanted(b="b1", a="a1", c="c1"), {}, check)
    assert in_force(choice) == {"b": "b1", "c": "c1"}
    assert messages(choice, "a") == ["conflicting rules"]
    assert key("b") not in choice.failures
    assert choice.conflicts == {key("a"): {key("b")}, key("b"): {key("a")}}


async def test_edit_that_comes_to_conflict_falls_back_although_it_is_older() -> None:
    check = Compiler(conflict("a2", "b1", located="b1"))
    choice = await choose(wanted(a="a2", b="b1"), good(a="a1", b="b1"), check)
    assert in_force(choice) == {"a": "a1", "b": "b1"}


async def test_deleted_one_is_gone() -> None:
    choice = await choose(wanted(a="a1"), good(a="a1", b="b1"), Compiler())
    assert in_force(choice) == {"a": "a1"}


async def test_deleted_one_stays_while_others_need_it_and_they_say_so() -> None:
    check = Compiler(needs("a1", "lib"))
    choice = await choose(wanted(a="a1", c="c2"), good(a="a1", lib="lib", c="c1"), check)
    assert in_force(choice) == {"a": "a1", "lib": "lib", "c": "c2"}
    assert messages(choice, "a") == ["a1 needs lib"]
    assert list(choice.failures) == [key("a")]


async def test_good_version_that_is_not_good_any_more_is_left_out() -> None:
    """What OPA loaded by itself may have changed since."""
    choice = await choose(
        wanted(a="a1", b="b1"), good(a="a1", b="b1", gone="g"), Compiler(broken("a1"))
    )
    assert in_force(choice) == {"b": "b1"}
    assert messages(choice, "a") == ["undefined a1"]


async def test_complaint_about_no_module_of_ours_ends() -> None:
    def always(found: set[str]) -> Iterable[tuple[str, str]]:
        return [("took more than 20 s", "elsewhere")] if found else []

    choice = await choose(wanted(a="a1", b="b2"), good(b="b1"), Compiler(always))
    assert in_force(choice) == {}
    assert set(choice.failures) == {key("a"), key("b")}


async def test_many_faulty_ones_cost_one_compilation_each_and_a_few() -> None:
    words = {f"n{i}": f"w{i}" for i in range(30)}
    check = Compiler(*(broken(f"w{i}") for i in range(0, 30, 3)))
    choice = await choose(wanted(**words), {}, check)
    assert len(choice.failures) == 10
    assert len(check.asked) <= 12


@pytest.mark.parametrize(
    "message",
    ["multiple default rules found at ns/z/m.rego:1", "conflicting rules data.z.allow found"],
)
async def test_rival_is_found_by_what_the_compiler_says_among_many(message: str) -> None:
    """OPA locates a conflict in one of the two modules only."""
    words = {f"n{i}": f"package n{i}" for i in range(30)}
    candidates = wanted(**words, z="package z", a="package z # too")

    def rule(found: set[str]) -> Iterable[tuple[str, str]]:
        both = {"package z", "package z # too"} <= found
        return [(message, "package z # too")] if both else []

    check = Compiler(rule)
    choice = await choose(candidates, good(**words, z="package z"), check)
    assert choice.conflicts == {key("a"): {key("z")}, key("z"): {key("a")}}
    assert len(check.asked) == 4


def dear(*words: str, most: int = 99) -> Compiler:
    """Return a compiler that gives up sets with any of these words, or with too many words."""

    class Dear(Compiler):
        async def __call__(self, modules: Modules) -> list[Cause]:
            causes = await super().__call__(modules)
            found = set(modules.values())
            if found & set(words) or len(found) > most:
                return [{"code": "too_expensive", "message": "too expensive to compile (1 MiB)"}]
            return causes

    return Dear(broken("bad"))


async def test_change_that_is_too_expensive_falls_back_alone() -> None:
    choice = await choose(
        wanted(a="a2", b="dear", c="bad", d="d1"), good(a="a1", b="b1"), dear("dear")
    )
    assert in_force(choice) == {"a": "a2", "b": "b1", "d": "d1"}
    assert messages(choice, "b") == ["too expensive to compile (1 MiB)"]
    assert messages(choice, "c") == ["undefined bad"]
    assert set(choice.failures) == {key("b"), key("c")}


async def test_two_of_many_that_are_too_expensive_are_found_by_halves() -> None:
    names = {f"n{index}": f"w{index}" for index in range(32)}
    check = dear("w3", "w30")
    choice = await choose(wanted(**names), {}, check)
    assert set(choice.failures) == {key("n3"), key("n30")}
    assert len(in_force(choice)) == 30
    assert len(check.asked) < 25


async def test_in_a_hurry_it_is_put_off_to_find_out_which_are_too_expensive() -> None:
    names = {f"n{index}": f"w{index}" for index in range(32)}
    check = dear("w3", "w30")
    choice = await choose(wanted(**names), good(n1="w0"), check, lambda: len(check.asked) > 4)
    assert len(check.asked) == 6, "the last one is of what is chosen"
    assert {key("n3"), key("n0")} <= choice.put_off
    assert choice.put_off == choice.failures.keys()
    check = dear("w3", "w30")
    assert set((await choose(wanted(**names), {}, check, lambda: True)).put_off) == set(
        map(key, names)
    )
    assert len(check.asked) == 1
    assert not (await choose(wanted(n3="w3"), {}, check, lambda: True)).put_off


async def test_set_that_is_too_large_in_all_keeps_what_was_good() -> None:
    before = good(a="a1", b="b1", c="c1")
    choice = await choose(wanted(a="a1", b="b1", c="c1"), before, dear(most=2))
    assert in_force(choice) == {"a": "a1", "b": "b1", "c": "c1"}
    assert not choice.failures
    choice = await choose(wanted(a="a1", b="b1", c="c2", d="d1"), before, dear(most=2))
    assert in_force(choice) == {"a": "a1", "b": "b1", "c": "c1"}
    assert set(choice.failures) == {key("c"), key("d")}
