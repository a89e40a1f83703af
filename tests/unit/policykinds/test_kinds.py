"""The kinds whose status is ours are those of the systems that can be built in."""

from __future__ import annotations

from kube_sync.config import SYSTEMS
from kube_sync.policykinds.kinds import METADATA, SCHEDULING


def test_each_kind_is_the_one_of_its_system() -> None:
    for kind in (SCHEDULING, METADATA):
        system = SYSTEMS[kind.system]
        assert (system.kind, system.policies) == (kind.kind, kind.gvr)


def test_only_policies_of_namespaces_are_judged_together() -> None:
    assert [METADATA.together, SCHEDULING.together] == [True, False]
    assert METADATA.rule == "data.kube_sync.metadata.validation.report"
