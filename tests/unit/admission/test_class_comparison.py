from __future__ import annotations

import math
from dataclasses import dataclass

from prometheus_client import REGISTRY

from kube_sync.admission.class_comparison import Comparison
from kube_sync.admission.decision_client import Admitted, DecisionReference
from kube_sync.decisions.basis import Basis
from kube_sync.decisions.decision import Decision
from kube_sync.decisions.unwritten import UNWRITTEN_SECONDS

FIRST, SECOND = Basis("me", 1), Basis("me", 2)
COUNTED = ("asked", "agreed", "differed")


@dataclass
class Reports:
    confirmed: Basis | None = FIRST
    asked: float = 0.0


def placed(where: str, decision_id: str = "") -> Admitted:
    return Admitted(Decision({"place": where}), DecisionReference(decision_id))


class World:
    """A comparison of answers that OPA gives at the time 1."""

    def __init__(self, most: int = 10) -> None:
        self.reports = Reports()
        self.comparison = Comparison(self.reports, most)
        self.before = self.sum()

    def sum(self) -> dict[str, float]:
        name = "kube_sync_admission_class_answers_total"
        return {one: REGISTRY.get_sample_value(name, {"outcome": one}) or 0.0 for one in COUNTED}

    def counts(self) -> dict[str, float]:
        """Return what was counted, without zeros."""
        now = self.sum()
        return {one: now[one] - self.before[one] for one in COUNTED if now[one] != self.before[one]}

    def compare(self, known: str, verdict: str) -> None:
        found = placed(known, "1"), placed(verdict, "2")
        self.comparison.compare(*found, b"class", ("me", 1), "uid", 1.0)

    def report(self, basis: Basis | None, asked: float) -> dict[str, float]:
        self.reports.confirmed, self.reports.asked = basis, asked
        self.comparison.settle()
        return self.counts()


def test_equal_answers_of_two_queries_agree() -> None:
    world = World()
    world.compare("eu", "eu")
    assert world.counts() == {"agreed": 1}


def test_difference_waits_for_a_report_that_would_name_the_change() -> None:
    world = World()
    world.compare("eu", "us")
    assert world.report(FIRST, math.nextafter(1.0 + UNWRITTEN_SECONDS, 0.0)) == {}
    assert world.report(FIRST, 1.0 + UNWRITTEN_SECONDS) == {"differed": 1}
    assert world.report(FIRST, 9.0) == {"differed": 1}


def test_difference_under_a_revision_that_is_over_is_not_compared() -> None:
    world = World()
    world.compare("eu", "us")
    assert world.report(SECOND, 1.01) == {"asked": 1}


def test_difference_waits_while_no_report_is_confirmed() -> None:
    world = World()
    world.compare("eu", "us")
    assert world.report(None, 9.0) == {}
    assert world.report(FIRST, 10.0) == {"differed": 1}


def test_answers_are_not_compared_once_the_revision_has_changed() -> None:
    world = World()
    world.reports.confirmed = SECOND
    world.compare("eu", "eu")
    world.reports.confirmed = None
    world.compare("eu", "us")
    assert world.counts() == {"asked": 2}


def test_number_of_differences_that_wait_is_bounded() -> None:
    world = World(most=1)
    world.compare("eu", "us")
    world.compare("eu", "us")
    assert world.counts() == {"asked": 1}
    assert world.report(FIRST, 9.0) == {"asked": 1, "differed": 1}
