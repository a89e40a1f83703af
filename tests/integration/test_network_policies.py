"""Who reaches whom under the NetworkPolicies of each overlay, by the rules of their specification.

No cluster enforces them here: nodes do, and there are none. Traffic between a pod and its node
(probes, port-forward) is allowed in any case.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import pytest

from tests.fakes.manifests import OVERLAYS, Manifest, build, of_kind, pod_templates

NAMES = [("UDP", 53), ("TCP", 53), ("UDP", 5353), ("TCP", 5353)]
API_SERVERS = [("TCP", 443), ("TCP", 6443), ("TCP", 8443), ("TCP", 16443)]
BASIS = 9408  # without metrics
GENERATOR = 9409
OTHERS = [("TCP", 80), ("TCP", 2379), ("TCP", 5432), ("TCP", 8181), ("TCP", 10250), ("UDP", 443)]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a connection begins or ends: a pod, or what no selector knows."""

    namespace: str = "elsewhere"
    labels: Mapping[str, str] = field(default_factory=dict)
    ports: tuple[int, ...] = ()

    @property
    def component(self) -> str:
        return self.labels["app.kubernetes.io/component"]


ANYWHERE = Place()
PROMETHEUS = Place("monitoring")


def pods(overlay: str) -> list[Place]:
    return [
        Place("kube-sync", template["metadata"]["labels"], tuple(ports(template)))
        for _, template in pod_templates(build(f"overlays/{overlay}"))
    ]


def ports(template: Manifest) -> Iterator[int]:
    for container in template["spec"]["containers"]:
        for port in container.get("ports", ()):
            yield port["containerPort"]


def connects(policies: list[Manifest], source: Place, target: Place, port: tuple[str, int]) -> bool:
    """Tell whether a connection is let out at one end and let in at the other."""
    return passes(policies, "Egress", source, target, port) and passes(
        policies, "Ingress", target, source, port
    )


def passes(
    policies: list[Manifest], way: str, pod: Place, peer: Place, port: tuple[str, int]
) -> bool:
    """Tell whether no policy is for the pod in this direction, or one of its rules allows it."""
    chosen = [
        policy["spec"]
        for policy in policies
        if policy["metadata"]["namespace"] == pod.namespace
        and way in policy["spec"]["policyTypes"]
        and selected(policy["spec"]["podSelector"], pod.labels)
    ]
    peers = {"Ingress": "from", "Egress": "to"}[way]
    rules = [rule for spec in chosen for rule in spec.get(way.lower(), ())]
    return not chosen or any(
        is_peer(rule.get(peers), pod.namespace, peer) and is_port(rule.get("ports"), port)
        for rule in rules
    )


def is_peer(peers: list[Manifest] | None, own_namespace: str, peer: Place) -> bool:
    if peers is None:
        return True
    for one in peers:
        if "namespaceSelector" in one:
            labels = {"kubernetes.io/metadata.name": peer.namespace}
            inside = selected(one["namespaceSelector"], labels)
        else:
            inside = peer.namespace == own_namespace
        if inside and selected(one.get("podSelector", {}), peer.labels):
            return True
    return False


def is_port(allowed: list[Manifest] | None, port: tuple[str, int]) -> bool:
    return allowed is None or any(covers(one, *port) for one in allowed)


def covers(allowed: Manifest, protocol: str, number: int) -> bool:
    first: int = allowed["port"]
    last: int = allowed.get("endPort", first)
    return protocol == allowed["protocol"] and first <= number <= last


def selected(selector: Manifest, labels: Mapping[str, str]) -> bool:
    assert set(selector) <= {"matchLabels"}, "more than this test understands"
    wanted: dict[str, str] = selector.get("matchLabels", {})
    return wanted.items() <= labels.items()


def network_policies(overlay: str) -> list[Manifest]:
    return of_kind(build(f"overlays/{overlay}"), "NetworkPolicy")


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_every_pod_reaches_names_and_api_servers_and_nothing_else_outside(overlay: str) -> None:
    policies = network_policies(overlay)
    for pod in pods(overlay):
        reached = [
            port
            for port in (*NAMES, *API_SERVERS, *OTHERS)
            if connects(policies, pod, ANYWHERE, port)
        ]
        assert reached == [*NAMES, *API_SERVERS], pod.component


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_only_the_webhook_is_reached_from_anywhere_and_only_at_its_port(overlay: str) -> None:
    """The API server has no selector, so it is anywhere."""
    policies = network_policies(overlay)
    reached = {
        (pod.component, port)
        for pod in pods(overlay)
        for port in pod.ports
        if connects(policies, ANYWHERE, pod, ("TCP", port))
    }
    assert reached == (set() if overlay == "spoke" else {("admission", 8443)})


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_of_all_pods_only_the_webhook_reaches_opa_and_the_replicator_beside_it(
    overlay: str,
) -> None:
    policies, there = network_policies(overlay), pods(overlay)
    reached = {
        (source.component, target.component, port)
        for source in there
        for target in there
        for port in target.ports
        if connects(policies, source, target, ("TCP", port))
    }
    # Whoever may speak to API servers of minikube reaches the webhook, as everybody does.
    to_webhook = {(source.component, "admission", 8443) for source in there}
    to_opa = {("admission", "opa", 8181), ("admission", "opa", BASIS)}
    assert reached == (set() if overlay == "spoke" else to_webhook | to_opa)


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_prometheus_reaches_every_port_with_metrics(overlay: str) -> None:
    policies = network_policies(overlay)
    for pod in pods(overlay):
        for port in pod.ports:
            reached = connects(policies, PROMETHEUS, pod, ("TCP", port))
            assert reached == (port != BASIS), (pod.component, port)


def test_argo_cds_controller_reaches_the_generator_and_nothing_else() -> None:
    """Its port is there with manifests/components/argocd."""
    policies = network_policies("minimal")
    name = {"app.kubernetes.io/name": "argocd-applicationset-controller"}
    controller, neighbour = Place("argocd", name), Place("argocd")
    [opa] = [pod for pod in pods("minimal") if pod.component == "opa"]
    for source, expected in ((controller, {GENERATOR}), (neighbour, set[int]())):
        reached = {
            port
            for port in (*opa.ports, GENERATOR)
            if connects(policies, source, opa, ("TCP", port))
        }
        assert reached == expected
