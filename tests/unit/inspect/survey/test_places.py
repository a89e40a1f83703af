from __future__ import annotations

import json
from pathlib import Path

import pytest

from kube_sync.config import Replicate, Resource
from kube_sync.errors import Misconfigured
from kube_sync.inspect.survey.exported import read_objects
from kube_sync.inspect.survey.places import discover_places, guess_places
from tests.fakes.apiserver import fake_apiserver
from tests.fakes.clients import REPLICASETS, kube_of

THINGS = Resource("example.com", "v1", "things")
NODES = Resource("", "v1", "nodes")
SETS = Resource("apps", "v1", "replicasets", "sets")
REPLICATE = Replicate(root="k", resources=(THINGS, NODES, SETS))


def test_kinds_of_kubernetes_are_known_and_others_lie_in_namespaces() -> None:
    found = guess_places(REPLICATE, ())
    assert {name: place.namespaced for name, place in found.items()} == {
        "things": True,
        "nodes": False,
        "sets": True,
    }
    assert found["sets"].path == ("k", "sets")


def test_resource_that_is_said_to_lie_in_no_namespace_does_not() -> None:
    assert not guess_places(REPLICATE, ["things"])["things"].namespaced


def test_name_that_is_not_replicated_is_a_mistake() -> None:
    with pytest.raises(Misconfigured, match='--cluster-scoped: "thing" is not in'):
        guess_places(REPLICATE, ["thing"])


def test_exported_objects_know_better_than_a_guess(tmp_path: Path) -> None:
    thing = {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "a"}}
    (tmp_path / "o").write_text(json.dumps([thing]))
    found = guess_places(REPLICATE, (), read_objects(str(tmp_path / "o")))
    assert (found["things"].namespaced, found["sets"].namespaced) == (False, True)


async def test_discovery_knows_best_and_says_what_it_does_not_know(tmp_path: Path) -> None:
    async with fake_apiserver() as api, kube_of(api, tmp_path) as client:
        api.define(REPLICASETS, "ReplicaSet", namespaced=False)
        found, unknown = await discover_places(client, REPLICATE)
    assert not found["sets"].namespaced
    assert unknown == {"things", "nodes"}
