from __future__ import annotations

from typing import Any

from kube_sync.kube.events import Occurrence
from kube_sync.kube.placementpolicies import PlacementPolicy
from kube_sync.kube.policymaps import PolicyMap
from kube_sync.kube.policynames import policy_key
from kube_sync.objects import ObjectKey
from kube_sync.opa.scratch import Cause
from kube_sync.policies.placementpolicy_status import Policy
from kube_sync.processes.policyevents import PolicyEvents

P = ObjectKey("ns", "p")
EXPENSIVE: Cause = {"code": "too_expensive", "message": "too expensive to compile (10 s)"}
ENDED: Cause = {"code": "quarantined", "message": "OPA ended 3 times"}


class Events:
    """Stands for the recorder."""

    def __init__(self) -> None:
        self.told: list[Occurrence] = []

    def occurred(self, what: Occurrence, namespace: str) -> None:
        assert namespace == "ns"
        self.told.append(what)


class Bench:
    def __init__(self) -> None:
        recorder: Any = Events()
        self.told = recorder.told
        self._events = PolicyEvents(recorder, str)

    def fail(self, *causes: Cause, source: str = "package p", found: Policy | None = None) -> None:
        policy = found or PolicyMap(P, "1", {"ns/p/m.rego": source}, None)
        self._events.failed({policy.key: policy}, {policy.key: causes} if causes else {})

    @property
    def reasons(self) -> list[str]:
        return [one.reason for one in self.told]


def test_version_that_is_refused_for_what_it_did_is_told_once_with_the_reason() -> None:
    bench = Bench()
    bench.fail(EXPENSIVE)
    bench.fail(EXPENSIVE)
    (one,) = bench.told
    assert (one.reason, one.note, one.warns) == ("TooExpensive", EXPENSIVE["message"], True)
    assert (one.regarding.kind, one.regarding.name) == ("ConfigMap", "p")
    bench.fail()
    bench.fail(EXPENSIVE)
    assert len(bench.told) == 1, "it is the same version"


def test_next_version_and_another_reason_are_told_again() -> None:
    bench = Bench()
    bench.fail(EXPENSIVE)
    bench.fail(EXPENSIVE, source="package q")
    bench.fail(ENDED, source="package q")
    assert bench.reasons == ["TooExpensive", "TooExpensive", "Quarantined"]


def test_version_that_was_blamed_for_nothing_is_told_to_be_tried_again() -> None:
    bench = Bench()
    bench.fail(ENDED)
    bench.fail({"code": "unexplained", "message": "OPA went on ending"})
    assert bench.reasons == ["Quarantined", "OpaEndsUnexplained"]
    assert [one.action for one in bench.told] == ["Refuse", "Release"]


def test_mistake_and_version_that_waits_for_others_are_not_told() -> None:
    bench = Bench()
    bench.fail({"code": "rego_parse_error", "message": "unexpected }"})
    bench.fail({"code": "waiting", "message": "it waits for others"})
    assert bench.told == []
    bench.fail({"code": "not_tried", "message": "not tried again: the replicator ended 2 times"})
    assert bench.reasons == ["NotTriedAgain"]


def test_event_about_a_placementpolicy_names_that_kind() -> None:
    bench, key = Bench(), policy_key(P)
    bench.fail(ENDED, found=PlacementPolicy(key, "1", "uid", 4, "", "active", {f"{key}/a": ""}))
    (about,) = [one.regarding for one in bench.told]
    assert (about.kind, about.namespace, about.name, about.uid) == (
        "PlacementPolicy",
        "ns",
        "p",
        "uid",
    )
