"""What withholds all writes: kinds that are targeted, are there, and were never listed."""

from __future__ import annotations

from kube_sync.processes.topology import withheld
from kube_sync.topology.gateway import GATEWAY, ROUTES
from kube_sync.topology.hints import COLOR_POLICY


def test_a_kind_that_is_targeted_and_was_never_listed_withholds_all_by_name() -> None:
    unseen = {ROUTES[0]: "403 no", GATEWAY: "404 gone"}
    assert withheld(unseen, {*unseen, *ROUTES}) == [
        "Gateway.gateway.networking.k8s.io (404 gone)",
        "HTTPRoute.gateway.networking.k8s.io (403 no)",
    ]


def test_a_kind_of_policies_that_may_not_be_read_withholds_nothing() -> None:
    assert withheld({COLOR_POLICY.id: "403 no"}, {GATEWAY}) == []
