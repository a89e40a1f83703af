"""Where routes and policies attach, compared with the cases of a released implementation.

Envoy Gateway's cases are objects (`<name>.in.yaml`) with the statuses that its translator gives
them (`<name>.out.yaml`). They are read from its Go module. Compared are: for each parentRef of a
route whether it is accepted, and if not, why; the routes of each listener; which listeners of
ListenerSets conflict; which ListenerSets are not allowed; and which policies find their targets.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from kube_sync.topology import GroupKind, Locator, Node, PolicyKind, Topology, locator
from kube_sync.topology.gateway import GATEWAY, LISTENER_SET, ROUTES, gateway_api
from tools.servers.thirdparty import envoy_gateway_cases

Json = Mapping[str, Any]

POLICIES: Final = [
    PolicyKind(GroupKind("gateway.envoyproxy.io", kind), rules=())
    for kind in (
        "BackendTrafficPolicy",
        "ClientTrafficPolicy",
        "EnvoyExtensionPolicy",
        "EnvoyPatchPolicy",
        "SecurityPolicy",
    )
]
API: Final = gateway_api()
REASONS: Final = {"NoMatchingParent", "NotAllowedByListeners", "NoMatchingListenerHostname"}
ATTACHED: Final = "attached"

# What differs, and why. Nothing of it is about where something attaches.
_TWICE = "the case has two objects of one name, as no API server has: the last one counts here"
_NO_NAMESPACE = "the case leaves out a Namespace, from which nothing is allowed then; here `All` is"
_NO_NAME = "a listener without a name, which no API server stores, is no node here"
_PROTOCOL = "which protocols an implementation has is not known here: one of its own takes routes"
_RULES = "a route of which no rule can be carried out is not counted; here its rules are not judged"
_GROUP = "a kind without the group that the API server fills in is of no group there"
DIFFERENCES: Final = {
    "backendtrafficpolicy-status-conditions": _NO_NAMESPACE,
    "clienttrafficpolicy-invalid-settings": _TWICE,
    "envoyextensionpolicy-status-conditions": _NO_NAMESPACE,
    "envoyextensionpolicy-with-wasm-invalid-configuration": _TWICE,
    "envoypatchpolicy-invalid-target-kind": "a target of another kind is Invalid there",
    "envoyproxy-tls-settings": _NO_NAME,
    "envoyproxy-tls-settings-invalid": _NO_NAME,
    "envoyproxy-tls-settings-invalid-ns": _NO_NAME,
    "gateway-with-listener-with-tcproute-with-multiple-rules": _RULES,
    "gateway-with-listener-with-udproute-with-multiple-rules": _RULES,
    "gateway-with-listener-with-unsupported-protocol": _PROTOCOL,
    "grpcroute-with-direct-response-2xx-invalid": _RULES,
    "httproute-with-urlrewrite-hostname-filter-invalid": _TWICE,
    "listenerset-invalid": _PROTOCOL,
    "tlsroute-invalid-reference-grant": _GROUP,
}


@pytest.fixture(scope="module")
def cases() -> Path:
    return envoy_gateway_cases()


def test_listenersets_attach_as_an_implementation_has_it(cases: Path) -> None:
    count, found = _compared(cases, "*listenerset*")
    assert count >= 45
    assert found.keys() == {name for name in DIFFERENCES if "listenerset" in name}, found


@pytest.mark.slow
def test_routes_and_policies_attach_as_an_implementation_has_it(cases: Path) -> None:
    count, found = _compared(cases, "*")
    assert count >= 700
    assert found.keys() == DIFFERENCES.keys(), found


def _compared(cases: Path, names: str) -> tuple[int, dict[str, list[str]]]:
    """Return how many cases have a Gateway, and what differs, by the name of the case."""
    count, found = 0, {}
    for file in sorted(cases.glob(f"{names}.in.yaml")):
        name = file.name.removesuffix(".in.yaml")
        given = _read(file)
        if not given.get("gateways"):
            continue
        count += 1
        told = list(_Case(given, _read(cases / f"{name}.out.yaml")).differences())
        if told:
            found[name] = told
    return count, found


def _read(file: Path) -> dict[str, list[Json]]:
    """Return lists of objects by their keys, which Envoy Gateway reads in any case."""
    document = yaml.load(file.read_bytes(), Loader=yaml.CSafeLoader) or {}
    return {key.lower(): value for key, value in document.items()}


@dataclass(frozen=True)
class _Case:
    given: Mapping[str, list[Json]]
    expected: Mapping[str, list[Json]]

    @cached_property
    def topology(self) -> Topology:
        listed = (found for found in self.given.values() if isinstance(found, list))
        objects = [one for found in listed for one in found if isinstance(one, dict)]
        known = [one for one in objects if "kind" in one and "metadata" in one]
        return Topology.of(known, API.kinds, API.links, POLICIES)

    @cached_property
    def said(self) -> Mapping[tuple[Locator, str], str]:
        """Reasons by node and type of condition, and by the parentRef that a message names."""
        found = {}
        for one in self.topology.conditions():
            found[one.locator, one.type] = one.reason
            found[one.locator, one.message.partition(":")[0]] = one.reason
        return found

    def differences(self) -> Iterator[str]:
        for kind in ROUTES:
            for route in self._all(kind):
                yield from self._of_route(_node(kind, route), route)
        for kind in (GATEWAY, LISTENER_SET):
            for one in self._all(kind):
                yield from self._of_listeners(_node(kind, one), one)
        for one in self._all(LISTENER_SET):
            yield from self._of_set(_node(LISTENER_SET, one), one)
        for policies in POLICIES:
            for policy in self._all(policies.id):
                yield from self._of_policy(_node(policies.id, policy), policy)

    def _all(self, kind: GroupKind) -> list[Json]:
        plural = f"{kind.kind.lower()}s".replace("policys", "policies")
        return self.expected.get(plural) or []

    def _of_route(self, name: Locator, route: Json) -> Iterator[str]:
        for parent in _status(route).get("parents") or ():
            theirs = _accepted(parent)
            theirs = theirs if theirs in REASONS else ATTACHED
            ours = self._attached(name, route, parent["parentRef"])
            if ours != theirs:
                yield f"{name} at {parent['parentRef']}: {theirs}, here {ours}"

    def _attached(self, name: Locator, route: Json, ref: Json) -> str:
        if name not in self.topology:
            return "not there"
        parents = [self.topology[one] for one in self.topology.targetables.parents(name)]
        if any(_is_meant(ref, parent, route) for parent in parents):
            return ATTACHED
        wanted = _normal(ref, route)
        places = [
            n for n, one in enumerate(route["spec"]["parentRefs"]) if _normal(one, route) == wanted
        ]
        return ", ".join(
            sorted({self.said.get((name, f"spec.parentRefs[{n}]"), "") for n in places})
        )

    def _of_listeners(self, name: Locator, one: Json) -> Iterator[str]:
        for listener in _status(one).get("listeners") or ():
            place = Locator(f"{name}#{listener['name']}")
            routes = len(self.topology.targetables.children(place))
            if routes != listener["attachedRoutes"]:
                yield f"{place}: {listener['attachedRoutes']} routes, here {routes}"

    def _of_set(self, name: Locator, one: Json) -> Iterator[str]:
        not_allowed = _accepted(_status(one)) == "NotAllowed"
        if not_allowed != (self.said.get((name, "Accepted")) == "NotAllowed"):
            yield f"{name}: not allowed there is {not_allowed}, not here"
        for listener in _status(one).get("listeners") or ():
            place = Locator(f"{name}#{listener['name']}")
            theirs = _reason(listener, "Conflicted", "True")
            if theirs != self.said.get((place, "Conflicted"), ""):
                yield f"{place}: conflict {theirs or 'none'}, not so here"

    def _of_policy(self, name: Locator, policy: Json) -> Iterator[str]:
        ancestors = _status(policy).get("ancestors")
        if not ancestors or policy["spec"].get("targetSelectors"):
            return  # nothing is said of a target that is none of theirs
        theirs = any(_accepted(one) == "TargetNotFound" for one in ancestors)
        said = {self.said.get((name, type_)) for type_ in ("Accepted", "ResolvedRefs")}
        if theirs != ("TargetNotFound" in said):
            yield f"{name}: {[_accepted(one) for one in ancestors]}, here {said}"


def _node(kind: GroupKind, one: Json) -> Locator:
    metadata = one["metadata"]
    return locator(kind, metadata.get("namespace", ""), metadata["name"])


def _status(one: Json) -> Json:
    return one.get("status") or {}


def _accepted(said: Json) -> str:
    """Return why something is not accepted, "" if it is."""
    return _reason(said, "Accepted", "False")


def _reason(said: Json, type_: str, status: str) -> str:
    found = (one for one in said.get("conditions") or () if one["type"] == type_)
    return next((str(one["reason"]) for one in found if one["status"] == status), "")


def _normal(ref: Json, route: Json) -> tuple[object, ...]:
    kind, namespace = ref.get("kind", GATEWAY.kind), route["metadata"].get("namespace", "")
    space = ref.get("namespace", namespace)
    return kind, space, ref["name"], ref.get("sectionName"), ref.get("port")


def _is_meant(ref: Json, listener: Node, route: Json) -> bool:
    kind, namespace, name, section, port = _normal(ref, route)
    owner = locator(GroupKind(GATEWAY.group, str(kind)), str(namespace), str(name))
    return (
        listener.owner == owner
        and section in (None, listener.name.partition("#")[2])
        and port in (None, listener.body.get("port"))
    )
