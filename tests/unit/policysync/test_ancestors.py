"""The worst entry of `status.ancestors` of a copy reaches the hub, whoever wrote it.

Each case goes the whole way: the hub's policy, its ManifestWork, what the work agent reports of the
copy's status by the work's feedback rules (with and without its gate RawFeedbackJsonString), and
the conditions of the hub's policy. Directly written copies have to come to the same.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec.yaml
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_sync.objects import ObjectKey
from kube_sync.policysync.aggregate import aggregate
from kube_sync.policysync.ancestors import ancestor_fields, is_taken
from kube_sync.policysync.copies import Copy, Placed
from kube_sync.policysync.desired import Desired
from kube_sync.policysync.downstream import Downstream, copied
from kube_sync.policysync.manifestworks import placed_of, work_of
from kube_sync.policysync.parameters import Invalid
from kube_sync.policysync.spoke_collection import copy_in
from tests.fakes.copies import AUTH, policy
from tests.fakes.syncing import GATEWAY_API
from tests.ocm.feedback import feedback
from tests.unit.policysync.test_hubstate import World, put
from tools.servers.thirdparty import ThirdParty, download

OURS = "kube-sync.io/topology"
ENVOY = "gateway.envoyproxy.io/gatewayclass-controller"
ISTIO = "istio.io/gateway-controller"
OVERRIDDEN = ("False", "Overridden", "AuthPolicy is overridden by [kuadrant-shop/native]")
FINE = ("True", "Programmed", "AuthPolicy has been successfully enforced")
Entry = dict[str, Any]
Told = dict[str, tuple[str, str, str]]
WAYS = ["agent", "agent with raw JSON", "direct"]


def entry(
    name: str, controller: str = OURS, *, generation: int = 1, ref: Entry | None = None, **said: Any
) -> Entry:
    """Return an entry as controllers write it; `said`: status, reason, message by condition."""
    names = ("status", "reason", "message")
    conditions = [
        {"type": kind, "observedGeneration": generation, **dict(zip(names, one, strict=True))}
        for kind, one in said.items()
    ]
    at = {"group": GATEWAY_API, "kind": "Gateway", "name": name, "namespace": "kuadrant-shop"}
    return {"ancestorRef": at | (ref or {}), "controllerName": controller, "conditions": conditions}


def copy_of(*gateways: str, sections: Sequence[str] = ()) -> Copy:
    """Return the copy of a policy that refers to Gateways, as the hub makes it."""
    more: list[dict[str, str]] = [{"sectionName": one} for one in sections]
    more += [{} for _ in gateways[len(more) :]]
    refs = [{"group": GATEWAY_API, "kind": "Gateway", "name": name} for name in gateways]
    return copy_with([ref | one for ref, one in zip(refs, more, strict=True)])


def copy_with(refs: Sequence[Mapping[str, Any]]) -> Copy:
    world = World()
    status = {"properties": {"ancestors": {"type": "array"}}}
    spec = {"properties": {"targetRefs": {"type": "array", "items": {"type": "object"}}}}
    version = {
        "name": "v1",
        "served": True,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": {"properties": {"spec": spec, "status": status}}},
    }
    names = {"plural": AUTH.resource, "kind": "AuthPolicy"}
    definition = {"group": AUTH.group, "names": names, "scope": "Namespaced", "versions": [version]}
    put(world.state.definitions, ObjectKey("", "authpolicies.kuadrant.io"), spec=definition)
    where = ObjectKey("shop", "login")
    put(world.state.policies(AUTH), where, metadata={"uid": "u"}, spec={"targetRefs": list(refs)})
    source = world.state.source(policy())
    assert source is not None
    keys = {ObjectKey("shop", one["name"]) for one in refs}
    return copied(source, range(len(refs)), keys, ["east"], Downstream())["east"]


def placed(copy: Copy, status: Mapping[str, Any], way: str, *, generation: int = 1) -> Placed:
    """Return a copy with a status as the hub finds it."""
    metadata = {**copy.body["metadata"], "generation": generation}
    there = {**copy.body, "metadata": metadata, "status": status}
    found = None
    if way == "direct":
        found = copy_in(there, "east", copy.feedback)
    else:
        work: dict[str, Any] = work_of(copy)
        rules = work["spec"]["manifestConfigs"][0]["feedbackRules"]
        values, condition = feedback(there, rules, raw=way != "agent")
        assert condition["status"] == "True"
        manifest = {"conditions": [condition], "statusFeedback": {"values": values}}
        applied = {"type": "Applied", "status": "True"}
        work["status"] = {"conditions": [applied], "resourceStatus": {"manifests": [manifest]}}
        found = placed_of(work)
    assert found is not None
    return found


def told(copy: Copy, *entries: Entry, way: str = "agent", generation: int = 1) -> Told:
    """Return the conditions of the hub's policy whose one copy has these entries."""
    one = placed(copy, {"ancestors": list(entries)}, way, generation=generation)
    found = aggregate(Desired({"east": copy}, concerned=True), {"east": one})
    return {one.type: (one.status, one.reason, one.message) for one in found}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("worst", [0, 1, 2])
