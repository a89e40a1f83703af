from __future__ import annotations

import re

from hypothesis import example, given
from hypothesis import strategies as st

from kube_sync.guard import Withheld
from kube_sync.inspect.plan.causes import Cause, group_of
from kube_sync.inspect.plan.forecast import Forecast
from kube_sync.inspect.plan.markdown import as_markdown
from kube_sync.inspect.plan.plan import Plan, identity
from kube_sync.policies.policywarning import PolicyWarning
from tests.unit.inspect.plan.plans import MASS, WAY, effect, plan

WHOLE = """\
### Plan: 1 to move (of 300 workloads)

| Effect | Workload | From | To | When | Rule |
| --- | --- | --- | --- | --- | --- |
| moves | `shop/web` | `c1` | `c2` | 12 s | `policies/placement/policy.rego:12` |

**Rules**

- `policies/placement/policy.rego:12` applies only after the edit (1 workload): `b := 1 if {`

**Needs an approval**

- mass: `9 of 10 would move`
- Once these moves are requested, `kube-sync remediate status` names them, and \
`kube-sync remediate approve NAME` lets them through.

**Brakes**

- the last one goes 12 s after an approval

**Notes**

- `a note`
- warning: `a.rego:3: unknown_rule: no such rule`"""


def test_plan_has_moves_rules_approvals_brakes_and_notes() -> None:
    web = effect("web")
    forecast = Forecast({identity(web): 12.4}, {}, (MASS,))
    warning = PolicyWarning("unknown_rule", "a.rego", 3, "no such rule")
    whole = plan(web, forecast=forecast, notes=("a note",), warnings=(warning,))
    assert as_markdown(whole) == WHOLE


def test_plan_of_nothing_is_one_line() -> None:
    assert as_markdown(Plan(3, 1)) == "### Plan: nothing changes (of 3 workloads)"


def test_what_is_left_out_of_the_table_is_counted() -> None:
    many = plan(*(effect(f"w{n}") for n in range(45)))
    assert "… and 5 more." in as_markdown(many)
    assert "(45 workloads)" in as_markdown(many)
    assert "more" not in as_markdown(many, every=True)


def test_hold_that_no_approval_ends_is_among_the_brakes() -> None:
    web, shrunk = effect("web", "nowhere"), Withheld("fleet", "a half is gone", "they are back")
    empty = Withheld("empty", "no cluster", "the policy says `evict: true`")
    found = as_markdown(plan(web, forecast=Forecast({}, {identity(web): empty}, (shrunk,))))
    assert (
        "\n**Brakes**\n\n- `fleet: a half is gone: they are back`\n- 1 held for good (empty)"
        in found
    )
    assert "approval" not in found


def test_rules_of_the_state_before_say_so_and_many_are_counted() -> None:
    effects = [effect(f"w{n}", reason=f"{n}") for n in range(22)]
    causes = {
        group_of(one): (Cause("a.rego", n, "a.b", "", "now"),) for n, one in enumerate(effects)
    }
    found = as_markdown(plan(*effects, causes=causes))
    assert "- `a.rego:0` no longer applies (1 workload): `a.b`" in found
    assert "- … and 2 more\n" in f"{found}\n"


def test_pending_effects_and_the_first_reason_are_notes() -> None:
    refused = effect("web", "refused", reason="no_way\nat all", change=None)
    found = as_markdown(plan(refused, effect("b", pending=True), causes={}))
    assert "- 1 would change without the edit, too (pending)" in found
    assert "- `shop/web: refused: no_way`\n" in f"{found}\n"


def test_text_of_others_is_no_markdown_and_hides_nothing() -> None:
    odd = effect("web", "refused", reason="a|b <!-- @org/all `c` https://a.io\nc", change=None)
    found = as_markdown(Plan(3, 1, (odd,)))
    row = "| refused | `shop/web` | `c1` | `c2` |  | `a\\|b <!-- @org/all 'c' https://a.io` |"
    assert row in found.splitlines()
    assert "\x1b" not in as_markdown(Plan(3, 1, (effect("w", "refused", reason="\x1b[2J"),)))


def with_text(text: str) -> str:
    """Return a plan that has a text wherever one comes from others."""
    lost = effect(text, "refused", reason=text, change=None, before=(text,), after=(text,))
    moved = effect("web", before=(text,))
    cause = Cause(text, 3, text, text, "then")
    holds = Withheld("mass", text, "", approve="moves-1"), Withheld("fleet", text, text)
    warning = PolicyWarning("unknown_rule", text, 3, text, text)
    whole = plan(
        *(lost, moved),
        causes={group_of(moved): (cause,)},
        forecast=Forecast({}, {}, holds),
        notes=(text,),
        warnings=(warning,),
    )
    return as_markdown(whole)


@given(st.text(min_size=1) | st.text("`|\\\\<>@#!$*_[]()&~:/.-\n\r\u2028 w", min_size=1))
@example("@org/all closes #1, see https://example.com or www.example.com or a@example.com")
@example("`|`\n/merge\n|")
def test_whatever_others_write_is_in_code_and_in_its_row(text: str) -> None:
    found = with_text(text)
    ours, otherwise = (re.sub("`[^`\n]*`", "", one) for one in (found, with_text("a")))
    assert ours == otherwise
    for row in found.splitlines():
        assert not row.startswith("|") or len(re.findall(r"(?<!\\)\|", row)) == 7


def test_long_cell_is_cut() -> None:
    wide = effect("web", before=tuple(f"c{n:03}" for n in range(100)))
    (row,) = (line for line in as_markdown(plan(wide)).splitlines() if "shop/web" in line)
    assert "| `c000,c001," in row
    assert "c018,c019…` | `c2` |" in row


def test_rule_is_code_that_it_cannot_end() -> None:
    web = effect("web")
    cause = Cause(WAY.file, 3, "a.b", "x := `<!--`\n", "both")
    found = as_markdown(plan(web, causes={group_of(web): (cause,)}))
    assert "applies before and after the edit (1 workload): `x := '<!--'`" in found
