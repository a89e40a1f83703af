"""Two processes that serve the webhook on one port, on real servers.

A process that is stopped (SIGSTOP) takes no connection: what is answered then, the other answers.
"""

from __future__ import annotations

import asyncio
import os
import signal
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kube_sync.certificates import issue
from tests.eventually import eventually
from tests.integration.test_admission_classes import EU, World
from tools.servers.files import LOOPBACK
from tools.servers.http import get
from tools.servers.secured_opa import RunningOpa
from tools.servers.stack import RunningStack

pytestmark = pytest.mark.timeout(180)


class Workers(World):
    """The world, with the webhook as two processes."""

    @property
    def first(self) -> int:
        """The id of the first process."""
        found: int = self.webhook._process.pid  # type: ignore[attr-defined] # noqa: SLF001
        return found

    @property
    def other(self) -> int:
        """The id of the other process."""
        children = Path(f"/proc/{self.first}/task/{self.first}/children").read_text()
        (found,) = map(int, children.split())
        return found

    @property
    def both(self) -> tuple[int, int]:
        """Both ids."""
        return self.first, self.other

    def reviews(self) -> int:
        """Return how many reviews were answered, by the page of metrics."""
        lines = get(f"{self.webhook.url}/metrics").body.decode().splitlines()
        name = "kube_sync_admission_seconds_count{"
        return sum(int(float(one.split()[-1])) for one in lines if one.startswith(name))

    def page(self) -> tuple[int, str]:
        """Return the page of readiness."""
        answer = get(f"{self.webhook.url}/readyz")
        return answer.status, answer.body.decode()

    def served(self) -> str:
        """Return the certificate of the server."""
        return ssl.get_server_certificate(("127.0.0.1", self.port))


@contextmanager
def stopped(process: int) -> Iterator[None]:
    """Let a process do nothing within the block."""
    os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(process, signal.SIGCONT)


def runs(process: int) -> bool:
    """Tell whether a process runs; one that has ended may not be waited for yet."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.fixture
def world(
    stack: RunningStack, opa: RunningOpa, namespace: str, tmp_path: Path
) -> Iterator[Workers]:
    made = Workers(stack, opa, namespace, tmp_path, "on", workers=2)
    made.fill()
    yield made
    made.stop()


async def test_each_worker_answers_by_what_it_knows_itself_and_one_page_counts_for_both(
    world: Workers,
) -> None:
    for process in world.both:
        with stopped(process):
            await eventually(lambda: world.place(region="eu"), EU)
            assert world.review(team="shop")["status"]["message"] == "no region"
    before = await eventually(world.reviews)
    for process, count in zip(world.both, (3, 5), strict=True):
        with stopped(process):
            for _ in range(count):
                assert world.place(region="eu") == EU
    assert world.reviews() == before + 8
    # Whatever is not known fails closed, in each.
    await asyncio.to_thread(world.opa.server.kill)
    for process in world.both:
        with stopped(process):
            assert world.place(region="nowhere") is None
    await asyncio.to_thread(world.opa.server.start)


@pytest.mark.slow
async def test_all_are_ready_or_none(world: Workers) -> None:
    assert "worker 1: ok\n" in world.page()[1]
    with stopped(world.other):
        _, text = await eventually(world.page, lambda seen: seen[0] == 503)
        assert "worker 1: does not answer\n" in text
        assert get(f"{world.webhook.url}/metrics").status == 503
    await eventually(lambda: world.page()[0], 200)


@pytest.mark.slow
async def test_a_certificate_is_replaced_in_each(world: Workers) -> None:
    renewed = issue(world.authority, "kube-sync", LOOPBACK)
    for name, content in (("tls.key", renewed.key_pem), ("tls.crt", renewed.cert_pem)):
        (world.folder / name).write_bytes(content)
    expected = renewed.cert_pem.decode().split()
    for process in world.both:
        with stopped(process):
            await eventually(lambda: world.served().split(), expected)


async def test_a_killed_worker_closes_no_door_and_then_all_end_with_a_failure(
    world: Workers,
) -> None:
    await eventually(lambda: world.place(region="eu"), EU)
    first, other = world.both
    os.kill(other, signal.SIGKILL)
    await eventually(lambda: "worker 1: ended\n" in world.page()[1])
    assert world.place(region="eu") == EU  # for as long as clients need to go elsewhere
    process = world.webhook._process  # type: ignore[attr-defined] # noqa: SLF001 - its exit status
    assert await asyncio.to_thread(process.wait, 60) == 1
    assert not runs(first)


@pytest.mark.slow
async def test_no_worker_outlives_the_first(world: Workers) -> None:
    _, other = world.both
    await asyncio.to_thread(world.webhook.kill)
    await eventually(lambda: runs(other), expected=False)


@pytest.mark.slow
async def test_a_signal_drains_both(world: Workers) -> None:
    _, other = world.both
    process = world.webhook._process  # type: ignore[attr-defined] # noqa: SLF001 - its exit status
    process.send_signal(signal.SIGTERM)
    assert await asyncio.to_thread(process.wait, 60) == 0
    assert not runs(other)
    drained = [line for line in world.webhook.logs().splitlines() if '"event": "drained"' in line]
    assert sorted('"worker": 1' in line for line in drained) == [False, True]
