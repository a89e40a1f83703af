"""Decisions by class against OPA in small, on real servers: changes, faults, and no difference."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.eventually import eventually
from tools.servers.running import Launcher
from tools.servers.stack import RunningStack, furnished_stack
from tools.soak.classes.run import ClassSoak, Options

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
_BASIS = Path("kube_sync/decisions/basis.py")
_GROWS = "revision = self._present.revision + 1"


@pytest.fixture
def servers(launcher: Launcher, tmp_path: Path) -> Iterator[RunningStack]:
    """A stack that no other test sees fail."""
    with furnished_stack(launcher, tmp_path / "stack") as running:
        yield running


@pytest.mark.timeout(600)
async def test_answers_by_class_are_those_of_opa_while_things_change_and_fail(
    servers: RunningStack, tmp_path: Path
) -> None:
    options = Options(reviews=20_000, seed=28, fault_every=5.0, gap=1.5)
    report = await ClassSoak(options).run(servers, tmp_path / "services", asyncio.Event())
    assert not report.differed, report.text()
    assert report.complete
    assert report.verified >= 20_000
    assert min(report.giving["reused"], report.witnessed["agreed"]) > 1000, report.text()
    assert min(report.changes.total(), report.faults.total()) > 0
    assert json.loads(json.dumps(report.document()))["differed"] == 0


@pytest.mark.timeout(600)
async def test_revision_that_does_not_grow_is_found_by_both(
    servers: RunningStack, tmp_path: Path
) -> None:
    """The soak's own eyes: without the revision, answers of classes are reused for ever."""
    code = tmp_path / "code"
    for name in ("kube_sync", "rego"):
        shutil.copytree(ROOT / name, code / name)
    text = (code / _BASIS).read_text(encoding="utf-8")
    assert _GROWS in text
    (code / _BASIS).write_text(text.replace(_GROWS, "revision = 1"), encoding="utf-8")
    stop = asyncio.Event()
    options = Options(reviews=10**9, seed=28, fault_every=1e9, gap=1.0, code=code)
    soak = ClassSoak(options)

    def is_found() -> bool:
        report = soak.report
        return bool(report.witnessed["differed"] and report.verifying.get("differed"))

    async def until_found() -> None:
        await eventually(is_found, seconds=240)
        stop.set()

    async with asyncio.TaskGroup() as group:
        group.create_task(until_found())
        report = await soak.run(servers, tmp_path / "services", stop)
    assert not report.complete
    assert "DIFFERED" in report.text()
