"""A lane decides as the set that it was made of, beside that set and over the same data."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st

from kube_sync.opa.analysis.moving import Ground, Trouble, leads_to, move
from kube_sync.opa.lanes import prefix
from kube_sync.opa.modules import plain_package
from kube_sync.opa.scratch import ScratchOpa
from tests.analysis.equality import decisions
from tests.analysis.generate import PolicyMaker, chance, some_object, some_objects, some_world
from tests.analysis.opa import FAILED, UNDEFINED, NotCompiled, PolicyOpa, parsed
from tests.analysis.workloads import Workloads
from tests.parts import examples
from tools.servers.binaries import ensure_binary

_EXAMPLES = examples(15)  # a process of OPA's parser for each module, and each set compiled twice
_PREFIX = prefix("shadow")
_BELOW = "/".join(_PREFIX)
_FOLDER = Path(__file__).resolve().parents[1] / "policies"
_SOURCES = {path.stem: path.read_text() for path in sorted(_FOLDER.glob("*.rego"))}
_OTHERS = frozenset({("kubernetes",)})


def _ground(sources: Mapping[str, str]) -> Ground:
    return Ground(frozenset(filter(None, map(plain_package, sources.values()))), _OTHERS)


def lane(sources: Mapping[str, str]) -> dict[str, str]:
    """Return a set of modules as a lane."""
    trees = asyncio.run(ScratchOpa(str(ensure_binary("opa"))).parsed(sources))
    ground = _ground(sources)
    moved = {name: move(source, trees[name], ground, _PREFIX) for name, source in sources.items()}
    assert not any(found.troubles for found in moved.values()), moved
    return {f"shadow_{name}": found.source for name, found in moved.items()}


def _both(opa: PolicyOpa, random: Random) -> dict[str, str]:
    """Load the first policies of this chance that OPA takes, and the lane of them."""
    while True:
        sources = PolicyMaker(random).modules()
        try:
            opa.compile(sources)
        except NotCompiled:
            continue
        both = {**sources, **lane(sources)}
        opa.compile(both)
        return both


@pytest.mark.property
def test_lane_of_generated_policies_decides_as_they_do(policy_opa: PolicyOpa) -> None:
    seen = Counter[str]()

    @settings(
        max_examples=_EXAMPLES,
        phases=(Phase.explicit, Phase.generate),
        suppress_health_check=list(HealthCheck),
    )
    @given(seed=st.integers(0, 2**48))
    def equal(seed: int) -> None:
        random = chance(seed)
        both = _both(policy_opa, random)
        note("\n".join(both.values()))
        objects = [*some_objects(random, 5), *(some_object(random) for _ in range(5))]
        world = some_world(random)
        active = decisions(policy_opa, "main/decision", objects, world)
        assert decisions(policy_opa, f"{_BELOW}/main/decision", objects, world) == active
        seen["policies"] += 1
        defined = {json.dumps(answer) for answer in active} - {f'"{UNDEFINED}"', f'"{FAILED}"'}
        seen["telling"] += len(defined) > 1 or (bool(defined) and UNDEFINED in active)
        seen["calling"] += "data.lib" in both["main.rego"]

    equal()
    # Otherwise equality would say little.
    assert seen["policies"] >= _EXAMPLES
    assert min(seen["telling"], seen["calling"]) >= _EXAMPLES // 6


def test_lane_stands_alone(policy_opa: PolicyOpa) -> None:
    """Nothing in it leads back: it decides the same without the set that it was made of."""
    random = chance("alone")
    for _ in range(2):
        both = _both(policy_opa, random)
        alone = {name: source for name, source in both.items() if name.startswith("shadow_")}
        objects, world = some_objects(random, 10), some_world(random)
        decision = f"{_BELOW}/main/decision"
        beside = decisions(policy_opa, decision, objects, world)
        policy_opa.compile(alone)
        assert decisions(policy_opa, decision, objects, world) == beside


def test_lane_of_policies_as_people_write_them_decides_as_they_do(policy_opa: PolicyOpa) -> None:
    # The helpers' names begin with `lib_`, and rbac_impersonated needs rbac_subjects.
    order = sorted(_SOURCES, key=lambda n: (not n.startswith("lib_"), n == "rbac_impersonated"))
    sources = {name: _SOURCES[name] for name in order}
    policy_opa.compile({**sources, **lane(sources)})
    seen = set[str]()
    for name in [name for name in sources if not name.startswith("lib_")]:
        makes = Workloads(chance(name))
        objects, world = [makes.target() for _ in range(10)], makes.world()
        active = decisions(policy_opa, f"policies/{name}/decision", objects, world)
        staged = f"{_BELOW}/policies/{name}/decision"
        assert decisions(policy_opa, staged, objects, world) == active
        seen.update(json.dumps(answer) for answer in active)
    assert len(seen) > 30


_EVERYWHERE = """\
package main # é