def test_one_gateway_of_several_where_it_is_overridden_makes_it_overridden(
    way: str, worst: int
) -> None:
    names = ["a", "b", "c"]
    entries = [entry(n, Programmed=OVERRIDDEN if n == names[worst] else FINE) for n in names]
    status, reason, message = told(copy_of(*names), *entries, way=way)["Programmed"]
    assert (status, reason) == ("False", "Overridden")
    assert message == f"east: Overridden: Gateway {names[worst]}: {OVERRIDDEN[2]}"


@pytest.mark.parametrize("way", WAYS)
def test_a_condition_is_true_where_every_entry_says_so(way: str) -> None:
    copy = copy_of("a", "b")
    entries = [entry("a", Programmed=FINE), entry("b", Programmed=FINE)]
    found = told(copy, *entries, way=way)
    assert found["Programmed"] == ("True", "Programmed", f"east: Programmed: {_both(FINE[2])}")
    assert found["kube-sync.io/Synced"][0] == "True"
    assert "Accepted" not in found


def _both(message: str) -> str:
    return f"Gateways a, b: {message}"


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("controller", [ENVOY, ISTIO])
@pytest.mark.parametrize("first", [True, False])
def test_an_entry_of_another_controller_counts(way: str, controller: str, *, first: bool) -> None:
    refused = ("False", "Invalid", "the JWKS cannot be read")
    entries = [
        entry("a", Accepted=("True", "Accepted", "fine")),
        entry("a", controller, Accepted=refused),
    ]
    found = told(copy_of("a"), *(entries if first else reversed(entries)), way=way)
    assert found["Accepted"] == ("False", "Invalid", "east: Invalid: the JWKS cannot be read")


@pytest.mark.parametrize("way", WAYS)
def test_what_nobody_but_another_controller_says_reaches_the_hub(way: str) -> None:
    accepted = ("True", "Accepted", "Policy has been accepted.")
    found = told(copy_of("a"), entry("a", ENVOY, Accepted=accepted), way=way)
    assert found["Accepted"] == ("True", "Accepted", f"east: Accepted: {accepted[2]}")


@pytest.mark.parametrize("way", WAYS)
def test_of_two_gateways_and_two_controllers_every_entry_counts(way: str) -> None:
    accepted = ("True", "Accepted", "fine")
    entries = [
        entry("a", ENVOY, Accepted=accepted),
        entry("b", ENVOY, Accepted=accepted),
        entry("a", Accepted=accepted, Programmed=FINE),
        entry("b", Accepted=accepted, Programmed=OVERRIDDEN),
    ]
    copy = copy_of("a", "b")
    for order in itertools.permutations(entries):
        found = told(copy, *order, way=way)
        assert found["Programmed"][:2] == ("False", "Overridden")
        assert found["Accepted"][0] == "True"


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("worst", [0, 1])
def test_two_sections_of_one_gateway_are_two_ancestors(way: str, worst: int) -> None:
    entries = [
        entry("a", ref={"sectionName": s}, Programmed=OVERRIDDEN if n == worst else FINE)
        for n, s in enumerate(["http", "https"])
    ]
    copy = copy_of("a", "a", sections=["http", "https"])
    assert told(copy, *entries, way=way)["Programmed"][:2] == ("False", "Overridden")


