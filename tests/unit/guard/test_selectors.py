"""The cases of Kubernetes federation's own test of cluster selectors, and what it refuses."""

from __future__ import annotations

import pytest

from kube_sync.guard.selectors import matches, parse_selector

# kubernetes-retired/federation, TestSendToCluster
EUROPE = '[{"key": "location", "operator": "in", "values": ["europe"]}]'
ELSEWHERE = '[{"key": "location", "operator": "!=", "values": ["usa"]}]'


def _both(one: str, other: str) -> str:
    return f"{one[:-1]}, {other[1:]}"


LABELS = {"location": "europe", "environment": "prod", "version": "15"}


@pytest.mark.parametrize(
    ("selector", "selected"),
    [
        (EUROPE, True),
        (
            _both(
                EUROPE,
                '[{"key": "environment", "operator": "==", "values": ["prod"]}]',
            ),
            True,
        ),
        (
            _both(
                EUROPE,
                '[{"key": "environment", "operator": "==", "values": ["test"]}]',
            ),
            False,
        ),
        (
            _both(
                '[{"key": "location", "operator": "!=", "values": ["usa"]}]',
                '[{"key": "environment", "operator": "in", "values": ["prod"]}]',
            ),
            True,
        ),
        ('[{"key": "version", "operator": ">", "values": ["14"]}]', True),
        ('[{"key": "version", "operator": ">", "values": ["15"]}]', False),
        ('[{"key": "version", "operator": "lt", "values": ["+16"]}]', True),
        ('[{"key": "location", "operator": "Gt", "values": ["-1"]}]', False),
        ('[{"key": "zone", "operator": "NotIn", "values": ["a"]}]', True),
        ('[{"key": "zone", "operator": "exists"}]', False),
        ('[{"key": "zone", "operator": "!", "values": []}]', True),
        ("[]", True),
    ],
)
def test_selector_chooses_the_clusters_that_federation_chose(
    selector: str,
    selected: bool,  # noqa: FBT001 - a column
) -> None:
    assert matches(parse_selector(selector), LABELS) is selected


@pytest.mark.parametrize(
    ("selector", "why"),
    [
        ('[{"not able to parse",}]', "malformed"),
        ('[{"key": "pci", "operator": "in", "values": "[true]"}]', "Expected `array | null`"),
        ('[{"key": "pci", "operator": "inn", "values": ["a"]}]', "there is no operator 'inn'"),
        ('[{"key": "pci", "operator": "In"}]', "In needs a value"),
        ('[{"key": "pci", "operator": "=", "values": ["a", "b"]}]', "= takes one value"),
        ('[{"key": "pci", "operator": "Exists", "values": ["a"]}]', "Exists takes no values"),
        ('[{"key": "pci", "operator": "Gt", "values": ["new"]}]', "Gt takes an integer"),
        ('[{"key": "", "operator": "Exists"}]', "empty key"),
        ('{"key": "pci"}', "Expected `array`"),
        ("[" * 100_000, "Expected `object`"),
    ],
)
def test_selector_that_federation_refuses_is_refused_with_the_reason(
    selector: str, why: str
) -> None:
    with pytest.raises(ValueError, match=r".") as error:
        parse_selector(selector)
    assert why in str(error.value)
