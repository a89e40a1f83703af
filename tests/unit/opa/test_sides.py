"""Which objects a canary has, by their names alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_sync.objects import ObjectKey
from kube_sync.opa.sides import Side, below, side_of

KEYS = [ObjectKey(f"shop-{n % 7}", f"w{n}") for n in range(2_000)]
SHARES = st.integers(0, 10**12).map(lambda n: "1" if n == 10**12 else f"0.{n:012}")


def on(share: str, stands_for: str = "policies/placement") -> set[ObjectKey]:
    side = side_of(stands_for, share, None)
    return {key for key in KEYS if side.has(key)}


def test_share_is_about_that_share_of_the_objects() -> None:
    assert 150 < len(on("0.1")) < 250
    assert on("0") == set()
    assert on("1") == on("1.0") == set(KEYS)


@given(SHARES, SHARES, st.sampled_from(KEYS))
def test_whoever_is_in_is_in_at_each_larger_share(one: str, other: str, key: ObjectKey) -> None:
    small, large = sorted((one, other), key=float)
    assert Side("p/q", small).has(key) <= Side("p/q", large).has(key)


def test_side_is_the_same_in_every_process() -> None:
    """These are written down: whatever makes them others moves objects of people."""
    side = Side("policies/placement", "0.1")
    assert below("0.1") == "199999999999"
    assert [key.name for key in KEYS[:40] if side.has(key)] == SAME


SAME = ["w9", "w25", "w29"]


def test_other_policy_draws_other_objects() -> None:
    assert on("0.1") != on("0.1", "policies/other")


def test_named_namespaces_are_in_as_a_whole_beside_the_share() -> None:
    side = side_of("p/q", "0.1", " shop-1, shop-3,")
    assert side.namespaces == {"shop-1", "shop-3"}
    named = {key for key in KEYS if key.namespace in ("shop-1", "shop-3")}
    share = {key for key in KEYS if side_of("p/q", "0.1", None).has(key)}
    assert {key for key in KEYS if side.has(key)} == named | share
    alone = side_of("p/q", None, "shop-1")
    assert {key.namespace for key in KEYS if alone.has(key)} == {"shop-1"}


def test_namespaces_are_looked_up_and_not_gone_through() -> None:
    side = side_of("p/q", None, ",".join(f"n{n}" for n in range(250)))
    assert isinstance(side.namespaces, frozenset)
    assert side.has(ObjectKey("n249", "w"))


def test_object_without_a_name_is_in_no_share() -> None:
    """The API server makes its name after it was asked about: then it is drawn."""
    assert not side_of("p/q", "1", None).has(ObjectKey("shop", ""))


@pytest.mark.parametrize(
    ("share", "namespaces", "why"),
    [
        (None, None, "neither"),
        (None, " , ", "neither"),
        ("", None, "no share"),
        ("1.1", None, "no share"),
        ("-0.1", None, "no share"),
        ("10%", None, "no share"),
        ("nan", None, "no share"),
        ("1e-1", None, "no share"),
        ("0_1", None, "no share"),
        ("\u0660.\u0661", None, "no share"),
        ("0.1", "Shop", "no name of a namespace"),
        (None, ",".join(f"n{n}" for n in range(251)), "251 namespaces are named, and 250 may be"),
        (None, "a b", "no name of a namespace"),
    ],
)
def test_terms_that_cannot_be_read_are_none(
    share: str | None, namespaces: str | None, why: str
) -> None:
    with pytest.raises(ValueError, match=why):
        side_of("p/q", share, namespaces)