@pytest.mark.parametrize("way", WAYS)
def test_different_reasons_are_told_by_gateway(way: str) -> None:
    refused = ("False", "Invalid", "x")
    found = told(
        copy_of("a", "b"),
        entry("a", Programmed=OVERRIDDEN),
        entry("b", Programmed=refused),
        way=way,
    )
    assert found["Programmed"] == (
        "False",
        "Various",
        f"east: Various: Gateway a: Overridden: {OVERRIDDEN[2]}, Gateway b: Invalid: x",
    )


@pytest.mark.parametrize("way", WAYS)
def test_a_gateway_that_no_entry_is_of_is_unknown(way: str) -> None:
    found = told(copy_of("a", "b"), entry("a", Programmed=FINE), way=way)
    silence = "Gateway b: nobody says anything of Programmed there"
    assert found["Programmed"] == ("Unknown", "Pending", f"east: Pending: {silence}")


@pytest.mark.parametrize("way", WAYS)
def test_an_entry_of_an_earlier_generation_is_unknown(way: str) -> None:
    entries = [entry("a", Programmed=FINE, generation=2), entry("b", Programmed=FINE)]
    found = told(copy_of("a", "b"), *entries, way=way, generation=2)
    assert found["Programmed"][:2] == ("Unknown", "Pending")
    assert "Gateway b: what it says is of an earlier generation" in found["Programmed"][2]
    late = [entry("a", Programmed=OVERRIDDEN), entry("b", Programmed=FINE)]
    assert told(copy_of("a", "b"), *late, way=way, generation=2)["Programmed"][0] == "Unknown"


@pytest.mark.parametrize("way", WAYS)
def test_conditions_of_the_copy_itself_and_of_its_ancestors_both_count(way: str) -> None:
    copy = copy_of("a")
    own = {"type": "Programmed", "status": "True", "reason": "Programmed", "message": "fine"}
    status = {"conditions": [own], "ancestors": [entry("a", Programmed=OVERRIDDEN)]}
    one = placed(copy, status, way)
    found = aggregate(Desired({"east": copy}, concerned=True), {"east": one})
    assert [one.status for one in found if one.type == "Programmed"] == ["False"]


@pytest.mark.parametrize(
    "broken",
    [
        {},
        {"conditions": "x"},
        {"conditions": [{"type": "Programmed", "status": "Maybe"}, {"status": 1}]},
        {"ancestorRef": 1, "controllerName": ENVOY, "conditions": [1, {"type": "Programmed"}]},
        {"ancestorRef": {"name": "b"}, "controllerName": 1, "conditions": [{}]},
    ],
)
def test_an_entry_that_cannot_be_read_hides_no_other(broken: Entry) -> None:
    entries = [broken, entry("a", Programmed=OVERRIDDEN)]
    found = told(copy_of("a", "b"), *entries, way="direct")
    assert found["Programmed"][:2] == ("False", "Overridden")


@pytest.mark.parametrize("status", [{}, {"ancestors": 1}, {"ancestors": [1, None]}, 1])
def test_a_status_without_readable_entries_says_nothing(status: Any) -> None:
    copy = copy_of("a")
    one = copy_in({**copy.body, "status": status}, "east", copy.feedback)
    assert one is not None
    assert one.feedback is not None
    assert one.feedback.reports == ()


STATUSES = st.sampled_from([FINE, OVERRIDDEN, ("Unknown", "Pending", "not yet")])


@given(st.lists(STATUSES, min_size=1, max_size=5), st.sampled_from(WAYS), st.randoms())
def test_the_worst_of_all_gateways_counts_in_any_order(
    said: list[tuple[str, str, str]], way: str, random: Any
) -> None:
    names = [f"g{n}" for n in range(len(said))]
    entries = [entry(name, Programmed=one) for name, one in zip(names, said, strict=True)]
    copy = copy_of(*names)
    found = told(copy, *entries, way=way)["Programmed"]
    rank = ["False", "Unknown", "True"]
    assert found[0] == min((one[0] for one in said), key=rank.index)
    random.shuffle(entries)
    assert told(copy, *entries, way=way)["Programmed"][:2] == found[:2]


