"""Wires the built-in policy systems of the webhook: their decisions and policy watches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from kube_sync.admission.breaker import Breaker, probing
from kube_sync.admission.decision_client import DecisionClient, waits
from kube_sync.admission.denials import Denials
from kube_sync.admission.engine import engine_client
from kube_sync.admission.policy_namespaces import ByNamespace, Places, is_pod, nothing
from kube_sync.admission.policygate import PolicyGate
from kube_sync.admission.registration import policy_exists
from kube_sync.admission.registration_scope import WebhookScope, kept_for
from kube_sync.admission.route import Route, nobody, ruling, system_routes
from kube_sync.admission.target import system_target
from kube_sync.config import System, chosen
from kube_sync.kube.collection import KubeCollection
from kube_sync.kube.eventrecorder import EventRecorder
from kube_sync.kube.policyobjects import PolicyObjects
from kube_sync.kube.reflector import Reflector
from kube_sync.observability import metrics
from kube_sync.processes.context import Context
from kube_sync.runtime.services import Service


@dataclass(frozen=True, slots=True)
class Served:
    """One system of the webhook."""

    routes: tuple[Route, ...]
    kept: tuple[WebhookScope, ...]
    exists: Callable[[], bool | None]  # whether it has a policy; None: unknown
    services: tuple[Service, ...]


async def serve_systems(
    context: Context, recorder: EventRecorder, on_change: Callable[[], None]
) -> list[Served]:
    """Return all built-in systems; `on_change` is called when their policies come or go."""
    found = chosen(context.settings)
    return [await _serve(context, system, recorder, on_change) for system in found]


async def _serve(
    context: Context, system: System, recorder: EventRecorder, on_change: Callable[[], None]
) -> Served:
    settings = context.settings
    policies = PolicyObjects(on_change)
    gate = PolicyGate([policies])
    client = await _decision_client(context, system, gate, system.decision)
    checking = client
    if system.check != system.decision:  # the same OPA: they share a circuit breaker
        checking = await _decision_client(context, system, gate, system.check, client.breaker)
    report = Denials(recorder, system.name.capitalize()).denied
    denied = report if settings.admission.events else nobody
    if system.by_namespace:
        places, anyway = Places(gate, policies), is_pod if settings.metadata.qos else nothing
        changer = ByNamespace(client, places, anyway)
        routes = system_routes(system, changer, denied, ByNamespace(checking, places))
    else:
        routes = system_routes(system, client, denied)
    probe = partial(probing, client, context.readiness.reporter(f"opa for {system.name}"))
    return Served(
        routes,
        kept_for(system, settings),
        partial(policy_exists, gate, [policies]),
        (_watch(context, system, gate, policies), probe),
    )


async def _decision_client(
    context: Context,
    system: System,
    gate: PolicyGate,
    decision: str,
    breaker: Breaker | None = None,
) -> DecisionClient:
    target = system_target(context.settings, decision)
    engine_settings = context.settings.admission.engine
    return DecisionClient(
        await context.stack.enter_async_context(engine_client(target)),
        gate,
        backoff=waits(engine_settings.backoff_seconds),
        attempts=engine_settings.attempts,
        read=partial(ruling, explains=system.explains),
        down=metrics.admission_system_down.labels(system.name),
        breaker=breaker,
    )


def _watch(context: Context, system: System, gate: PolicyGate, policies: PolicyObjects) -> Service:
    name = f"{system.policies} for admission"
    context.readiness.waiting(name, "not listed yet")

    def report(reason: str | None) -> None:
        if policies.is_lacking():  # without the kind there is no policy
            gate.found(policies)
            context.readiness.noted(name, f"none: {reason}")
        elif reason is None:
            gate.found(policies)
            context.readiness.met(name)
        else:
            gate.lost(policies)
            context.readiness.waiting(name, reason)

    source = KubeCollection(context.kube, system.policies, metadata_only=True)
    return Reflector(name, source, policies, report).run
