"""Plans by a script on disk that prints what a plan would."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from kube_sync.replicator.candidates.answers import Planned, Unplanned, Version
from kube_sync.replicator.candidates.running import Made, Plans
from kube_sync.runtime.errand import Limits, run_errand

PLAN = {
    "v": 1,
    "summary": {"workloads": 3, "classes": 2, "moves": 1, "refused": 0, "pending": 1},
    "brakes": {},
    "candidates": [{"name": "ns/a-candidate", "stands_for": "ns/a", "modules": "0c1d"}],
    "notes": ["one thing is not known"],
}


async def plan(
    folder: Path,
    *program: str,
    names: Sequence[str] = ("ns/a-candidate",),
    config: str | None = None,
    seconds: float = 30.0,
) -> Made | Unplanned:
    script = folder / "plan.py"
    script.write_text("\n".join(("import sys", *program)))
    limits = Limits(seconds, 1 << 30, 1 << 20)
    errand = partial(run_errand, limits=limits, environment=dict(os.environ))
    return await Plans(errand, [sys.executable, str(script)], config).make(names)


def complaining(*lines: str) -> tuple[str, ...]:
    said = [f"print({line!r}, file=sys.stderr)" for line in lines]
    return *said, "sys.exit(3)"


async def test_summary_of_a_plan_is_what_is_kept_of_it(tmp_path: Path) -> None:
    made = await plan(tmp_path, f"print({json.dumps(PLAN)!r})", "sys.exit(2)")
    counts = {"moves": 1, "refused": 0, "pending": 1}
    planned = Planned(3, counts, 2, ("one thing is not known",))
    assert made == Made(planned, {"ns/a-candidate": Version("ns/a", "0c1d")})


async def test_exactly_these_candidates_are_planned_with_by_the_same_configuration(
    tmp_path: Path,
) -> None:
    made = await plan(
        tmp_path, "sys.exit(' '.join(sys.argv[1:]))", names=("ns/a", "ns/b"), config="c.yaml"
    )
    options = "--config c.yaml --candidate ns/a --candidate ns/b"
    assert made == Unplanned((f"plan --staged --output summary {options}",))


async def test_what_it_complains_of_is_the_reason_and_signs_of_life_are_none(
    tmp_path: Path,
) -> None:
    signs = ("kube-sync: replicasets: 500 objects read …", "kube-sync: compiling the policies …")
    lines = ("kube-sync: a.rego:3: rego_parse_error: x", "kube-sync: b.rego:4: rego_parse_error: y")
    made = await plan(tmp_path, *complaining(*signs, *lines))
    assert made == Unplanned(("a.rego:3: rego_parse_error: x", "b.rego:4: rego_parse_error: y"))


async def test_last_of_what_a_fault_of_its_own_says_is_the_reason(tmp_path: Path) -> None:
    made = await plan(tmp_path, "raise ValueError('oh')")
    assert isinstance(made, Unplanned)
    assert made.lines[-1] == "ValueError: oh"


async def test_plan_that_says_nothing_or_nonsense_is_none(tmp_path: Path) -> None:
    assert await plan(tmp_path, "sys.exit(3)") == Unplanned(
        ("the plan ended with status 3 and said nothing",)
    )
    for text in ("{", "[]", '{"summary": {}, "candidates": []}'):
        made = await plan(tmp_path, f"print({text!r})")
        assert isinstance(made, Unplanned)
        assert made.lines[0].startswith("the plan cannot be read: ")


async def test_plan_that_takes_too_long_is_none(tmp_path: Path) -> None:
    made = await plan(tmp_path, "import time; time.sleep(60)", seconds=2.0)
    assert made == Unplanned(("it took more than 2 s",))
