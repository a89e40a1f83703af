"""Work agents for a fleet of real API servers, as long as a block lasts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from kube_sync.config import Kubernetes
from kube_sync.kube.client import KubeClient, kube_client
from tests.ocm.workagent import WorkAgent


@asynccontextmanager
async def connected(*kubeconfigs: Path) -> AsyncGenerator[list[KubeClient]]:
    """Yield a client for each kubeconfig."""
    async with AsyncExitStack() as opened:
        settings = [Kubernetes(kubeconfig=str(path)) for path in kubeconfigs]
        yield [await opened.enter_async_context(kube_client(one)) for one in settings]


@asynccontextmanager
async def work_agents(
    hub: Path, spokes: Mapping[str, Path], **options: Any
) -> AsyncGenerator[dict[str, WorkAgent]]:
    """Run an agent for each spoke once each has listed its works; options are WorkAgent's.

    `spokes` are kubeconfigs by the cluster's name.
    A work that OCM would have refused ends the block with WorkRefused, in an ExceptionGroup.
    """
    async with (
        connected(hub) as [on_hub],
        connected(*spokes.values()) as clients,
        asyncio.TaskGroup() as tasks,
    ):
        agents = {
            name: WorkAgent(on_hub, client, name, **options)
            for name, client in zip(spokes, clients, strict=True)
        }
        ended = asyncio.Event()
        running = [tasks.create_task(_run(agent, ended)) for agent in agents.values()]
        # Nobody is cancelled amid a TLS handshake: asyncio would leave the socket open.
        for agent in agents.values():
            await agent.listed.wait()
        yield agents
        # Connections first: one whose task is cancelled says goodbye in its own time, and a test's
        # loop may be gone by then.
        ended.set()
        connectors = [client._session.connector for client in (on_hub, *clients)]  # noqa: SLF001 - to abort TLS at once
        closing = [one.close(abort_ssl=True) for one in connectors if one is not None]
        for task in running:
            task.cancel()
        for one in closing:
            await one


async def _run(agent: WorkAgent, ended: asyncio.Event) -> None:
    try:
        await agent.run()
    except ExceptionGroup:
        # A task that is not yet told to end finds its connections closed.
        if not ended.is_set():
            raise
