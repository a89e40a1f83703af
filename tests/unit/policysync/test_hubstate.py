from __future__ import annotations

import json
from typing import Any

import pytest

from kube_sync.kube.collection import Event, Item, ResourceVersion
from kube_sync.objects import GroupVersionResource, ObjectKey
from kube_sync.policysync.copies import MANAGER, FeedbackField, PolicyId
from kube_sync.policysync.desired import PLACEMENT
from kube_sync.policysync.feedback_fields import FIELDS
from kube_sync.policysync.hubstate import ChangeHandlers, HubState
from kube_sync.policysync.object_cache import ObjectCache
from kube_sync.policysync.parameters import Invalid
from kube_sync.policysync.validation import VERBS, Faulty, Undetermined, Valid
from tests.fakes.copies import AUTH, policy, source
from tests.fakes.listing import Listing, listed

TLS = GroupVersionResource("kuadrant.io", "v1", "tlspolicies")
DEFINITION = ObjectKey("", "authpolicies.kuadrant.io")
WEB = ObjectKey("shop", "web")
MULTI = ObjectKey("", "multi")


def item(key: ObjectKey, body: dict[str, Any]) -> Item:
    metadata = {"name": key.name, "namespace": key.namespace, **body.pop("metadata", {})}
    content = json.dumps({"metadata": metadata, **body}).encode()
    return Item(key, "u", ResourceVersion("1"), content)


def put(store: ObjectCache, key: ObjectKey, **body: Any) -> None:
    store.apply(Event("MODIFIED", ResourceVersion("1"), item(key, body)))


def drop(store: ObjectCache, key: ObjectKey) -> None:
    store.apply(Event("DELETED", ResourceVersion("1"), item(key, {})))


class World:
    """A hub with one class, one Gateway on two clusters, and a policy of it."""

    def __init__(self, *, classed: bool = True, allowed: bool = True) -> None:
        self.told: list[Any] = []
        self.now = 0.0
        handlers = ChangeHandlers(
            self.told.append, self.told.append, lambda: self.told.append("kinds")
        )
        self.state = HubState(handlers, clock=lambda: self.now)
        self.listen(AUTH)
        if classed:
            put(self.state.classes, MULTI, spec={"parametersRef": ref("params")})
        self.define()
        if allowed:
            self.state.set_allowed_verbs(AUTH, VERBS)
        self.gateway()
        self.decide("d1", "east", "west")
        self.add("login")
        for one in self.needed:
            one.finish_now()
        self.told.clear()

    @property
    def needed(self) -> list[_Listed]:
        state = self.state
        stores = (state.classes, state.configmaps, state.gateways, state.decisions)
        more = (state.definitions, state.grants, state.policies(AUTH))
        sets = (state.listener_sets, state.namespaces)
        return [_Listed(one) for one in (*stores, *more, *sets)]

    @property
    def concerned(self) -> list[Any]:
        found, self.told[:] = list(self.told), []
        return [one for one in found if isinstance(one, PolicyId)]

    def listen(self, *gvrs: GroupVersionResource, name: str = "params", **more: Any) -> None:
        entries = [
            {"group": one.group, "version": one.version, "resource": one.resource, **more}
            for one in gvrs
        ]
        data = {"params": json.dumps({"policiesToSync": entries})}
        put(self.state.configmaps, ObjectKey("system", name), data=data)

    def define(self, gvr: GroupVersionResource = AUTH, kind: str = "AuthPolicy") -> None:
        target = {"properties": {"targetRef": {"type": "object"}}}
        schema = {"openAPIV3Schema": {"properties": {"spec": target}}}
        version = {"name": "v1", "served": True, "schema": schema}
        names = {"plural": gvr.resource, "kind": kind}
        spec = {"group": gvr.group, "names": names, "scope": "Namespaced", "versions": [version]}
        name = ObjectKey("", f"{gvr.resource}.{gvr.group}")
        put(self.state.definitions, name, spec=spec)

    def gateway(
        self, key: ObjectKey = WEB, of: str = "multi", placement: str = "both", **more: Any
    ) -> None:
        metadata = {"labels": {PLACEMENT: placement}}
        spec = {"gatewayClassName": of}
        put(self.state.gateways, key, metadata=metadata, spec=spec, **more)

    def decide(self, name: str, *clusters: str, placement: str = "both") -> None:
        status = {"decisions": [{"clusterName": one} for one in clusters]}
        metadata = {"labels": {PLACEMENT: placement}}
        put(self.state.decisions, ObjectKey("shop", name), metadata=metadata, status=status)

    def add(self, name: str, gateway: str = "web", **more: Any) -> None:
        body = dict(source(name).body)
        spec = {"targetRef": {**body["spec"]["targetRef"], "name": gateway}}
        metadata = {"uid": name, **more.pop("metadata", {})}
        where = ObjectKey("shop", name)
        put(self.state.policies(AUTH), where, metadata=metadata, spec=spec, **more)

    def clusters(self, name: str = "login") -> dict[ObjectKey, frozenset[str]]:
        found = self.state.source(policy(name))
        assert found is not None
        targets = self.state.targets(found.id, found.kind, found.body)
        return {key: one.clusters for key, one in self.state.placements(targets).items()}


