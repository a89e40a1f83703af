"""What others wrote does not steer the terminal of whoever reads it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kube_sync
from kube_sync.observability.terminal import harmless
from tests.unit.commandline import status

_EVIL = "\x1b]0;owned\x07\x9b2J\r\u202ebackwards\ud800\U000e0041"


def test_control_characters_are_shown_and_not_obeyed() -> None:
    shown = r"\u001b]0;owned\u0007\u009b2J\u000d\u202ebackwards\ud800\udb40\udc41"
    assert harmless(_EVIL) == shown
    assert harmless("grün: 東京 👍\n\tx") == "grün: 東京 👍\n\tx"


def test_our_own_colors_stay_and_no_other_sequence_does() -> None:
    painted = "\x1b[31mFAIL \x1b[0m\x1b[8mhidden\x1b[1A"
    shown = "\x1b[31mFAIL \x1b[0m\\u001b[8mhidden\\u001b[1A"
    assert harmless(painted, painted=True) == shown


@given(st.text())
def test_json_says_the_same(text: str) -> None:
    assert json.loads(harmless(json.dumps(text, ensure_ascii=False))) == text


def test_a_message_with_the_name_of_a_file_steers_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert status("history", "--file", "/nowhere/\x1b[2J") == 1
    assert capsys.readouterr().err == "kube-sync: /nowhere/\\u001b[2J: there is no ledger\n"


def test_nothing_is_printed_but_by_way_of_it() -> None:
    root = Path(kube_sync.__file__).parent
    asked = re.compile(r"(?<![\w.])print\(|sys\.std(?:out|err)\.write|T201")
    found = [
        line.strip()
        for file in sorted(root.rglob("*.py"))
        for line in file.read_text().splitlines()
        if asked.search(line)
    ]
    assert len(found) == 3, found  # output, questions, errors
    assert "harmless(" in found[1]
    assert found[0].startswith("print(shown")
