from __future__ import annotations

import pytest

from kube_sync.kube.policymaps import PolicyMap
from kube_sync.objects import ObjectKey
from kube_sync.policies.staging.neighbours import neighbours, together

IN_FORCE = {
    ObjectKey("p", "place"): {"p/place/a.rego": "# package lib\n\npackage main # here\nx := 1"},
    ObjectKey("p", "more.PlacementPolicy"): {"b": "package main\n", "c": "package other"},
    ObjectKey("p", "lib"): {"p/lib/a.rego": "package lib"},
}


def _staged(source: str, stands_for: str) -> PolicyMap:
    key, place = ObjectKey("p", "new"), ObjectKey("p", stands_for)
    return PolicyMap(key, "1", {"p/new/a.rego": source}, None, "2", "shadow", place)


@pytest.mark.parametrize(
    ("source", "stands_for", "names"),
    [
        ("package main", "new", ["PlacementPolicy p/more", "p/place"]),
        ("package main", "gone", ["PlacementPolicy p/more", "p/place"]),
        ("package main", "place", []),
        ("\n# words\npackage lib;x := 1", "new", ["p/lib"]),
        ("package elsewhere", "new", []),
        ("no package", "new", []),
    ],
)
def test_policy_that_stands_for_none_in_force_decides_with_those_of_its_package(
    source: str, stands_for: str, names: list[str]
) -> None:
    assert neighbours(_staged(source, stands_for), IN_FORCE) == names


def test_what_is_said_names_the_policies_and_the_annotation() -> None:
    said = together(["p/place", "p/more"])
    assert said.startswith("it and p/place, p/more decide together once it is active: ")
    assert "kube-sync.io/stands-for" in said
    assert together([]) == ""