class _Listed:
    """A store whose LIST tells what it holds already."""

    def __init__(self, store: ObjectCache) -> None:
        self.store = store

    def finish_now(self) -> None:
        items = [
            Item(key, "u", ResourceVersion("1"), json.dumps(body).encode())
            for key, body in self.store.objects.items()
        ]
        listed(self.store, Listing(items, ResourceVersion("1")))


def ref(name: str, **more: Any) -> dict[str, Any]:
    return {"group": "", "kind": "ConfigMap", "name": name, "namespace": "system", **more}


@pytest.fixture
def world() -> World:
    return World()


def test_a_policy_goes_where_its_gateway_is_placed(world: World) -> None:
    assert world.clusters() == {WEB: frozenset({"east", "west"})}
    assert world.state.is_wanted(AUTH) is True
    assert world.state.valid_kinds == {AUTH}


def test_placements_beyond_one_decision_count_together(world: World) -> None:
    world.decide("d2", "north")
    assert world.concerned == [policy()]
    assert world.clusters()[WEB] == {"east", "west", "north"}


def test_a_decision_concerns_the_policies_of_its_gateways_alone(world: World) -> None:
    world.gateway(ObjectKey("shop", "other"), placement="else")
    world.add("elsewhere", "other")
    assert world.concerned == [policy("elsewhere")]
    world.decide("d1", "east")
    assert world.concerned == [policy()]
    drop(world.state.decisions, ObjectKey("shop", "d1"))
    assert world.concerned == [policy()]
    world.decide("d3", "east", placement="else")
    assert world.concerned == [policy("elsewhere")]


def test_a_gateway_concerns_its_policies_when_its_class_or_placement_changes(
    world: World,
) -> None:
    world.gateway(status={"conditions": []})
    assert world.concerned == []
    world.gateway(placement="other")
    assert world.concerned == [policy()]
    world.gateway(of="other")
    assert world.concerned == [policy()]
    drop(world.state.gateways, WEB)
    assert world.concerned == [policy()]


def test_a_gateway_that_comes_concerns_who_waited_for_it(world: World) -> None:
    world.add("early", "late")
    world.told.clear()
    world.gateway(ObjectKey("shop", "late"))
    assert world.concerned == [policy("early")]


def test_a_policy_that_refers_elsewhere_is_not_concerned_by_the_old_gateway(
    world: World,
) -> None:
    world.add("login", "other")
    assert world.concerned == [policy()]
    world.gateway(placement="other")
    assert world.concerned == []


def test_what_we_write_to_a_policy_concerns_nobody(world: World) -> None:
    notes = {"annotations": {"kuadrant.io/policies-synced": "[]"}}
    world.add("login", metadata=notes, status={"conditions": []})
    assert world.concerned == []
    found = world.state.source(policy())
    assert found is not None
    assert found.body["status"] == {"conditions": []}
    world.add("login", metadata={"annotations": {"other": "1"}})
    assert world.concerned == [policy()]
    world.add("login", metadata={"labels": {"a": "b"}})
    assert world.concerned == [policy()]


