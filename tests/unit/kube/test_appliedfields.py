from __future__ import annotations

from typing import Any

import pytest

from kube_sync.errors import Terminal
from kube_sync.kube.appliedfields import applied_status

VERSION = "kueue.x-k8s.io/v1beta1"
STATUS = {
    "admission": {"clusterQueue": "q", "podSetAssignments": [{"name": "main", "count": 1}]},
    "conditions": [
        {"type": "QuotaReserved", "status": "True", "reason": "r"},
        {"type": "PodsReady", "status": "False", "reason": "other"},
    ],
    "numbers": [1, 2, 3],
    "nominatedClusterNames": ["a"],
    "theirs": "x",
}


def document(fields: Any, **entry: str) -> dict[str, Any]:
    applied = {
        "manager": "kueue-admission",
        "operation": "Apply",
        "subresource": "status",
        "apiVersion": VERSION,
        "fieldsV1": {"f:status": fields},
        **entry,
    }
    other = {**applied, "manager": "other", "fieldsV1": {"f:status": {"f:theirs": {}}}}
    return {"metadata": {"managedFields": [other, applied]}, "status": STATUS}


def extracted(fields: Any, **entry: str) -> dict[str, Any]:
    return applied_status(document(fields, **entry), "kueue-admission", VERSION)


def test_exactly_what_the_manager_applied_is_extracted() -> None:
    condition: dict[str, Any] = {".": {}, "f:type": {}, "f:status": {}}
    fields = {
        "f:admission": {
            "f:clusterQueue": {},
            "f:podSetAssignments": {'k:{"name":"main"}': {".": {}, "f:name": {}, "f:count": {}}},
        },
        "f:conditions": {'k:{"type":"QuotaReserved"}': condition},
        "f:numbers": {"v:2": {}},
        "f:nominatedClusterNames": {},
    }
    assert extracted(fields) == {
        "admission": STATUS["admission"],
        "conditions": [{"type": "QuotaReserved", "status": "True"}],
        "numbers": [2],
        "nominatedClusterNames": ["a"],
    }


def test_a_container_that_it_applied_empty_stays_empty() -> None:
    assert extracted({"f:conditions": {".": {}}, "f:admission": {".": {}}}) == {
        "conditions": [],
        "admission": {},
    }


def test_a_field_that_is_gone_is_not_made_up() -> None:
    gone: dict[str, Any] = {"f:gone": {}, "f:conditions": {'k:{"type":"Gone"}': {".": {}}}}
    assert extracted(gone) == {"conditions": []}


def test_a_manager_that_applied_nothing_has_nothing() -> None:
    assert extracted({"f:theirs": {}}, manager="another") == {}
    assert extracted({"f:theirs": {}}, operation="Update") == {}
    assert extracted({"f:theirs": {}}, subresource="") == {}
    assert applied_status({"metadata": {}}, "kueue-admission", VERSION) == {}


def test_another_version_is_not_applied_to() -> None:
    with pytest.raises(Terminal, match=r"writes kueue\.x-k8s\.io/v1beta2, and this is .*v1beta1"):
        extracted({"f:theirs": {}}, apiVersion="kueue.x-k8s.io/v1beta2")


@pytest.mark.parametrize("name", ["x:theirs", "i:0", "k:no JSON"])
def test_a_field_that_cannot_be_read_refuses(name: str) -> None:
    where = "conditions" if name[0] != "x" else "admission"
    with pytest.raises(Terminal, match="cannot be read"):
        extracted({f"f:{where}": {name: {}}})
