"""Finds the rules behind a past decision, by evaluating the recorded modules and input again.

Invariant: rules are reported only if the evaluation reproduces the decision, byte for
byte; otherwise the missing data is. The OPA is its own, and ends with the evaluation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from kube_sync.config import Settings
from kube_sync.decisions.explaining import Explanation, Rule
from kube_sync.decisions.input_values import Input
from kube_sync.errors import SyncError
from kube_sync.inspect.plan.offline_opa import OfflineOpa, analysis
from kube_sync.inspect.plan.offline_opa import Scratch as Serving
from kube_sync.inspect.why.explanation import inputs_read
from kube_sync.inspect.why.past import Past
from kube_sync.ledger.entries import text_of
from kube_sync.opa.scratch import Modules
from kube_sync.policies.builtin import built_in
from kube_sync.policies.reading import TreeCompiler


class Scratch(Serving, TreeCompiler, Protocol):
    """The scratch OPA."""


@dataclass(frozen=True, slots=True)
class Derived:
    """The rules that made a decision and what they read, or why that is unknown."""

    rules: tuple[Rule, ...] = ()
    rules_failure: str | None = None
    inputs: tuple[Input, ...] = ()
    inputs_failure: str | None = None


async def derive(past: Past, settings: Settings, scratch: Callable[[], Scratch]) -> Derived:
    """Evaluate the decision again; a SyncError of `scratch` becomes part of the result."""
    if past.decision is None or past.row is None:
        return Derived()  # there is no decision
    if past.status == "failed":
        return Derived(rules_failure="not known: none made it, it is what stood before")
    if (missing := _missing(past)) is not None:
        return Derived(rules_failure=missing)
    modules = {**built_in(settings), **(past.modules or {})}
    body = past.ground.input or b""
    try:
        opa = scratch()
        found = await _explain(past, body, modules, settings, opa)
        if (failure := _failure(past, found)) is not None:
            return Derived(rules_failure=failure)
        need = await analysis(opa, settings.placement.path, {}).need(modules)
        return Derived(found.rules, None, *inputs_read(body, need.reads))
    except SyncError as error:
        return Derived(rules_failure=f"not known: {error}")


def _missing(past: Past) -> str | None:
    if past.modules is None:
        return f"not known: the ledger has no modules of policy {past.policy or 'none'}"
    if past.ground.input is None:
        return f"not known: what was read of the object is not recorded with row {past.row}"
    return None


async def _explain(
    past: Past, body: bytes, modules: Modules, settings: Settings, scratch: Scratch
) -> Explanation:
    root, path = settings.replicate.root, past.ground.path or settings.placement.path
    async with scratch.serving(modules, past.ground.data or b"{}") as client:
        return await OfflineOpa(client, modules, root, path).explain(body)


def _failure(past: Past, found: Explanation) -> str | None:
    """Return why the explanation is not that of the recorded decision."""
    if found.failure is not None:
        return f"not known: {found.failure}"
    if found.decision is not None and text_of(found.decision).digest == past.digest:
        return None
    if past.ground.data is None:
        return f"not known: the data that was read is not recorded with row {past.row}"
    if lacks := [f"{name} ({why})" for name, why in sorted(past.ground.lacks.items())]:
        return f"not known: of what was read this is not recorded: {', '.join(lacks)}"
    return "not known: of what was recorded another decision comes out now"