def test_a_number_that_becomes_true_concerns_the_copies(world: World) -> None:
    world.add("login", metadata={"annotations": {}}, flag=1)
    world.concerned.clear()
    world.add("login", metadata={"annotations": {}}, flag=True)
    assert world.concerned == [policy()]


def test_a_deleted_policy_is_told_and_has_no_source(world: World) -> None:
    drop(world.state.policies(AUTH), ObjectKey("shop", "login"))
    assert world.concerned == [policy()]
    assert world.state.source(policy()) is None
    assert world.state.is_wanted(AUTH) is True
    world.gateway(placement="other")
    assert world.concerned == []


def test_several_classes_with_different_lists_live_together(world: World) -> None:
    put(world.state.classes, ObjectKey("", "second"), spec={"parametersRef": ref("more")})
    world.listen(TLS, name="more")
    world.define(TLS, "TLSPolicy")
    world.state.set_allowed_verbs(TLS, VERBS)
    assert world.state.valid_kinds == {AUTH, TLS}
    world.gateway(of="second")
    assert world.clusters() == {}  # its class does not sync this kind
    drop(world.state.classes, ObjectKey("", "second"))
    assert world.state.valid_kinds == {AUTH}


def test_parameters_that_change_concern_policies_and_classes(world: World) -> None:
    world.listen(TLS)
    assert "multi" in world.told
    assert "kinds" in world.told
    assert world.concerned == [policy()]
    assert world.state.is_wanted(AUTH) is False
    assert world.state.is_wanted(TLS) is None  # nobody has listed it


def test_parameters_that_stay_the_same_concern_no_policy(world: World) -> None:
    world.listen(AUTH)
    put(world.state.configmaps, ObjectKey("system", "of-somebody"), data={})
    assert world.concerned == []


def test_parameters_that_cannot_be_read_are_no_empty_list(world: World) -> None:
    drop(world.state.configmaps, ObjectKey("system", "params"))
    assert isinstance(world.state.parameters["multi"], Invalid)
    assert world.state.is_wanted(AUTH) is None
    found = world.state.source(policy())
    assert found is not None
    (target,) = world.state.targets(found.id, found.kind, found.body).targets
    assert "cannot be read" in target.problem


def test_a_class_without_its_configmap_listed_is_not_judged() -> None:
    told: list[Any] = []
    state = HubState(ChangeHandlers(told.append, told.append, lambda: None))
    put(state.classes, ObjectKey("", "multi"), spec={"parametersRef": ref("params")})
    state.classes.finish(known=True)
    assert state.parameters == {}
    assert state.is_wanted(AUTH) is None
    assert not state.ready


def test_a_kind_is_judged_by_its_definition_and_our_permissions(world: World) -> None:
    assert isinstance(world.state.verdict(AUTH), Valid)
    world.state.set_allowed_verbs(AUTH, ["get"])
    assert world.told == ["multi", "kinds"]
    found = world.state.verdict(AUTH)
    assert isinstance(found, Faulty)
    assert "list, watch" in found.reason
    world.told.clear()
    world.state.set_allowed_verbs(AUTH, ["get"])
    assert world.told == []
    assert isinstance(world.state.verdict(TLS), Faulty)


def test_a_definition_that_vanishes_keeps_what_is_there(world: World) -> None:
    drop(world.state.definitions, DEFINITION)
    assert "kinds" in world.told
    assert world.state.valid_kinds == frozenset()
    assert world.state.is_wanted(AUTH) is None
    world.define()
    assert world.state.is_wanted(AUTH) is True


def test_nothing_is_judged_before_definitions_are_listed() -> None:
    state = HubState(ChangeHandlers(lambda _: None, lambda _: None, lambda: None))
    assert isinstance(state.verdict(AUTH), Undetermined)


def test_extra_fields_are_those_of_the_class_of_the_gateway(world: World) -> None:
    field = {"name": "hits", "path": ".status.hits"}
    world.listen(AUTH, statusFields=[field])
    found = world.state.source(policy())
    assert found is not None
    assert found.feedback == (*FIELDS, FeedbackField("hits", ".status.hits"))


