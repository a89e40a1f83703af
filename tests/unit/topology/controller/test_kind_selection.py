from __future__ import annotations

from typing import Any

from kube_sync.kube.definitions import Definition, definition_of
from kube_sync.kube.discovery import Resource
from kube_sync.objects import GroupVersionResource
from kube_sync.topology import NAMESPACE, GroupKind, Kind, PolicyKind, Role
from kube_sync.topology.controller.kind_selection import BUILTIN, Choice, Chooser
from kube_sync.topology.gateway import GATEWAY, SERVICE
from tests.fakes.definitions import POLICY, definition, resource
from tests.fakes.topologies import API, GROUP

SHADE = GroupKind("example.com", "Shade")
NAMED = PolicyKind(SHADE, merges=False)
LEVEL = "kube-sync.io/takes-effect-at"
TLS = GroupKind(GROUP, "TLSRoute")


def defined(kind: str, group: str, *versions: str, uid: str = "u", **more: Any) -> Definition:
    body = definition(kind, group, *versions, **more)
    body["metadata"]["uid"] = uid
    body["status"] = {"conditions": [{"type": "Established", "status": "True"}]}
    return definition_of(body)


def shade(*versions: str, labels: dict[str, str] = POLICY, **more: Any) -> Definition:
    return defined("Shade", "example.com", *(versions or ("v1",)), labels=labels, **more)


def found(kind: str, group: str, version: str, **more: Any) -> Resource:
    verbs = more.pop("verbs", frozenset({"list", "watch"}))
    gvr = resource(kind, group, version)
    return Resource(gvr, kind, verbs=verbs, **{"namespaced": True, **more})


CHOOSER = Chooser(API.kinds)


def test_what_every_api_server_has_is_chosen_anyway() -> None:
    for chosen in (CHOOSER.by_definitions([], {}), CHOOSER.by_discovery([])):
        assert {id_: c.gvr for id_, c in chosen.choices.items()} == BUILTIN
        assert (dict(chosen.policies), dict(chosen.wrong)) == ({}, {})
    assert {NAMESPACE, SERVICE} == BUILTIN.keys()


def test_namespaces_are_looked_for_although_nobody_says_so() -> None:
    assert CHOOSER.looked_for == {NAMESPACE} | {kind.id for kind in API.kinds}
    assert CHOOSER.groups == {GROUP}


def test_the_version_to_prefer_is_chosen() -> None:
    gateways = defined("Gateway", GROUP, "v1beta1", "v1")
    tls = defined("TLSRoute", GROUP, "v1alpha2", "v1alpha3", "v1", unserved=["v1", "v1alpha3"])
    chosen = CHOOSER.by_definitions([gateways, tls], {})
    assert chosen.choices[GATEWAY].gvr == resource("Gateway", GROUP, "v1")
    assert chosen.choices[TLS].gvr == resource("TLSRoute", GROUP, "v1alpha2")


def test_a_kind_keeps_its_sections() -> None:
    chosen = CHOOSER.by_definitions([defined("Gateway", GROUP, "v1")], {})
    assert chosen.choices[GATEWAY].kind is CHOOSER.kinds[GATEWAY]


def test_what_is_not_established_is_not_chosen() -> None:
    body = definition("Gateway", GROUP, "v1")
    assert GATEWAY not in CHOOSER.by_definitions([definition_of(body)], {}).choices


def test_a_label_makes_a_kind_of_policies_in_its_scope() -> None:
    chosen = CHOOSER.by_definitions([shade(namespaced=False)], {})
    assert chosen.choices == CHOOSER.builtin | {
        SHADE: Choice(
            Kind(SHADE, Role.POLICY, namespaced=False), resource("Shade", SHADE.group, "v1"), "u"
        )
    }
    assert chosen.policies[SHADE].merges


def test_what_has_no_label_and_no_name_here_does_not_matter() -> None:
    assert not CHOOSER.matters(shade(labels={}))
    assert CHOOSER.matters(shade())
    assert CHOOSER.matters(defined("Gateway", GROUP, "v1"))
    assert Chooser(API.kinds, [NAMED]).matters(shade(labels={}))


def test_what_is_named_comes_before_what_is_declared() -> None:
    chooser = Chooser(API.kinds, [NAMED])
    for definition_ in (
        shade(),
        shade(labels={}),
        shade(labels=POLICY, annotations={LEVEL: "Wall"}),
    ):
        chosen = chooser.by_definitions([definition_], {})
        assert (chosen.policies, dict(chosen.wrong)) == ({SHADE: NAMED}, {})


def test_a_targetable_is_no_policy_whatever_its_label() -> None:
    chosen = Chooser(API.kinds, [PolicyKind(GATEWAY)]).by_definitions(
        [defined("Gateway", GROUP, "v1", labels=POLICY)], {}
    )
    assert chosen.choices[GATEWAY].kind.role is Role.TARGETABLE
    assert chosen.policies == {}


def test_a_declaration_that_means_nothing_leaves_what_was_before() -> None:
    wrong = shade(annotations={LEVEL: "Wall"})
    chosen = CHOOSER.by_definitions([wrong, defined("Gateway", GROUP, "v1")], {})
    assert SHADE not in chosen.choices
    assert GATEWAY in chosen.choices
    assert "Wall is no targetable kind" in chosen.wrong[SHADE]
    again = CHOOSER.by_definitions([wrong], {SHADE: NAMED})
    assert (again.policies, again.choices[SHADE].uid) == ({SHADE: NAMED}, "u")
    assert again.wrong == chosen.wrong


def test_of_two_definitions_of_one_kind_the_first_counts() -> None:
    # The API server accepts the names of one of them, and says so in both.
    first, second = defined("Gateway", GROUP, "v1"), defined("Gateway", GROUP, "v2", uid="w")
    assert CHOOSER.by_definitions([first, second], {}).choices[GATEWAY].uid == "u"


def test_discovery_chooses_the_version_to_prefer_of_what_is_looked_for() -> None:
    chooser = Chooser(API.kinds, [NAMED])
    resources = [
        found("Gateway", GROUP, "v1beta1"),
        found("Gateway", GROUP, "v1"),
        found("GatewayClass", GROUP, "v1", verbs=frozenset({"get"})),
        found("Mall", GROUP, "v1"),
        found("Shade", SHADE.group, "v1", namespaced=False),
    ]
    chosen = chooser.by_discovery(resources)
    assert {id_: c.gvr for id_, c in chosen.choices.items() if id_ not in BUILTIN} == {
        GATEWAY: resource("Gateway", GROUP, "v1"),
        SHADE: resource("Shade", SHADE.group, "v1"),
    }
    assert chosen.policies == {SHADE: NAMED}
    assert not chosen.choices[SHADE].kind.namespaced


def test_other_kinds_that_are_built_in_can_be_said() -> None:
    pods = GroupKind("", "Pod")
    gvr = GroupVersionResource("", "v1", "pods")
    chooser = Chooser([*API.kinds, Kind(pods)], builtin={**BUILTIN, pods: gvr})
    assert chooser.by_definitions([], {}).choices[pods] == Choice(Kind(pods), gvr)
