"""A real OPA draws the same objects as we do, and decides each by the set of its side."""

from __future__ import annotations

from typing import Any

import pytest

from kube_sync.objects import ObjectKey
from kube_sync.opa.entry import ENTRY_MODULE, ENTRY_PATH, Entered, entered, entry_module
from kube_sync.opa.scratch import ScratchOpa
from kube_sync.opa.sides import Side, side_of
from tools.servers.binaries import ensure_binary

BINARY = str(ensure_binary("opa"))
PATH = "io/k8s/federation/admission"
IN_FORCE = 'package io.k8s.federation.admission\n\nsays := "now" if input.metadata.name != "mute"\n'
LANE = (
    "package kube_sync_stage.canary.io.k8s.federation.admission\n\n"
    'says := "then" if input.metadata.name\n'
)
SIDES = (
    side_of("policies/placement", "0.1", None),
    side_of('policies/"odd"', "0.5", "shop-2,shop-5"),
    side_of("policies/placement", None, "shop-1"),
    side_of("policies/placement", "1", None),
)
KEYS = [ObjectKey(f"shop-{n % 7}" if n % 11 else "", f"w{n}.é" if n % 13 == 0 else f"w{n}")
        for n in range(500)]  # fmt: skip


def metadata(key: ObjectKey) -> dict[str, str]:
    return {"name": key.name} | ({"namespace": key.namespace} if key.namespace else {})


async def asked(side: Side, *objects: Any) -> list[Any]:
    """Return what the entry says of each of these, by one OPA."""
    modules = {ENTRY_MODULE: entry_module(PATH, side), "now": IN_FORCE, "then": LANE}
    reference = "data." + ENTRY_PATH.replace("/", ".")
    query = f"[answer | some found in data.objects; answer := {reference} with input as found]"
    answers = await ScratchOpa(BINARY).evaluated(modules, {"objects": objects}, {}, query)
    assert isinstance(answers, list)
    return answers


@pytest.mark.parametrize("side", SIDES, ids=lambda side: f"{side.stands_for}-{side.share}")
async def test_opa_draws_the_objects_that_we_draw(side: Side) -> None:
    answers = await asked(side, *({"metadata": metadata(key)} for key in KEYS))
    drawn = [answer["side"] == "canary" for answer in answers]
    assert drawn == [side.has(key) for key in KEYS]
    assert {answer["decision"]["says"] for answer in answers if answer["side"] == "canary"} <= {
        "then"
    }
    assert {answer["decision"]["says"] for answer in answers if answer["side"] != "canary"} <= {
        "now"
    }


async def test_what_is_undecided_is_told_from_a_canary_that_is_not_there() -> None:
    """Whoever asks takes the way of old where there is no answer, and only there."""
    none, shares = Side("p/q", "0"), Side("p/q", "1")
    nameless = {"metadata": {"generateName": "x-", "namespace": "shop"}}
    (unnamed,) = await asked(shares, nameless)
    assert unnamed["side"] == "in force"
    assert (await asked(none, {}))[0]["side"] == "in force"


def test_answer_of_something_else_is_none() -> None:
    assert entered(b'{"side": "canary"}') == Entered("canary")
    assert entered(b'{"allow": true}') is None
    assert entered(b"[]") is None