def test_a_kind_that_is_followed_no_more_tells_its_policies(world: World) -> None:
    world.state.forget(AUTH)
    assert world.concerned == [policy()]
    assert world.state.cached_kinds == frozenset()
    assert world.state.source(policy()) is None
    world.state.forget(AUTH)
    assert world.concerned == []


def test_managed_clusters_tell_which_are_gone_once_they_are_listed(world: World) -> None:
    assert world.state.gone_clusters(["east", "west"]) == frozenset()
    put(world.state.clusters, ObjectKey("", "east"))
    _Listed(world.state.clusters).finish_now()
    assert world.state.gone_clusters(["east", "west"]) == {"west"}
    world.told.clear()
    put(world.state.clusters, ObjectKey("", "east"), status={})
    assert world.concerned == []
    drop(world.state.clusters, ObjectKey("", "east"))
    assert world.concerned == [policy()]


def test_a_grant_concerns_whoever_refers(world: World) -> None:
    put(world.state.grants, ObjectKey("shop", "any"), spec={})
    assert world.concerned == [policy()]


def through(world: World, allowed: str = "Same") -> None:
    """Let the hub's Gateway take a ListenerSet, which the policy names."""
    spec = {"gatewayClassName": "multi", "allowedListeners": {"namespaces": {"from": allowed}}}
    metadata = {"labels": {PLACEMENT: "both"}}
    put(world.state.gateways, WEB, metadata=metadata, spec=spec)
    put(world.state.listener_sets, ObjectKey("shop", "more"), spec={"parentRef": {"name": "web"}})
    target = {"group": "gateway.networking.k8s.io", "kind": "ListenerSet", "name": "more"}
    put(world.state.policies(AUTH), ObjectKey("shop", "login"), spec={"targetRef": target})
    world.told.clear()


def test_a_policy_of_a_listenerset_goes_where_its_gateway_is_placed(world: World) -> None:
    through(world)
    assert world.clusters() == {WEB: frozenset({"east", "west"})}
    put(world.state.decisions, ObjectKey("shop", "d1"), metadata={"labels": {PLACEMENT: "both"}})
    assert world.concerned == [policy()]


def test_what_changes_about_a_listenerset_concerns_whoever_names_it(world: World) -> None:
    more = ObjectKey("shop", "more")
    through(world)
    put(world.state.listener_sets, more, spec={"parentRef": {"name": "web"}}, status={"a": 1})
    assert world.concerned == []
    put(world.state.listener_sets, more, spec={"parentRef": {"name": "other"}})
    assert world.concerned == [policy()]
    assert world.clusters() == {}
    world.gateway(ObjectKey("shop", "other"))
    assert world.concerned == [policy()]
    drop(world.state.listener_sets, more)
    assert world.concerned == [policy()]


def test_what_a_gateway_allows_concerns_whoever_comes_by_a_listenerset(world: World) -> None:
    through(world)
    through(world, "None")
    assert world.clusters() == {}
    world.gateway()
    assert world.concerned == [policy()]


def test_labels_of_a_namespace_concern_whoever_names_a_listenerset_in_it(world: World) -> None:
    through(world, "All")
    shop, other = ObjectKey("", "shop"), ObjectKey("", "other")
    for space, told in ((other, []), (shop, [policy()])):
        put(world.state.namespaces, space, metadata={"labels": {"team": "a"}})
        assert world.concerned == told
    put(
        world.state.namespaces, shop, metadata={"labels": {"team": "a"}}, status={"phase": "Active"}
    )
    assert world.concerned == []


def test_listenersets_that_are_not_listed_keep_what_is_placed(world: World) -> None:
    through(world)
    world.state.listener_sets.listed = False
    found = world.state.source(policy())
    assert found is not None
    problem = world.state.targets(found.id, found.kind, found.body).problem
    assert problem == "it names a ListenerSet, and the hub's ListenerSets are not listed"


def test_a_gateway_that_is_gone_has_no_known_placement(world: World) -> None:
    found = world.state.source(policy())
    assert found is not None
    targets = world.state.targets(found.id, found.kind, found.body)
    drop(world.state.gateways, WEB)
    (placed,) = world.state.placements(targets).values()
    assert placed.problem == "it is not there"


