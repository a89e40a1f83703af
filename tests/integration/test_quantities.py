"""Quantities in Rego beside exact fractions, thousands in one request."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fakes.rego import RegoOpa, rego_opa
from tests.parts import examples
from tools.servers.running import Launcher

_SHAPE = re.compile(r"([+-]?)(\d*)(\.\d*)?([numkMGTPE]|[KMGTPE]i|[eE][+-]?\d+|)", re.ASCII)
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_CAP = 2**63 - 1
_MANY = 2000
_HIGHEST = 290  # exponent that is read; far below, only the rounding up is left


@pytest.fixture(scope="module")
def opa(launcher: Launcher, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RegoOpa]:
    with rego_opa(launcher, tmp_path_factory.mktemp("opa")) as opa:
        opa.put("policies/quantities", _BATCH)
        yield opa


_BATCH = """package quantities

answers := [object.get({"n": n | n := data.kube_sync.quantity.nano(q)}, "n", null) |
    some q in input
]
"""


def nano(text: str) -> int | None:
    """Return what Kubernetes makes of a quantity in units of 10^-9, None for what is none."""
    found = _SHAPE.fullmatch(text)
    if found is None or not text:
        return None
    sign, whole, fraction, suffix = (part or "" for part in found.groups())
    digits = whole + fraction.lstrip(".")
    if suffix in _BINARY:
        factor = Fraction(2 ** _BINARY[suffix])
    else:
        power = _DECIMAL[suffix] if suffix in _DECIMAL else int(suffix[1:])
        if (not digits and power < -9) or power > _HIGHEST:
            return None
        factor = Fraction(10) ** max(power, -_HIGHEST)
    amount = Fraction(f"{whole or 0}{fraction if fraction != '.' else ''}") * factor
    if suffix in _BINARY:
        amount = min(amount, Fraction(_CAP))
    units = math.ceil(amount * 10**9)
    return -units if sign == "-" else units


_numbers = st.from_regex(r"[+-]?[0-9]{0,25}(\.[0-9]{0,25})?", fullmatch=True, alphabet=None)
_suffixes = st.sampled_from([*_DECIMAL, *_BINARY]) | st.builds(
    lambda letter, sign, power: f"{letter}{sign}{power}",
    st.sampled_from("eE"),
    st.sampled_from(["", "+", "-"]),
    st.integers(0, 60),
)
_quantities = st.builds(lambda number, suffix: number + suffix, _numbers, _suffixes)
_texts = _quantities | st.text("0123456789.+-eEinumkKMGTP", max_size=8)


@settings(
    max_examples=examples(10),
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
        HealthCheck.large_base_example,
    ],
)
@given(seed=st.data())
def test_every_quantity_is_what_exact_fractions_say(opa: RegoOpa, seed: st.DataObject) -> None:
    texts = seed.draw(st.lists(_texts, min_size=200, max_size=300))
    answers = opa.ask("quantities.answers", texts)
    assert list(zip(texts, answers, strict=True)) == [(text, nano(text)) for text in texts]


def test_quantities_in_thousands_are_exact(opa: RegoOpa) -> None:
    """Every suffix with every kind of number, next to where 64 bits and floats end."""
    edges = [0, 1, 7, 999, 1024, 2**53 + 1, 2**63 - 1, 2**63, 2**64 + 1, 10**24 + 1]
    suffixes = [*_DECIMAL, *_BINARY, *(f"{e}{p}" for e in "eE" for p in range(-30, 31, 3))]
    shapes = ["{}", "-{}", "+{}", "{}.", ".{}", "0.{}", "{}.5", "00{}", "{}.000000000000001"]
    texts = [shape.format(edge) + end for edge in edges for end in suffixes for shape in shapes]
    assert len(texts) > _MANY
    answers = opa.ask("quantities.answers", texts)
    assert answers == [nano(text) for text in texts]


@pytest.mark.parametrize("value", [0, 1, -3, 0.5, 1e-3, 1e21, 12345678901234567890])
def test_number_is_what_its_text_says(opa: RegoOpa, value: Any) -> None:
    assert opa.ask("quantities.answers", [value]) == [nano(json.dumps(value))]
