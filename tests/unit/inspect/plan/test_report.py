from __future__ import annotations

import json

import pytest

from kube_sync.guard import Withheld
from kube_sync.inspect.plan.effects import Effect
from kube_sync.inspect.plan.forecast import Forecast
from kube_sync.inspect.plan.plan import BREAKS, NOTHING, SOMETHING, Plan, identity
from kube_sync.inspect.plan.report import as_json, as_names, as_table, duration
from kube_sync.objects import GroupVersionResource
from tests.unit.inspect.plan.plans import MASS, effect, plan


@pytest.mark.parametrize(
    ("effects", "status"),
    [
        ((), NOTHING),
        ((effect("a", pending=True),), NOTHING),
        ((effect("a", "nowhere", pending=True),), NOTHING),
        ((effect("a", "changes"),), SOMETHING),
        ((effect("a"), effect("b", "refused")), BREAKS),
    ],
)
def test_status_says_what_the_edit_does_and_not_what_comes_anyway(
    effects: tuple[Effect, ...], status: int
) -> None:
    assert plan(*effects).status == status


def test_worst_comes_first_and_what_is_pending_last() -> None:
    effects = (effect("d", pending=True), effect("c"), effect("b"), effect("a", "refused"))
    assert [one.key.name for one in plan(*effects).ordered] == ["a", "b", "c", "d"]


def test_json_has_everything_of_each_workload() -> None:
    web = effect("web")
    forecast = Forecast({identity(web): 12.5}, {}, (MASS,))
    found = json.loads(as_json(plan(web, forecast=forecast, notes=("a note",))))
    assert found["workloads"] == [
        {
            "resource": "replicasets",
            "namespace": "shop",
            "name": "web",
            "uid": "u-web",
            "effect": "moves",
            "from": ["c1"],
            "to": ["c2"],
            "left": ["c1"],
            "joined": ["c2"],
            "pending": False,
            "reason": "",
            "rules": [
                {
                    "file": "policies/placement/policy.rego",
                    "row": 12,
                    "rule": "a.b",
                    "text": "b := 1 if {",
                    "when": "then",
                }
            ],
            "after_seconds": 12.5,
            "held": None,
        }
    ]
    assert found["brakes"] == {
        "moves": 1,
        "holds": [
            {"kind": "mass", "reason": "9 of 10 would move", "release": "waits for an approval"}
        ],
        "seconds": 12.5,
        "stuck": 0,
    }
    assert (found["v"], found["notes"], found["summary"]["moves"]) == (1, ["a note"], 1)


@pytest.mark.parametrize("width", [80, 100, 120])
def test_table_fits_the_terminal_and_keeps_the_end_of_the_file_s_name(width: int) -> None:
    long = effect("a-workload-with-a-name-that-is-very-long-indeed-and-longer")
    table = as_table(plan(long, effect("web")), width).split("\n\n", maxsplit=1)[0].splitlines()
    assert max(map(len, table)) <= width
    assert all(row.endswith("policy.rego:12") for row in table[1:])


def test_table_is_as_wide_as_it_has_to_be() -> None:
    forecast = Forecast({identity(effect("web")): 100.0}, {})
    assert as_table(plan(effect("web"), forecast=forecast), 200) == (
        "EFFECT  WORKLOAD  FROM  TO  WHEN   RULE\n"
        "moves   shop/web  c1    c2  100 s  policies/placement/policy.rego:12\n"
        "\n"
        "1 to move (of 300 workloads)\n"
        "brakes: the last one goes 100 s after the edit"
    )


def test_what_is_left_out_of_a_table_is_counted() -> None:
    many = plan(*(effect(f"w{n}") for n in range(45)))
    assert "… and 5 more (--all, or -o json)" in as_table(many, 120)
    assert "more" not in as_table(many, 120, every=True)


def test_text_cannot_move_the_cursor() -> None:
    odd = effect("web", "refused", reason="\x1b[2Jgone", change=None)
    assert "\x1b" not in as_table(Plan(3, 1, (odd,)), 100)


def test_what_is_held_for_good_says_by_what() -> None:
    web = effect("web", "nowhere")
    held = Withheld("empty", "it would run on no cluster", "the policy says `evict: true`")
    table = as_table(plan(web, forecast=Forecast({}, {identity(web): held})), 120)
    assert "held: empty" in table
    assert "brakes: 1 held for good (empty)" in table


def test_plan_of_nothing_is_one_line() -> None:
    assert as_table(Plan(3, 1), 80) == "nothing changes (of 3 workloads)"


@pytest.mark.parametrize(
    ("seconds", "said"), [(0.4, "at once"), (90, "90 s"), (600, "10 min"), (9000, "2.5 h")]
)
def test_times_are_in_words(seconds: float, said: str) -> None:
    assert duration(seconds) == said


def test_wide_table_cuts_nothing_and_has_kind_and_uid() -> None:
    long = effect("w" * 80)
    head, row = as_table(plan(long), None).split("\n\n", maxsplit=1)[0].splitlines()
    assert head.split()[::7] == ["TYPE", "UID"]
    assert row.split()[0] == "replicasets"
    assert row.split()[-1] == f"u-{'w' * 80}"


def test_names_are_those_that_other_commands_take() -> None:
    places = {"replicasets": GroupVersionResource("apps", "v1", "replicasets")}
    found = plan(effect("b"), effect("a"))
    assert as_names(found, places) == "replicasets.apps/shop/a\nreplicasets.apps/shop/b"
    assert as_names(found, places, in_namespace=True).splitlines()[0] == "replicasets.apps/a"
    assert as_names(plan(), places) == ""
