"""Which denials are explained, and what an answer of the API server is taken for."""

from __future__ import annotations

import pytest

from tools.soak.tally import Tally
from tools.soak.windows import GRACE, Denial, Window, outcome, outside

HOOK = 'Internal error occurred: failed calling webhook "placement.kube-sync.io": deadline'
REFUSED = 'admission webhook "placement.kube-sync.io" denied the request: no cluster'
STARTING = "replicasets.apps is forbidden: not yet ready to handle request"


def denial(begun: float, ended: float) -> Denial:
    return Denial("create x", begun, ended, REFUSED)


@pytest.mark.parametrize(
    ("begun", "ended"),
    [(9.0, 10.1), (12.0, 12.1), (19.9, 25.0), (5.0, 40.0), (20.0 + GRACE - 0.1, 30.0)],
)
def test_denial_that_touches_a_window_is_explained(begun: float, ended: float) -> None:
    assert outside([denial(begun, ended)], [Window("OPA killed", 10.0, 20.0)]) == []


@pytest.mark.parametrize(("begun", "ended"), [(8.0, 9.9), (20.0 + GRACE, 22.0)])
def test_denial_before_or_after_a_window_is_not_explained(begun: float, ended: float) -> None:
    found = denial(begun, ended)
    assert outside([found], [Window("OPA killed", 10.0, 20.0)]) == [found]


def test_window_that_never_ended_explains_what_comes_after() -> None:
    assert outside([denial(500.0, 501.0)], [Window("OPA killed", 10.0)]) == []


@pytest.mark.parametrize(
    ("status", "text", "possible", "expected"),
    [
        (201, "", True, "made"),
        (201, "", False, "let through"),
        (403, REFUSED, True, "denied wrongly"),
        (403, REFUSED, False, "denied"),
        (500, HOOK, True, "denied wrongly"),
        (500, HOOK, False, "denied"),
        (403, STARTING, True, "refused"),
        (404, "not found", True, "gone"),
        (409, "modified", True, "conflict"),
        (429, "too many", True, "refused"),
        (0, "", True, "unanswered"),
    ],
)
def test_answer_is_taken_for(status: int, text: str, *, possible: bool, expected: str) -> None:
    assert outcome(status, text, possible=possible) == expected


def test_every_wrong_denial_is_kept_for_the_comparison_with_windows() -> None:
    tally = Tally()
    for number in range(1_000):
        tally.note("create", str(number), tally.now, 403, REFUSED, possible=True)
    assert len(tally.denials) == 1_000
    assert tally.changes["create"] == {"denied wrongly": 1_000}
