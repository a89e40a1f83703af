from __future__ import annotations

import pytest

from kube_sync.errors import json_type


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (None, "null"),
        (True, "a boolean"),  # not a number, although Python counts with it
        ("1", "a string"),
        ([1], "an array"),
        ({"a": 1}, "an object"),
        (0, "a number"),
        (0.5, "a number"),
    ],
)
def test_the_type_of_json_is_named_as_in_json(value: object, said: str) -> None:
    assert json_type(value) == said
