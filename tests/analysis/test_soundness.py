"""Policies at random: OPA decides over what the analysis finds as it decides over everything."""

from __future__ import annotations

import json
from collections import Counter
from random import Random

import pytest
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st

from kube_sync.opa.analysis.analyzer import PolicyModule, analyze
from tests.analysis.equality import ROOTS, decisions, over_projection, paths_of
from tests.analysis.generate import PolicyMaker, chance, some_object, some_objects, some_world
from tests.analysis.opa import FAILED, UNDEFINED, NotCompiled, PolicyOpa
from tests.parts import examples

_EXAMPLES = examples(250)
_DECISION = "main/decision"


def policies(opa: PolicyOpa, random: Random) -> list[PolicyModule]:
    """Return the first policies of this chance that OPA takes."""
    while True:
        sources = PolicyMaker(random).modules()
        try:
            compiled = opa.compile(sources)
        except NotCompiled:
            continue
        note("\n".join(sources.values()))
        return compiled


@pytest.mark.property
def test_generated_policies_decide_over_what_they_read_as_over_everything(
    policy_opa: PolicyOpa,
) -> None:
    seen = Counter[str]()

    # A seed does not shrink: the policy that fails is printed as it is.
    @settings(
        max_examples=_EXAMPLES,
        phases=(Phase.explicit, Phase.generate),
        suppress_health_check=list(HealthCheck),
    )
    @given(seed=st.integers(0, 2**48))
    def equal(seed: int) -> None:
        random = chance(seed)
        reads = analyze(policies(policy_opa, random), _DECISION, ROOTS)
        note(str(reads))
        assert reads.gave_up is None
        objects = [*some_objects(random, 5), *(some_object(random) for _ in range(5))]
        world = some_world(random)
        whole = decisions(policy_opa, _DECISION, objects, world)
        paths = paths_of(reads)
        assert over_projection(policy_opa, _DECISION, objects, world, paths) == whole
        seen["policies"] += 1
        seen["projected"] += () not in reads.input.paths
        defined = {json.dumps(answer) for answer in whole} - {f'"{UNDEFINED}"', f'"{FAILED}"'}
        seen["telling"] += len(defined) > 1 or (bool(defined) and UNDEFINED in whole)

    equal()
    # Otherwise equality would say little.
    assert 4 * seen["telling"] >= seen["policies"] >= _EXAMPLES
    assert 2 * seen["projected"] >= seen["policies"]
