from __future__ import annotations

import pytest

from kube_sync.policies.vocabulary import (
    GROUPS,
    KEYS,
    KINDS,
    METADATA,
    is_slip_of,
    nearest,
    top_field,
)


@pytest.mark.parametrize(
    ("name", "names", "meant"),
    [
        ("lables", METADATA, "labels"),
        ("Labels", METADATA, "labels"),
        ("anotatons", METADATA, "annotations"),
        ("labels", METADATA, None),
        ("owner", METADATA, None),
        ("networking.istio.io", GROUPS, None),
        ("Route", KINDS.values(), None),
        ("GatewayClass", KINDS.values(), None),
        ("CronTab", KINDS.values(), None),
        ("beta.kubernetes.io/os", KEYS, None),
        ("a", {"b"}, None),
        ("", {"a"}, None),
    ],
)
def test_name_is_near_one_from_which_it_differs_by_a_letter_or_two(
    name: str, names: frozenset[str], meant: str | None
) -> None:
    assert nearest(name, names) == meant


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("knd", "kind"),
        ("requst", None),
        ("lables", None),
        ("labels", "metadata.labels"),
        ("data", None),
        ("name", None),
        ("attributes", None),
        ("method", None),
        ("subject", None),
    ],
)
def test_field_at_the_top_of_an_input(name: str, meant: str | None) -> None:
    assert top_field(name) == meant


@pytest.mark.parametrize(
    ("key", "other", "slip"),
    [
        ("example.com/pci-compliance", "example.com/pci-complaince", True),
        ("example.com/compliance", "example.com/complance", True),
        ("example.com/level", "example.com/levle", False),  # too short to be certain
        ("example.com/request-memory", "example.com/requests-memory", False),
        ("example.com/instance-1", "example.com/instance-2", False),
        ("example.com/failure-zone-a", "example.com/failure-zone-b", False),
        ("example.com/min-replicas", "example.com/max-replicas", False),
    ],
)
def test_keys_that_may_both_be_meant_are_no_slips(key: str, other: str, *, slip: bool) -> None:
    assert is_slip_of(key, other) == is_slip_of(other, key) == slip
