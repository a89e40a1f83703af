"""What objects ask for can be met, and most of it whatever a cluster does."""

from __future__ import annotations

import json

import pytest

from tests.faults.world import seeded
from tools.demo.fleet import LEVEL, PREFERENCES, REGION
from tools.soak.wishes import (
    NARROW,
    OUTSIDE,
    Wish,
    eligible,
    first_clusters,
    placed,
    random_wish,
    strong,
)


@pytest.mark.parametrize("count", [1, 5, 100])
def test_every_possible_wish_is_met_whatever_changing_clusters_offer(count: int) -> None:
    clusters = first_clusters(count)
    for name in strong(count):
        clusters[name]["metadata"]["labels"] |= {LEVEL: str(NARROW[0]), REGION: OUTSIDE}
    chance = seeded(1)
    for _ in range(500):
        wish = random_wish(chance, possible=True)
        assert wish.possible
        assert "cluster-000" in eligible(wish.annotations(), clusters.values())


def test_impossible_wishes_come_where_they_are_allowed_and_are_met_nowhere() -> None:
    chance = seeded(1)
    wishes = [random_wish(chance, possible=False) for _ in range(500)]
    impossible = [wish for wish in wishes if not wish.possible]
    assert 0 < len(impossible) < 50
    assert eligible(impossible[0].annotations(), first_clusters(100).values()) == []


def test_change_of_one_level_moves_few() -> None:
    clusters, chance = first_clusters(100), seeded(1)
    wishes = [random_wish(chance, possible=True).annotations() for _ in range(2_000)]
    before = [eligible(wish, clusters.values()) for wish in wishes]
    clusters[strong(100)[0]]["metadata"]["labels"][LEVEL] = str(NARROW[-1])
    after = [eligible(wish, clusters.values()) for wish in wishes]
    assert 0 < sum(b != a for b, a in zip(before, after, strict=True)) < 200


def test_jurisdiction_leaves_out_who_is_outside() -> None:
    clusters = first_clusters(100)
    inside = eligible(Wish(90, eu=True).annotations(), clusters.values())
    assert inside == ["cluster-000", "cluster-002", "cluster-004", "cluster-006"]


def test_placement_is_read_off_an_object() -> None:
    assert placed({PREFERENCES: json.dumps({"clusters": {"b": {}, "a": {}}})}) == ["a", "b"]
    assert placed({}) is None
