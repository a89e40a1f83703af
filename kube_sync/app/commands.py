"""Which parts a command is made of; each runs until a signal.

What is wrong with the configuration raises Misconfigured; what is wrong with the world outside is
waited for, with the reason on the readiness page.
"""

from __future__ import annotations

import structlog

from kube_sync.app.admitting import admit
from kube_sync.app.context import process
from kube_sync.app.policysync import policy_sync
from kube_sync.app.remediating import remediate
from kube_sync.app.replicating import replicate
from kube_sync.app.topology import topology
from kube_sync.runtime.services import run_services
from kube_sync.settings import Settings, Source

log: structlog.stdlib.BoundLogger = structlog.get_logger()


async def run_replicate(settings: Settings, source: Source) -> None:
    """Replicate into OPA and serve the decision stream; follow `source` when it changes."""
    async with process(settings, 9401) as context:
        await run_services(await replicate(context, source))


async def run_remediate(settings: Settings) -> None:
    """Follow the decision stream and patch what it concerns."""
    async with process(settings, 9402) as context:
        await run_services(await remediate(context))


async def run_admit(settings: Settings) -> None:
    """Answer the API server's admission reviews."""
    async with process(settings, 9403) as context:
        await run_services(await admit(context), context.drain.run)


async def run_topology(settings: Settings) -> None:
    """Keep the topology of a cluster, and write what it says."""
    async with process(settings, 9405) as context:
        await run_services(topology(context))


async def run_policy_sync(settings: Settings) -> None:
    """Bring the policies of a hub to its spokes, and their statuses back."""
    async with process(settings, 9407) as context:
        await run_services(policy_sync(context))


async def run_all(settings: Settings, source: Source) -> None:
    """Run replicator and remediator in one process, and the webhook where it has certificates."""
    async with process(settings, 9406) as context:
        services = [*await replicate(context, source), *await remediate(context)]
        if settings.admission.cert_file is not None:
            services += await admit(context)
        else:
            log.warning("no_webhook", reason="admission.cert_file is not set")
        await run_services(services, context.drain.run)
