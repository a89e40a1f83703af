"""Decide whether a staged policy may be promoted, and keep what is needed to revert. Pure.

Invariant: the promoted version is the one that was counted (by its digest), and no effect passes
its limit. The record written before a promotion restores exactly the former content.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec

from kube_sync.errors import NO_JSON
from kube_sync.kube.staging import CANARY, MAX_BREAKS, MAX_MOVES, NAMESPACES, SHADOW, SHARE
from kube_sync.objects import ObjectKey

_BREAKS = ("failed", "refused", "undecided", "nowhere")
UNHEALTHY: Final = "unhealthy"  # moved there by the canary, with `moves: add-first`
Kind = Literal["configmap", "placementpolicy"]
Step = Literal["candidate", "shadow", "canary", "active", "revert"]


@dataclass(frozen=True, slots=True)
class Limits:
    """How many objects may break when a policy is promoted, and which share of all may move."""

    breaks: int = 0  # of each effect that breaks
    moves: float = 0.1  # a share of all objects, from 0 to 1


@dataclass(frozen=True, slots=True)
class Request:
    """What to do with which policy; no namespace: the first one of policies."""

    name: str
    step: Step
    namespace: str | None = None
    limits: Limits = Limits()
    force: bool = False
    kind: Kind = "configmap"
    share: str | None = None  # of all objects, that a canary decides on; None: as it says already
    namespaces: str | None = None  # all of whose objects it decides on, with commas between
    seen: str | None = None  # the digest of the version that a person agreed to; None: any


class _DecidesWith(msgspec.Struct):
    decides_with: list[str] = []


class Record(msgspec.Struct, frozen=True):
    """A policy's content before a promotion (None: it did not exist), and what was promoted."""

    before: dict[str, str] | None
    promoted: dict[str, str]
    rego_version: str | None = None  # that the policy stated before


@dataclass(frozen=True, slots=True)
class Considered:
    """What a promotion would do, for the person who is asked."""

    policy: ObjectKey  # among those of both kinds
    said: tuple[str, ...]  # line by line
    modules: str  # the digest of the version that it is of


def decides_with(status: str | None) -> list[str]:
    """Return the policies in force that one decides with once active, by its status annotation."""
    try:
        said = msgspec.json.decode(status or "null", type=_DecidesWith)
    except NO_JSON:
        return []
    return said.decides_with


def objections(status: str | None, modules: str, limits: Limits) -> list[str]:
    """Return why a policy whose modules have this digest is not promoted, none if it may be.

    `status` is the text of its status annotation.
    """
    try:
        said = msgspec.json.decode(status or "null", type=dict[str, Any])
    except NO_JSON:
        return ["the replicator has said nothing of it yet"]
    if said.get("status") != "ok":
        return [_fault(said)]
    if said.get("stage") not in (SHADOW, CANARY) or not isinstance(said.get("objects"), int):
        return ["it has not decided beside what is in force yet: nothing is counted"]
    if said.get("modules") != modules:
        return ["what is counted is of another version of it: wait for the replicator"]
    if others := said.get("together_with"):
        return [f"what is counted is of it together with {', '.join(map(str, others))}"]
    return [*passed(said, limits)]


def canary_terms(request: Request, has: Mapping[str, str]) -> dict[str, str | None]:
    """Return the requested annotations of a canary; those not requested stay as they are.

    Default limits have no annotation.
    """
    usual, limits = Limits(), request.limits
    named = request.share is not None or request.namespaces is not None
    return {
        SHARE: request.share if named else has.get(SHARE),
        NAMESPACES: request.namespaces if named else has.get(NAMESPACES),
        MAX_BREAKS: None if limits.breaks == usual.breaks else str(limits.breaks),
        MAX_MOVES: None if limits.moves == usual.moves else _plain(limits.moves),
    }


def passed(said: Mapping[str, Any], limits: Limits) -> Iterator[str]:
    """Yield the limits that counts pass: `objects`, and the number by effect."""
    for effect in _BREAKS:
        if said.get(effect, 0) > limits.breaks:
            yield f"{said[effect]} would be {effect}, at most {limits.breaks} may"
    if (unhealthy := said.get(UNHEALTHY, 0)) > limits.breaks:
        yield f"{unhealthy} were not healthy where they were added, at most {limits.breaks} may be"
    moves, objects = said.get("moves", 0), said["objects"]
    if moves > limits.moves * objects:
        yield f"{moves} of {objects} would move, at most {limits.moves:.0%} may"


def _plain(share: float) -> str:
    return f"{share:.12f}".rstrip("0").rstrip(".")


def _fault(said: Mapping[str, Any]) -> str:
    error, halted = said.get("error"), said.get("halted")
    if isinstance(halted, dict):
        return f"it was halted as a canary: {'; '.join(map(str, halted.get('why', ())))}"
    why = error.get("message", "") if isinstance(error, dict) else "its status says no more"
    return f"it is at fault: {why}"
