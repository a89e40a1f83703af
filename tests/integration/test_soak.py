"""A soak in small, on real servers: changes, three faults, and every promise kept."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.servers.running import Launcher
from tools.servers.stack import RunningStack, furnished_stack
from tools.soak.run import Options, Soak

pytestmark = pytest.mark.slow

_FAULTS = ("OPA killed", "replicator stopped", "watches expired")
_OPTIONS = Options(
    seconds=24.0,
    objects=300,
    clusters=5,
    policies=8,
    rate=15.0,
    seed=13,
    fault_every=6.0,
    faults=_FAULTS,
    patience=60.0,
)


@pytest.fixture
def servers(launcher: Launcher, tmp_path: Path) -> Iterator[RunningStack]:
    """A stack that no other test sees fail, nor a second run of the same one."""
    with furnished_stack(launcher, tmp_path / "stack") as running:
        yield running


@pytest.mark.timeout(240)
async def test_small_soak_keeps_every_promise(servers: RunningStack, tmp_path: Path) -> None:
    report = await Soak(_OPTIONS).run(servers, tmp_path, asyncio.Event())
    assert not report.broken, report.text()
    assert report.complete
    assert {fault.name for fault in report.faults} == set(_FAULTS)
    assert all(fault.recovered is not None for fault in report.faults)
    looked = report.checked
    assert min(looked.values()) > 0, looked
    assert looked["decisions asked afresh"] == looked["placements worked out"] > 200
    assert report.tally.changes["create"]["denied"] + report.tally.changes["wish"]["denied"] > 0
    assert {"opa", "replicate", "remediate", "admit"} <= json.loads(json.dumps(report.document()))[
        "memory"
    ].keys()


async def test_soak_that_is_stopped_reports_what_it_has(
    servers: RunningStack, tmp_path: Path
) -> None:
    stop = asyncio.Event()
    stop.set()
    report = await Soak(_OPTIONS).run(servers, tmp_path, stop)
    assert not report.complete
    assert "INTERRUPTED" in report.text()
