from __future__ import annotations

import json
from typing import Any

import pytest

from kube_sync.kube.applications import Application, parse_application
from kube_sync.kube.collection import Item, ResourceVersion
from kube_sync.objects import ObjectKey

LABEL = "example.com/workload"


def _item(**changes: Any) -> Item:
    document: dict[str, Any] = {
        "metadata": {
            "labels": {LABEL: "web"},
            "ownerReferences": [
                {"kind": "Job", "name": "x"},
                {"kind": "ApplicationSet", "name": "set"},
            ],
        },
        "spec": {"destination": {"name": "eu", "namespace": "shop"}},
        "status": {"health": {"status": "Healthy"}},
        **changes,
    }
    return Item(
        ObjectKey("argocd", "web-eu"), "u", ResourceVersion("1"), json.dumps(document).encode()
    )


def test_the_workload_is_the_application_set_that_owns_it() -> None:
    workloads = frozenset([ObjectKey("argocd", "set")])
    assert parse_application(_item(), None) == Application(workloads, "eu", healthy=True)


def test_a_label_names_a_workload_in_either_namespace() -> None:
    found = parse_application(_item(), LABEL)
    assert found is not None
    assert found.workloads == {ObjectKey("argocd", "web"), ObjectKey("shop", "web")}


@pytest.mark.parametrize(
    ("destination", "cluster", "server"),
    [
        ({"server": "https://eu.example.com/"}, "", "https://eu.example.com"),
        ({"name": "eu", "server": ""}, "eu", ""),
        ({}, "", ""),
    ],
)
def test_a_destination_has_a_name_or_a_server(
    destination: dict[str, str], cluster: str, server: str
) -> None:
    found = parse_application(_item(spec={"destination": destination}), None)
    assert found is not None
    assert (found.cluster, found.server) == (cluster, server)


@pytest.mark.parametrize(
    "status", [{}, {"health": {}}, {"health": {"status": "Degraded"}}, {"sync": {}}]
)
def test_all_but_healthy_is_not_healthy(status: Any) -> None:
    found = parse_application(_item(status=status), None)
    assert found is not None
    assert not found.healthy


@pytest.mark.parametrize(
    ("label", "changes"),
    [
        (None, {"metadata": {}}),
        (None, {"metadata": {"ownerReferences": [{"kind": "Job", "name": "x"}]}}),
        (LABEL, {"metadata": {"labels": {LABEL: ""}}}),
        (LABEL, {"metadata": {}}),
        (None, {"spec": 7}),
    ],
)
def test_what_is_of_no_workload_is_none(label: str | None, changes: dict[str, Any]) -> None:
    assert parse_application(_item(**changes), label) is None
