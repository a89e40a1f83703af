"""One path is one scalar, read as the agents of spokes read it."""

from __future__ import annotations

from typing import Any

import pytest

from kube_sync.policysync.copies import FeedbackField
from kube_sync.policysync.feedback_fields import FIELDS, NAMES, field_name, fields_of, read, steps

BODY: dict[str, Any] = {
    "metadata": {"annotations": {"kube-sync.io/digest": "d1"}, "generation": 2},
    "status": {
        "number": 3,
        "no": False,
        "ratio": 0.5,
        "list": ["a", "b"],
        "null": None,
        "conditions": [
            "no condition",
            {"type": "Accepted", "status": "True", "observedGeneration": 2},
            {"type": "Accepted", "status": "False"},
        ],
    },
}


def value(path: str) -> Any:
    return read([FeedbackField("x", path)], BODY).values.get("x", "nothing")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (".status.number", 3),
        (".status.no", False),
        (".status.list[1]", "b"),
        (r".metadata.annotations.kube-sync\.io/digest", "d1"),
        ('.status.conditions[?(@.type=="Accepted")].status', "True"),
        (".status.conditions[?(@.type=='Accepted')].observedGeneration", 2),
    ],
)
def test_a_scalar_is_read_with_its_type(path: str, expected: object) -> None:
    found = value(path)
    assert (type(found), found) == (type(expected), expected)


@pytest.mark.parametrize(
    "path",
    [
        ".status.none",
        ".status.null",
        ".status.number.more",
        ".status.list.field",
        ".status.none[0]",
        '.status.list[?(@.type=="x")].status',
        '.status.conditions[?(@.type=="None")].status',
    ],
)
def test_what_is_not_there_is_no_value_and_no_trouble(path: str) -> None:
    found = read([FeedbackField("x", path)], BODY)
    assert (dict(found.values), found.problem) == ({}, "")


@pytest.mark.parametrize(
    ("path", "why"),
    [
        (".status.list", "is no text, whole number or boolean"),
        (".status", "is no text, whole number or boolean"),
        (".status.ratio", "is no text, whole number or boolean"),
        (".status.list[2]", "leads beyond the end of a list"),
        (".metadata[0]", "leads through what is no list"),
        ('.status.number[?(@.type=="x")]', "leads through what is no list"),
    ],
)
def test_what_is_no_scalar_is_trouble_while_other_paths_report(path: str, why: str) -> None:
    fields = [FeedbackField("x", path), FeedbackField("y", ".status.number")]
    found = read(fields, BODY)
    assert found.values == {"y": 3}
    assert found.problem == f"x: {path} {why}"


@pytest.mark.parametrize(
    "path",
    [
        "",
        "status",
        ".",
        "[0]",
        ".a..b",
        ".a[*]",
        ".a[-1]",
        ".a['b']",
        ".a.*",
        "{.a}",
        ".a[?(@.b>1)]",
        ".a b",
        ".a\n",
        ".a[?(@.b==\"c')]",
        "." + "a" * 600,
    ],
)
def test_a_path_that_could_lead_to_many_or_is_read_otherwise_elsewhere_is_refused(
    path: str,
) -> None:
    with pytest.raises(ValueError, match="one scalar"):
        steps(path)


def test_what_is_read_of_every_copy_are_scalars_of_different_names() -> None:
    assert len(NAMES) == len({one.path for one in FIELDS}) == len(FIELDS)
    assert set(fields_of(conditions=False, ancestors=True)) < set(FIELDS)
    assert all(steps(field.path) for field in FIELDS)
    paths = {field.name: field.path for field in FIELDS}
    assert (
        paths[field_name("Enforced", "reason")]
        == '.status.conditions[?(@.type=="Enforced")].reason'
    )
    assert field_name("Enforced", "reason") == "enforcedReason"
    values = read(FIELDS, BODY).values
    assert values == {
        "digest": "d1",
        "generation": 2,
        "acceptedStatus": "True",
        "acceptedObservedGeneration": 2,
    }
