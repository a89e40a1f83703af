from __future__ import annotations

import pytest

from kube_sync.errors import Misconfigured
from kube_sync.guard.labelselectors import parse_labels
from kube_sync.guard.selectors import matches

LABELS = {"app": "web", "tier": "2", "kube-sync.io/stage": "canary", "empty": ""}


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("app=web", True),
        ("app==web", True),
        ("app = web", True),
        ("app!=web", False),
        ("app=api", False),
        ("other!=web", True),
        ("app in (api,web)", True),
        ("app in ( api , web )", True),
        ("app notin (api)", True),
        ("app notin (web)", False),
        ("app", True),
        ("other", False),
        ("!app", False),
        ("! other", True),
        ("tier>1", True),
        ("tier<2", False),
        ("app>1", False),
        ("empty=", True),
        ("app=", False),
        ("kube-sync.io/stage=canary,app in (web),!other", True),
        ("kube-sync.io/stage=canary,app=api", False),
    ],
)
def test_selector_means_what_kubectl_means_by_it(text: str, holds: bool) -> None:  # noqa: FBT001
    assert matches(parse_labels(text), LABELS) is holds


@pytest.mark.parametrize(
    "text",
    [
        "",
        ",",
        "a,",
        ",a",
        "a,,b",
        "a b",
        "a in x",
        "a in (x",
        "a=b c",
        "a=b=c",
        "!",
        "-a",
        "é",
        "a/",
    ],
)
def test_what_is_no_selector_is_refused_with_what_is_one(text: str) -> None:
    with pytest.raises(Misconfigured, match=r"^--selector: .*not a label selector, as a=b, a!=b"):
        parse_labels(text)


def test_number_is_compared_with_a_number() -> None:
    with pytest.raises(Misconfigured, match="tier> takes an integer"):
        parse_labels("tier>x")
