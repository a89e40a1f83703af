"""Decisions on recorded inputs over recorded data, by an OPA that ends with the question.

Keeps true: one OPA for a set of policies, which is given one state of the data after another; each
input is decided on once in each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from kube_sync.decisions.evaluator import Outcome
from kube_sync.decisions.reading import ReadDecision
from kube_sync.errors import Undecided
from kube_sync.opa.client import OpaClient
from kube_sync.opa.scratch import Modules, ScratchOpa

_MODULE: Final = "kube_sync/replay"
_DECISIONS: Final = "kube_sync/replay/decisions"
_SLICE = 100  # inputs in one query


@dataclass(frozen=True, slots=True)
class Question:
    """Inputs by their digests, and the data, by collection, to decide on them over."""

    collections: Mapping[str, bytes]
    inputs: Mapping[str, bytes]


async def decided(
    scratch: ScratchOpa,
    modules: Modules,
    root: str,
    path: str,
    questions: Sequence[Question],
    read: ReadDecision,
) -> list[dict[str, Outcome]]:
    """Return what policies say at `path` of each input of each question, over data below `root`.

    They do compile; `read` reads what they say. Raises SyncError.
    """
    whole = {**modules, _MODULE: replay_module(path)}
    found = []
    async with scratch.serving(whole, b"{}") as opa:
        for question in questions:
            data = {name: msgspec.Raw(body) for name, body in question.collections.items()}
            await opa.put_data((root,), msgspec.json.encode(data))
            found.append(await _answers(opa, question.inputs, read))
    return found


def replay_module(path: str) -> str:
    """Return the Rego module that evaluates `path` for each of `input.inputs`."""
    decision = "data" + "".join(
        f"[{msgspec.json.encode(part).decode()}]" for part in path.split("/")
    )
    return f"""package kube_sync.replay

decisions[name] := decision if {{
	some name, asked in input.inputs
	decision := {decision} with input as asked
}}
"""


async def _answers(
    opa: OpaClient, inputs: Mapping[str, bytes], read: ReadDecision
) -> dict[str, Outcome]:
    found: dict[str, Outcome] = {}
    names = [*inputs]
    for start in range(0, len(names), _SLICE):
        part = {name: inputs[name] for name in names[start : start + _SLICE]}
        found |= await _slice(opa, part, read)
    return found


async def _slice(
    opa: OpaClient, inputs: Mapping[str, bytes], read: ReadDecision
) -> dict[str, Outcome]:
    asked = {name: msgspec.Raw(body) for name, body in inputs.items()}
    try:
        answer = await opa.query(_DECISIONS, msgspec.json.encode({"input": {"inputs": asked}}))
    except Undecided as error:
        if len(inputs) == 1:
            return dict.fromkeys(inputs, Outcome("", failure=str(error)))
        # One that fails fails the whole query: find out which.
        found: dict[str, Outcome] = {}
        for name, body in inputs.items():
            found |= await _slice(opa, {name: body}, read)
        return found
    answers = msgspec.json.decode(answer or b"{}", type=dict[str, msgspec.Raw])
    return {name: _outcome(answers.get(name), read) for name in inputs}


def _outcome(answer: msgspec.Raw | None, read: ReadDecision) -> Outcome:
    if answer is None:
        return Outcome("")
    try:
        decision = read(bytes(answer))
    except Undecided as error:
        return Outcome("", failure=str(error))
    # As it is recorded: they are for whoever writes an object.
    return Outcome("", msgspec.structs.replace(decision, warnings=()))
