from __future__ import annotations

from collections.abc import Mapping

import pytest

from kube_sync.errors import Broken
from kube_sync.inspect.plan.candidates import Candidates
from kube_sync.inspect.replay.deciders import Deciders, by_policy
from kube_sync.inspect.replay.recorded import NO_POLICIES, Unknown
from kube_sync.objects import ObjectKey
from kube_sync.opa.scratch import Cause, Modules
from tests.unit.commandline import status

OLD = {"p/one/a.rego": "old a", "p/two/b.rego": "old b"}
NEW = {"p/one/a.rego": "newer a", "p/three.PlacementPolicy/c.rego": "c"}
BUILTIN = {"kube_sync/builtin": "generated"}
CONFIGMAP = ("one.yaml", ObjectKey("p", "one"), {"p/one/a.rego": "candidate"})


class RecordedPolicies:
    """A ledger that knows these sets of policies."""

    def __init__(self, **sets: Mapping[str, str]) -> None:
        self._sets = sets

    def modules(self, policy: str) -> Modules:
        if policy not in self._sets:
            raise Unknown(NO_POLICIES)
        return self._sets[policy]


class Compiler:
    """Compiles all but what lies beside a module of that source."""

    def __init__(self, against: str = "") -> None:
        self._against = against
        self.checked = list[Modules]()

    async def check(self, modules: Modules) -> list[Cause]:
        self.checked.append(modules)
        if self._against not in modules.values():
            return []
        location = {"file": "p/one/a.rego", "row": 7}
        return [{"code": "rego_type_error", "message": "conflict", "location": location}]


def _deciders(candidates: Candidates, compiler: Compiler | None = None) -> Deciders:
    return Deciders(RecordedPolicies(old=OLD, new=NEW), compiler or Compiler(), BUILTIN, candidates)


async def test_candidate_takes_its_place_in_each_set_and_the_others_stay_as_they_were() -> None:
    deciders = _deciders(Candidates([CONFIGMAP]))
    assert await deciders.modules("old") == {**BUILTIN, **OLD, "p/one/a.rego": "candidate"}
    assert await deciders.modules("new") == {**BUILTIN, **NEW, "p/one/a.rego": "candidate"}
    assert deciders.name_of("old") != deciders.name_of("new")


async def test_file_of_rego_takes_the_place_of_the_module_that_its_path_ends_with() -> None:
    deciders = _deciders(Candidates(files={"policies/c.rego": ("c.rego", "candidate")}))
    assert await deciders.modules("new") == {
        **BUILTIN,
        **NEW,
        "p/three.PlacementPolicy/c.rego": "candidate",
    }
    assert (await deciders.modules("old"))["candidates/c.rego"] == "candidate"


async def test_without_candidates_those_of_then_decide_as_they_are() -> None:
    deciders = _deciders(Candidates())
    assert await deciders.modules("old") == {**BUILTIN, **OLD}
    assert not deciders.has_candidates


async def test_instead_of_all_others_one_set_decides_even_where_those_of_then_are_gone() -> None:
    compiler = Compiler()
    deciders = _deciders(Candidates([CONFIGMAP], instead=True), compiler)
    assert await deciders.modules("gone") == {**BUILTIN, "p/one/a.rego": "candidate"}
    assert await deciders.modules("old") == await deciders.modules("new")
    assert len(compiler.checked) == 1
    assert deciders.name_of("old") == deciders.name_of("new")


async def test_candidates_among_policies_that_are_gone_decide_nothing() -> None:
    with pytest.raises(Unknown, match=NO_POLICIES):
        await _deciders(Candidates([CONFIGMAP])).modules("gone")


async def test_candidate_that_does_not_compile_in_the_newest_set_is_named_with_its_row() -> None:
    deciders = _deciders(Candidates([CONFIGMAP]), Compiler(against="c"))
    said = r"one.yaml \(p/one/a.rego\):7: rego_type_error: conflict"
    with pytest.raises(Broken, match=said):
        await deciders.check(["gone", "new", "old"])


async def test_older_set_that_does_not_compile_with_a_candidate_is_left_out_with_the_reason() -> (
    None
):
    deciders = _deciders(Candidates([CONFIGMAP]), Compiler(against="old b"))
    await deciders.check(["new", "old"])
    for _ in range(2):
        with pytest.raises(Unknown, match=r"with these policies those of then do not compile: one"):
            await deciders.modules("old")
    assert await deciders.modules("new")


async def test_file_that_may_stand_for_two_modules_of_a_set_decides_nothing_there() -> None:
    then = RecordedPolicies(old={"p/one/a.rego": "1", "p/two/a.rego": "2"}, new=NEW)
    candidates = Candidates(files={"a.rego": ("a.rego", "candidate")})
    deciders = Deciders(then, Compiler(), BUILTIN, candidates)
    assert (await deciders.modules("new"))["p/one/a.rego"] == "candidate"
    with pytest.raises(Unknown, match=r"a.rego: may stand for p/one/a.rego or p/two/a.rego"):
        await deciders.modules("old")


def test_recorded_modules_are_of_the_policy_that_their_ids_begin_with() -> None:
    assert by_policy({**OLD, **NEW, "odd": "x"}) == {
        ObjectKey("p", "one"): {"p/one/a.rego": "newer a"},
        ObjectKey("p", "two"): {"p/two/b.rego": "old b"},
        ObjectKey("p", "three.PlacementPolicy"): {"p/three.PlacementPolicy/c.rego": "c"},
        ObjectKey("", ""): {"odd": "x"},
    }


def test_instead_of_what_is_not_said_is_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KUBE_SYNC_CONFIG", "")
    assert status("replay", "--file", "ledger.db", "--instead") != 0
    assert "--instead: goes with --policy" in capsys.readouterr().err
