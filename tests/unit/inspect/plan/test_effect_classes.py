from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

import pytest

from kube_sync.decisions.decision import REQUESTED, Decision
from kube_sync.decisions.evaluator import Outcome
from kube_sync.guard import HISTORY, Placements
from kube_sync.inspect.plan.effect_classes import Effects
from kube_sync.inspect.plan.effects import effect
from kube_sync.objects import ObjectKey
from kube_sync.remediation.plan import Current
from tests.unit.inspect.plan.fleets import PLACEMENT, ZONE, preferences

ANNOTATIONS = {
    PLACEMENT: [preferences("c1"), preferences("c1", "c2"), "no JSON"],
    REQUESTED: [f'{{"{PLACEMENT}":null}}', '{"note":"mine","gone":"x"}', "no JSON"],
    HISTORY: ["h1", "h2"],
    "note": ["mine", "theirs"],
    "gone": ["x", "y"],
    ZONE: ["eu", "us"],
}
LABELS = {"team": ["a", "b"], "app": ["web", "shop"]}


def some(chance: random.Random, values: Mapping[str, Sequence[str]], *keys: str) -> dict[str, str]:
    return {k: chance.choice(values[k]) for k in keys or values if chance.random() < 0.6}


def current(chance: random.Random, number: int) -> Current:
    ours, our_labels = some(chance, ANNOTATIONS), some(chance, LABELS)
    return Current(
        f"u{number}",
        has := some(chance, ANNOTATIONS),
        labels := some(chance, LABELS),
        ours=frozenset(ours.keys() & has.keys()),
        our_labels=frozenset(our_labels.keys() & labels.keys()),
    )


def outcome(chance: random.Random) -> Outcome:
    if chance.random() < 0.2:
        return Outcome("u", failure=chance.choice([None, "conflict"]))
    wanted = some(chance, ANNOTATIONS, PLACEMENT, "note")
    return Outcome("u", Decision(wanted, labels=some(chance, LABELS, "team")))


@pytest.mark.parametrize("seed", range(4))
def test_what_is_told_of_many_is_what_is_told_of_each(seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 - no secret is made of it
    outcomes, placements = [outcome(chance) for _ in range(4)], Placements()
    told = Effects(placements)
    for number in range(1500):
        key, has = ObjectKey(f"n{number % 3}", f"w{number}"), current(chance, number)
        now, then = chance.choice(outcomes), chance.choice(outcomes)
        alone = effect("replicasets", key, has, now, then, placements)
        assert told.of("replicasets", key, has, now, then) == alone