def test_objects_of_any_shape_raise_nothing(world: World) -> None:
    shapes: tuple[dict[str, Any], ...]
    shapes = ({"spec": 7}, {"spec": {"gatewayClassName": []}}, {"metadata": {"labels": 1}})
    for shape in shapes:
        put(world.state.gateways, WEB, **json.loads(json.dumps(shape)))
        put(world.state.classes, ObjectKey("", "multi"), **json.loads(json.dumps(shape)))
        put(world.state.decisions, ObjectKey("shop", "d1"), **json.loads(json.dumps(shape)))
        put(world.state.policies(AUTH), ObjectKey("shop", "x"), **json.loads(json.dumps(shape)))
        put(world.state.definitions, DEFINITION, **json.loads(json.dumps(shape)))
    put(world.state.policies(AUTH), ObjectKey("shop", "x"), metadata={"annotations": 3})
    assert isinstance(world.state.verdict(AUTH), Faulty)


def test_what_is_no_object_is_left_out(world: World) -> None:
    for content in (b"[", b"[]", b"{}", b'{"metadata": 3}'):
        body = Item(WEB, "u", ResourceVersion("1"), content)
        world.state.gateways.apply(Event("MODIFIED", ResourceVersion("1"), body))
    assert world.state.gateways.get(WEB) is None
    world.state.gateways.apply(Event("BOOKMARK", ResourceVersion("1")))


async def test_a_list_that_breaks_off_or_finds_no_kind_changes_nothing(world: World) -> None:
    gateways = world.state.gateways
    await gateways.page([item(ObjectKey("shop", "new"), {})])
    gateways.abandon()
    gateways.finish(known=False)
    assert list(gateways.objects) == [WEB]
    assert world.concerned == []
    await gateways.page([item(ObjectKey("shop", "new"), {})])
    gateways.finish(known=True)
    assert list(gateways.objects) == [ObjectKey("shop", "new")]
    assert world.concerned == [policy()]


def test_a_kind_that_is_never_served_is_waited_for_only_so_long() -> None:
    now = [0.0]
    state = HubState(
        ChangeHandlers(lambda _: None, lambda _: None, lambda: None), clock=lambda: now[0]
    )
    for one in (state.classes, state.configmaps, state.gateways, state.decisions):
        one.finish(known=True)
    state.definitions.finish(known=True)
    state.grants.finish(known=False)
    assert not state.ready
    now[0] = 29.0
    state.grants.finish(known=False)
    assert not state.ready
    now[0] = 31.0
    assert state.ready


def test_the_parameters_of_all_classes_are_told_by_name(world: World) -> None:
    assert list(world.state.parameters) == ["multi"]
    assert list(world.state.merged_parameters.kinds) == [AUTH]


def test_what_a_write_was_answered_with_counts_until_the_watch_has_come_so_far() -> None:
    told: list[ObjectKey] = []
    store = ObjectCache(lambda key, _before, _after: told.append(key))
    store.record_write(
        WEB, {"metadata": {"uid": "u", "resourceVersion": "9"}}
    )  # it is gone meanwhile
    assert store.get(WEB) is None
    put(store, WEB, metadata={"uid": "u", "resourceVersion": "1"})
    ours = {"manager": MANAGER, "operation": "Apply"}
    managed = [ours, {"manager": "other"}]
    answer = {"metadata": {"uid": "u", "resourceVersion": "3", "managedFields": managed}, "x": 1}
    store.record_write(WEB, answer)
    put(store, WEB, metadata={"uid": "u", "resourceVersion": "2"})
    found = store.get(WEB)
    assert found is not None
    assert found["metadata"]["managedFields"] == [ours]
    assert (found["x"], told) == (1, [WEB])
    store.record_write(WEB, {"metadata": {"uid": "another", "resourceVersion": "4"}})
    store.record_write(WEB, {"no": "object"})
    assert store.get(WEB) == found
    put(store, WEB, metadata={"uid": "u", "resourceVersion": "4"})
    assert told == [WEB, WEB]


CONDITION = {"type": "kube-sync.io/PolicySync", "status": "True"}
KINDLESS = {"parametersRef": {**ref("params"), "kind": "Configmap"}}


