"""Which rules made a decision of the past: the recorded modules decide anew what was recorded.

Keeps true: rules are told only where the same decision comes out of what was recorded, byte for
byte; otherwise it is said what is missing. The OPA that is asked is its own, and ends with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from kube_sync.decisions.explaining import Explaining, Explanation, Rule
from kube_sync.decisions.inputs import Input, inputs
from kube_sync.errors import NO_JSON, SyncError
from kube_sync.ledger.entries import text_of
from kube_sync.opa.client import OpaClient
from kube_sync.opa.modules import file_of
from kube_sync.opa.scratch import Modules
from kube_sync.reasoning.past import Past
from kube_sync.replicator.policies.builtin import built_in
from kube_sync.replicator.policies.reading import Reading, TreeCompiler
from kube_sync.settings import Settings


class Scratch(TreeCompiler, Protocol):
    """The scratch OPA."""

    def serving(self, modules: Modules, data: bytes) -> AbstractAsyncContextManager[OpaClient]:
        """Yield a client of an OPA that holds these."""
        ...


@dataclass(frozen=True, slots=True)
class Derived:
    """The rules that made a decision and what they read, or why that is not known."""

    rules: tuple[Rule, ...] = ()
    rules_failure: str | None = None
    inputs: tuple[Input, ...] = ()
    inputs_failure: str | None = None


async def derived(past: Past, settings: Settings, scratch: Callable[[], Scratch]) -> Derived:
    """Return how the decision comes about anew; `scratch` may raise SyncError, which is told."""
    if past.decision is None or past.row is None:
        return Derived()  # there is nothing to be made
    if past.status == "failed":
        return Derived(rules_failure="not known: none made it, it is what stood before")
    if (missing := _missing(past)) is not None:
        return Derived(rules_failure=missing)
    modules = {**built_in(settings), **(past.modules or {})}
    body = past.ground.input or b""
    try:
        opa = scratch()
        found = await _explained(past, body, modules, settings, opa)
        if (failure := _failure(past, found)) is not None:
            return Derived(rules_failure=failure)
        return Derived(
            _named(found.rules, modules), None, *await _inputs(body, modules, settings, opa)
        )
    except SyncError as error:
        return Derived(rules_failure=f"not known: {error}")


def _missing(past: Past) -> str | None:
    if past.modules is None:
        return f"not known: the ledger has no modules of policy {past.policy or 'none'}"
    if past.ground.input is None:
        return f"not known: what was read of the object is not recorded with row {past.row}"
    return None


async def _explained(
    past: Past, body: bytes, modules: Modules, settings: Settings, scratch: Scratch
) -> Explanation:
    sources = {file_of(policy_id): source for policy_id, source in modules.items()}
    path = past.ground.path or settings.placement.path
    async with scratch.serving(modules, past.ground.data or b"{}") as opa:
        return await Explaining(opa, path).explain(body, sources)


def _failure(past: Past, found: Explanation) -> str | None:
    """Return why the rules that were found are not those that made it."""
    if found.failure is not None:
        return f"not known: {found.failure}"
    if found.decision is not None and text_of(found.decision).digest == past.digest:
        return None
    if past.ground.data is None:
        return f"not known: the data that was read is not recorded with row {past.row}"
    if lacks := [f"{name} ({why})" for name, why in sorted(past.ground.lacks.items())]:
        return f"not known: of what was read this is not recorded: {', '.join(lacks)}"
    return "not known: of what was recorded another decision comes out now"


def _named(rules: tuple[Rule, ...], modules: Mapping[str, str]) -> tuple[Rule, ...]:
    names = {file_of(policy_id): policy_id for policy_id in modules}
    return tuple(msgspec.structs.replace(r, file=names.get(r.file, r.file)) for r in rules)


async def _inputs(
    body: bytes, modules: Modules, settings: Settings, scratch: Scratch
) -> tuple[tuple[Input, ...], str | None]:
    async def nowhere() -> Mapping[str, Any]:
        return {}

    reads = (await Reading(scratch, settings.placement.path, nowhere).need(modules)).reads
    if reads.gave_up is not None:
        return (), f"not known: {reads.gave_up}"
    try:
        return inputs(msgspec.json.decode(body, type=dict), reads.input), None
    except NO_JSON:
        return (), "the object cannot be read"
