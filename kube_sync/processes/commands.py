"""The entry point of each long-running command; each runs until a signal.

An invalid configuration raises Misconfigured, or with `patience` is retried as long
as that permits; outside failures are retried in any case. The reason is on the
readiness page. Each imports its own parts when it is called: to import those of all takes every
process twice as long.
"""

# ruff: noqa: PLC0415 - see above

from __future__ import annotations

import gc
from dataclasses import replace
from functools import partial

import msgspec
import structlog

from kube_sync.config import Settings, Source
from kube_sync.processes.context import Context, Patience, begun, impatient, process
from kube_sync.processes.workers import Alone, Crew
from kube_sync.runtime.imports import without_collections
from kube_sync.runtime.services import Service, run_services

log: structlog.stdlib.BoundLogger = structlog.get_logger()


async def run_replicate(settings: Settings, source: Source, patience: Patience = impatient) -> None:
    """Replicate into OPA and serve the decision stream; follow `source` when it changes."""
    with without_collections():
        from kube_sync.processes.replicating import replicate

    _warn_of_unsealed_notes(settings)
    async with process(settings, 9401, patience) as context:
        await run_services(await begun(context, lambda to: replicate(to, source), patience))


async def run_remediate(settings: Settings, patience: Patience = impatient) -> None:
    """Follow the decision stream and patch what it concerns."""
    with without_collections():
        from kube_sync.processes.remediating import remediate

    _warn_of_unsealed_notes(settings)
    async with process(settings, 9402, patience) as context:
        await run_services(await begun(context, remediate, patience))


async def run_admit(
    settings: Settings, patience: Patience = impatient, crew: Crew | None = None
) -> None:
    """Answer the API server's admission reviews, as one process of a crew or alone."""
    with without_collections():
        from kube_sync.processes.admitting import admit

    crew = crew or Alone()
    if crew.first:
        _warn_of_unsealed_notes(settings)
    async with process(settings, 9403, patience, crew.page) as context:
        services = await begun(context, partial(admit, crew=crew), patience)
        services += crew.services(context.readiness)
        # What the start has made stays. To look through it again and again took a tenth of the time
        # of reviews that OPA is asked about.
        gc.freeze()
        await run_services(services, partial(crew.finish, context.drain.run))
    crew.check()


async def run_topology(settings: Settings, patience: Patience = impatient) -> None:
    """Maintain the topology of a cluster, and write its statuses."""
    with without_collections():
        from kube_sync.processes.topology import topology

    async with process(settings, 9405, patience) as context:
        await run_services(topology(context))


async def run_policy_sync(settings: Settings, patience: Patience = impatient) -> None:
    """Sync the policies of a hub to its spokes, and their statuses back."""
    with without_collections():
        from kube_sync.processes.policysync import policy_sync

    async with process(settings, 9407, patience) as context:
        await run_services(policy_sync(context))


async def run_all(settings: Settings, source: Source, patience: Patience = impatient) -> None:
    """Run replicator and remediator in one process, and the webhook where it has certificates."""
    with without_collections():
        from kube_sync.processes.admitting import admit
        from kube_sync.processes.own_opa import may_start, own_opa
        from kube_sync.processes.prerequisites import log_defaults, log_missing
        from kube_sync.processes.remediating import remediate
        from kube_sync.processes.replicating import replicate

    async def start(context: Context) -> list[Service]:
        content, follows, own = source.read(), source, None
        if may_start(source, content) and (own := await own_opa(settings)) is not None:
            opa = msgspec.structs.replace(settings.opa, url=own.url)
            context = replace(context, settings=msgspec.structs.replace(settings, opa=opa))
            follows = source.overridden("opa.url", own.url)
        log_defaults(context.settings, source, content)
        await log_missing(context.kube, settings)
        services = [*await replicate(context, follows), *await remediate(context)]
        if own is not None:
            services.append(own.run)
        if settings.admission.cert_file is not None:
            services += await admit(context)
        else:
            log.warning("no_webhook", reason="admission.cert_file is not set")
        return services

    _warn_of_unsealed_notes(settings)
    async with process(settings, 9406, patience) as context:
        await run_services(await begun(context, start, patience), context.drain.run)


def _warn_of_unsealed_notes(settings: Settings) -> None:
    if settings.placement.key_file is None:
        log.warning(
            "notes_not_sealed",
            setting="placement.key_file",
            reason="who can write an object past the webhook can forge what was asked for",
        )