def slip(world: World, how: str, **more: Any) -> None:
    """Have somebody mistype what says which policies are synced."""
    if how == "key":
        put(world.state.configmaps, ObjectKey("system", "params"), data={"parms": "{}"})
        put(world.state.classes, MULTI, spec={"parametersRef": ref("params")}, **more)
    elif how == "list":
        data = {"params": '{"policyToSync": []}'}
        put(world.state.configmaps, ObjectKey("system", "params"), data=data)
    elif how == "kind":
        put(world.state.classes, MULTI, spec=KINDLESS, **more)
    else:
        group = {"parametersRef": {**ref("params"), "group": "v1"}}
        put(world.state.classes, MULTI, spec=group, **more)


@pytest.mark.parametrize("how", ["key", "list", "kind", "group"])
def test_a_slip_in_the_parameters_of_a_class_that_is_followed_is_no_empty_list(
    world: World, how: str
) -> None:
    slip(world, how)
    found = world.state.parameters["multi"]
    assert isinstance(found, Invalid)
    assert not found.foreign
    assert "multi" in world.told
    assert world.state.is_wanted(AUTH) is None


@pytest.mark.parametrize(
    "body",
    [
        {"status": {"conditions": [CONDITION]}},
        {"spec": {**KINDLESS, "controllerName": "kube-sync.io/policy-sync"}},
    ],
)
def test_after_a_restart_the_class_itself_tells_that_it_was_followed(
    body: dict[str, Any],
) -> None:
    world = World(classed=False)
    put(world.state.classes, MULTI, **{"spec": KINDLESS, **body})
    assert world.state.is_wanted(AUTH) is None


@pytest.mark.parametrize("status", [{}, {"conditions": [{"type": "Accepted"}]}, {"conditions": 1}])
def test_parameters_of_a_class_never_followed_are_somebody_elses(
    status: dict[str, Any],
) -> None:
    world = World(classed=False)
    put(world.state.classes, MULTI, spec=KINDLESS, status=status)
    found = world.state.parameters["multi"]
    assert isinstance(found, Invalid)
    assert found.foreign
    assert world.state.is_wanted(AUTH) is False


def test_a_class_that_named_nothing_more_is_free_for_somebody_else(world: World) -> None:
    world.listen()
    assert world.state.is_wanted(AUTH) is False
    slip(world, "kind", status={"conditions": [CONDITION]})  # which we take away in a moment
    assert world.state.is_wanted(AUTH) is False
    drop(world.state.classes, MULTI)
    put(world.state.classes, MULTI, spec=KINDLESS, status={"conditions": [CONDITION]})
    assert world.state.is_wanted(AUTH) is None, "nobody remembers what it named before"


def test_of_clusters_that_are_told_late_none_is_gone(world: World) -> None:
    put(world.state.clusters, ObjectKey("", "east"))
    _Listed(world.state.clusters).finish_now()
    report = world.state.clusters_freshness.reporter("managedclusters")
    report(None)
    assert world.state.gone_clusters(["east", "west"]) == {"west"}
    report("403: forbidden")
    world.now += 100.0
    assert world.state.gone_clusters(["east", "west"]) == frozenset()
    report(None)  # it has still to tell what it missed
    assert world.state.gone_clusters(["east", "west"]) == frozenset()
    world.now += 6.0
    assert world.state.gone_clusters(["east", "west"]) == {"west"}


def test_a_policy_that_no_reader_can_read_is_there_and_says_nothing(world: World) -> None:
    deep = b'{"a":' * 5000 + b"1" + b"}" * 5000
    content = b'{"metadata": {"name": "login", "namespace": "shop"}, "spec": ' + deep + b"}"
    one = Item(ObjectKey("shop", "login"), "u", ResourceVersion("2"), content)
    world.state.policies(AUTH).apply(Event("MODIFIED", ResourceVersion("2"), one))
    found = world.state.source(policy())
    assert found is not None
    assert found.body["metadata"]["uid"] == "u"
    problem = world.state.targets(found.id, found.kind, found.body).problem
    assert problem == "the policy cannot be read: spec: nested too deeply"
