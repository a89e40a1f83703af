"""The replicator between the fakes, in this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from kube_sync.config import Settings
from kube_sync.decisions.hub import DecisionHub
from kube_sync.observability.readiness import Readiness
from kube_sync.policies.bundle_server import BundleServer
from kube_sync.policies.delivery import Compiler
from kube_sync.policies.trial_run import Trial
from kube_sync.replicator.replicator import Replicator
from kube_sync.topology.controller.topology_feed import gateway_api_feed
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.clients import kube_of, opa_of
from tests.fakes.compiler import FakeCompiler
from tests.fakes.opa import FakeOpa
from tests.unit.async_tools import PATIENCE


@asynccontextmanager
async def replicator_between(
    api: FakeApiServer,
    fake: FakeOpa,
    folder: Path,
    settings: Settings,
    *,
    hub: DecisionHub | None = None,
    readiness: Readiness | None = None,
    compiler: Compiler | None = None,
    trial: Trial | None = None,
    user: dict[str, Any] | None = None,
    patience: float = PATIENCE,
) -> AsyncGenerator[Replicator]:
    """Run it beside the block, which may take `patience` seconds; what it raises fails the test."""
    async with AsyncExitStack() as stack:
        kube = await stack.enter_async_context(kube_of(api, folder, user))
        opa = await stack.enter_async_context(opa_of(fake))
        replicator = Replicator(
            settings,
            kube,
            opa,
            hub or DecisionHub("test"),
            readiness or Readiness(),
            compiler or FakeCompiler(),
            shelf=BundleServer(),
            trial=trial,
            topology=partial(gateway_api_feed, kube),
        )
        task = asyncio.create_task(replicator.run())
        try:
            async with asyncio.timeout(patience):
                yield replicator
        finally:
            # A replicator that ended by itself says why here.
            if task.done():
                task.result()
            task.cancel()
            await asyncio.wait([task])
