"""OPA's own compliance suite: each of its decisions over what the analysis says is read.

The cases are those of the Go module of the pinned OPA. A part of them, with the newest syntax, is
tried by every run of the tests, all of them by the thorough one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

import pytest

from tests.analysis.compliance import Case, Compared, cases, compared
from tests.analysis.opa import PolicyOpa, plain_spec
from tools.servers.modules import compliance_suite
from tools.servers.running import Launcher, free_port, launch_on_free_port

DOCUMENTATION = Path(__file__).resolve().parents[2] / "docs" / "analysis.md"
SAMPLE = ("logic_operators", "negation", "withkeyword")
COMPARABLE = {"v0": 1_940, "v1": 2_272}  # at least: fewer would say that they are not found
GIVEN_UP = 5  # at most


@pytest.fixture
def emptied(policy_opa: PolicyOpa) -> Iterator[PolicyOpa]:
    """Lend the OPA of all tests of the analysis, and leave nothing in it."""
    yield policy_opa
    policy_opa.load([], {})


def tried(opa: PolicyOpa, found: Iterable[Case]) -> list[Compared]:
    """Return what could be compared, and see that all of it is equal and little is given up."""
    results = [compared(opa, case) for case in found]
    comparable = [one for one in results if not one.why]
    assert [one.case.note for one in results if not one.equal] == []
    gave_up = {one.case.note: one.gave_up for one in comparable if one.gave_up}
    assert len(gave_up) <= GIVEN_UP, gave_up
    told = DOCUMENTATION.read_text(encoding="utf-8")
    assert [note for note in gave_up if f"`{note}`" not in told] == []
    # Otherwise equality would say little.
    less = sum(one.less for one in comparable)
    assert less >= 0.95 * len(comparable), Counter(one.why for one in results)
    return comparable


def test_case_of_the_newest_syntax_decides_over_what_it_reads_as_over_everything(
    emptied: PolicyOpa,
) -> None:
    suite = compliance_suite() / "v1"
    found = tried(emptied, chain.from_iterable(cases(suite / name) for name in SAMPLE))
    assert len(found) >= 200


@pytest.mark.slow
@pytest.mark.parametrize("version", COMPARABLE)
def test_case_of_the_suite_decides_over_what_it_reads_as_over_everything(
    launcher: Launcher, tmp_path: Path, version: str
) -> None:
    options = ["--v0-compatible"] if version == "v0" else []
    server = launch_on_free_port(launcher, lambda: plain_spec(tmp_path, free_port(), *options))
    try:
        found = tried(PolicyOpa.at(server.url), cases(compliance_suite() / version))
    finally:
        server.stop()
    assert len(found) >= COMPARABLE[version]
