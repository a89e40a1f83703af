from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

from kube_sync.config import WarningCode
from kube_sync.policies.policywarning import PolicyWarning, by_module, without

PAGE = Path(__file__).parents[3] / "docs/policy-warnings.md"
ONE = PolicyWarning("unknown_rule", "ns/p/a.rego", 3, "it has none", "errors")
OTHER = PolicyWarning("unused_helper", "ns/p/b.rego", 0, "nobody refers to it")


def test_line_has_what_is_known() -> None:
    assert ONE.line() == "ns/p/a.rego:3: unknown_rule: it has none (meant: errors?)"
    assert ONE.line({"ns/p/a.rego": "a.rego"}).startswith("a.rego:3: ")
    assert OTHER.line() == "ns/p/b.rego: unused_helper: nobody refers to it"
    assert PolicyWarning("unknown_label", "", 0, "odd").line() == "unknown_label: odd"


def test_codes_that_are_switched_off_are_left_out() -> None:
    assert [*without([ONE, OTHER], {"unknown_rule": "off"})] == [OTHER]


def test_warnings_are_found_by_their_module() -> None:
    assert by_module([ONE, OTHER, ONE]) == {ONE.file: [ONE, ONE], OTHER.file: [OTHER]}


def test_page_lists_every_code() -> None:
    rows = [row for row in PAGE.read_text(encoding="utf-8").splitlines() if row.startswith("| `")]
    codes = {code for row in rows for code in re.findall(r"`([a-z_]+)`", row.split("|")[1])}
    assert codes >= set(get_args(WarningCode))