import data.lib
import data.lib.foo as bar
import data.kubernetes

a := "éé→😀" if { data.lib.f(1); not data.lib.g(data["lib"].x) } else := data.lib.k
b contains data.lib.z if { some v in data.lib.xs; every k in data.lib.q { k > data.lib.m } }
c if data.lib.q with data.lib.q as data.lib.t with data.kubernetes.a as kubernetes.b
d[data.lib.w] := $"it {data.lib.te} é {data[  "lib"].te}" if "é\\tdata.lib" == lib.u
e := data.main.c # data.lib
f := {data.lib.a: [data.elsewhere.b, data.lib.arr[data.lib.idx][_]]}
g := `raw data.lib
é` == data.lib.o
h := $`multi
{data.lib.raw}`
i := object.get(data.lib, ["data"], bar)
j(data.lib.arg) := data.library\r
k := [data.lib.p][data.lib.q]
"""

_MOVED = """\
package P.main # é

import data.P.lib
import data.P.lib.foo as bar
import data.kubernetes

a := "éé→😀" if { data.P.lib.f(1); not data.P.lib.g(data.P["lib"].x) } else := data.P.lib.k
b contains data.P.lib.z if { some v in data.P.lib.xs; every k in data.P.lib.q { k > data.P.lib.m } }
c if data.P.lib.q with data.P.lib.q as data.P.lib.t with data.kubernetes.a as kubernetes.b
d[data.P.lib.w] := $"it {data.P.lib.te} é {data.P[  "lib"].te}" if "é\\tdata.lib" == lib.u
e := data.P.main.c # data.lib
f := {data.P.lib.a: [data.elsewhere.b, data.P.lib.arr[data.P.lib.idx][_]]}
g := `raw data.lib
é` == data.P.lib.o
h := $`multi
{data.P.lib.raw}`
i := object.get(data.P.lib, ["data"], bar)
j(data.P.lib.arg) := data.library\r
k := [data.P.lib.p][data.P.lib.q]
"""

_PACKAGES = frozenset({("main",), ("lib",), ("io", "k8s", "one"), ("io", "k8s", "two")})


def test_what_leads_to_a_package_is_moved_wherever_it_stands(tmp_path: Path) -> None:
    ground = Ground(_PACKAGES, _OTHERS)
    moved = move(_EVERYWHERE, parsed(_EVERYWHERE, tmp_path), ground, _PREFIX)
    assert moved.troubles == ()
    assert moved.source == _MOVED.replace("P", ".".join(_PREFIX))


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("x := data", "data leads"),
        ("x if walk(data, [_, 1])", "data leads"),
        ("x := data[input.a].deny", "data[…] leads"),
        ("x := data.io", "data.io leads"),
        ("x := data.io.k8s[_].deny", "data.io.k8s[…] leads"),
        ("x if input.a with data as {}", "data leads"),
        ("x if data.lib.y with data.io.k8s as {}", "data.io.k8s leads"),
        ("x := data.lib.held.here", "data.lib.held.here leads"),
        ("x := data.lib[input.a]", "data.lib[…] leads"),
        ("x := rego.metadata.chain()", "rego.metadata.chain tells"),
    ],
)
def test_what_cannot_be_told_apart_moves_nothing_and_is_named(
    tmp_path: Path, line: str, shown: str
) -> None:
    source = f"package main\n\nok := data.main.z\n{line}\n"
    ground = Ground(_PACKAGES, _OTHERS | {("lib", "held")})
    moved = move(source, parsed(source, tmp_path), ground, _PREFIX)
    assert moved.source == ""
    assert [trouble.row for trouble in moved.troubles] == [4]
    assert moved.troubles[0].message.startswith(shown)


def test_what_stays_may_not_lead_to_what_moves(tmp_path: Path) -> None:
    source = "package helpers\n\na := data.kubernetes.x\nb := data.io\nc := data.lib.x\n"
    tree: Any = parsed(source, tmp_path)
    assert [trouble.row for trouble in leads_to(tree, Ground(_PACKAGES, _OTHERS))] == [4, 5]
    assert leads_to(tree, Ground(frozenset({("kube_sync_stage",)}))) == ()
    everything = parsed("package a\n\nb := data[input.x]\n", tmp_path)
    assert leads_to(everything, Ground(frozenset({("kube_sync_stage",)}))) == (
        Trouble(3, "data[…] may lead to what is staged, from what is not"),
    )
