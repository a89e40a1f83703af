from __future__ import annotations

from functools import partial

import pytest

from kube_sync.admission.decision_client import Admitted, Denied, Verdict
from kube_sync.admission.response import allow
from kube_sync.admission.revisions import RevisedDecider, unannotated
from kube_sync.decisions.decision import PLACEMENT, Decision
from kube_sync.objects import GroupVersionResource
from tests.fakes.reviewing import Judge
from tests.fakes.reviews import create, resource, response

REVIEW = create(resource({PLACEMENT: "the owner's"}))
DECIDED = Decision({PLACEMENT: "{}"}, labels={"tier": "gold"}, warnings=("policy's",))


async def ask(verdict: Verdict, *resources: GroupVersionResource) -> Verdict:
    others = {(one.group, one.resource) for one in resources}
    judge = RevisedDecider(Judge(verdict), partial(unannotated, resources=others))
    return await judge.verdict(REVIEW, 1.0)


def gvr(resource_: str, version: str = "v1") -> GroupVersionResource:
    return GroupVersionResource(REVIEW.resource.group, version, resource_)


@pytest.mark.parametrize("version", ["v1", "v2"])
async def test_object_of_other_sinks_is_admitted_as_it_is_with_the_policys_warnings(
    version: str,
) -> None:
    verdict = await ask(Admitted(DECIDED), gvr(REVIEW.resource.resource, version))
    assert isinstance(verdict, Admitted)
    answer = response(allow(REVIEW, verdict.decision))
    assert "patch" not in answer
    assert answer["warnings"] == ["policy's"]


async def test_object_of_other_sinks_is_still_refused() -> None:
    denied = Denied(("no cluster fits",))
    assert await ask(denied, gvr(REVIEW.resource.resource)) is denied


async def test_objects_of_other_resources_are_annotated() -> None:
    admitted = Admitted(DECIDED)
    assert await ask(admitted, gvr("others")) is admitted
    assert await ask(admitted) is admitted