# Statuses that a released controller writes: golden files of Envoy Gateway, 18 Gateways among them.

RELEASED = ThirdParty(
    name="envoy-gateway",
    module="github.com/envoyproxy/gateway",
    version="v1.9.1",
    sum="h1:vAVp6/AlBXJ1aOhp1mxL7fNEzVEfjADUguUhm2wzxQY=",
    files=(
        "internal/gatewayapi/testdata/clienttrafficpolicy-preserve-case-multiple-targets.out.yaml",
        "internal/gatewayapi/testdata/clienttrafficpolicy-status-conditions-truncated.out.yaml",
    ),
)


def golden() -> list[Mapping[str, Any]]:
    """Return the policies of the golden files that refer to several Gateways and nothing else."""
    folder = download(RELEASED)
    documents = [msgspec.yaml.decode((folder / file).read_bytes()) for file in RELEASED.files]
    found = [one for document in documents for one in document["clientTrafficPolicies"]]
    return [one for one in found if len(one["status"]["ancestors"]) > 1]


def test_entries_as_a_released_controller_writes_them_reach_the_hub_whichever_is_the_worst() -> (
    None
):
    policies = golden()
    assert sorted(len(one["spec"]["targetRefs"]) for one in policies) == [2, 18, 18]
    for one in policies:
        copy, entries = copy_with(one["spec"]["targetRefs"]), one["status"]["ancestors"]
        accepted = [_status(entry) for entry in entries]
        for way in WAYS:
            found = told(copy, *entries, way=way, generation=0)["Accepted"]
            assert found[0] == ("False" if "False" in accepted else "True")
        if "False" not in accepted:
            _each_is_the_worst(copy, entries)


def _each_is_the_worst(copy: Copy, entries: Sequence[Entry]) -> None:
    for worst in range(0, len(entries), 7):
        name = entries[worst]["ancestorRef"]["name"]
        for way in WAYS:
            found = told(
                copy,
                *map(_refused, entries, [n == worst for n in range(len(entries))]),
                way=way,
                generation=0,
            )
            assert found["Accepted"] == ("False", "Invalid", f"east: Invalid: Gateway {name}: no")


def _status(entry: Entry) -> str:
    return next(str(c["status"]) for c in entry["conditions"] if c["type"] == "Accepted")


def _refused(entry: Entry, is_worst: bool) -> Entry:  # noqa: FBT001 - given by map
    refused = {"type": "Accepted", "status": "False", "reason": "Invalid", "message": "no"}
    if not is_worst:
        return entry
    others = [one for one in entry["conditions"] if one["type"] != "Accepted"]
    return {**entry, "conditions": [*others, refused]}


# The fields.


def test_each_gateway_of_a_copy_is_asked_for_by_its_name_and_no_other() -> None:
    paths = [one.path for one in copy_of("b", "a").feedback]
    assert any('ancestors[?(@.ancestorRef.name=="a")]' in one for one in paths)
    assert any('ancestors[?(@.ancestorRef.name=="b")]' in one for one in paths)
    assert not any("sectionName" in one for one in paths)
    names = [one.name for one in copy_of("b", "a").feedback]
    assert len(set(names)) == len(names)
    assert all(is_taken(one) for one in names)


def test_a_name_that_would_end_a_filter_is_in_no_path() -> None:
    refs = [{"name": "a"}, {"name": 'b"||1', "sectionName": "x')"}]
    paths = "".join(one.path for one in ancestor_fields({"spec": {"targetRefs": refs}}))
    assert "||" not in paths
    assert "x')" not in paths


@pytest.mark.parametrize("name", ["ancestorAcceptedStatus", "name0AncestorFalseType", "generation"])
def test_a_field_of_the_parameters_may_not_have_such_a_name(name: str) -> None:
    world = World()
    world.listen(AUTH, statusFields=[{"name": name, "path": ".status.x"}])
    found = world.state.parameters["multi"]
    assert not isinstance(found, Invalid)
    assert f'"{name}" is missing, too long or taken' in found.problems[0]


@pytest.mark.parametrize("name", ["ancestors", "ancestorCount", "name0Ancestor", "names"])
def test_any_other_name_is_free(name: str) -> None:
    assert not is_taken(name)
