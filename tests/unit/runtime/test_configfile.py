from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from prometheus_client import REGISTRY

from kube_sync.config import Settings, Source
from kube_sync.observability.readiness import Readiness
from kube_sync.runtime.configfile import ConfigFile
from tests.unit.async_tools import running

_ONE = "replicate: {resources: [{group: '', version: v1, resource: pods}]}\n"
_TWO = "replicate: {resources: [{group: '', version: v1, resource: nodes}]}\n"
_NONE = "placement: {resources: []}\n"


class World:
    """A configuration file, and what was told of it; time passes when the test says so."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.readiness = Readiness()
        self.told: list[Settings] = []
        self.source = Source(str(file), {})
        self._slept = asyncio.Event()
        self._woken = asyncio.Event()

    def watch(self) -> ConfigFile:
        settings = self.source.load(self.source.read())
        return ConfigFile(self.source, settings, self.readiness, sleep=self._sleep)

    async def _sleep(self, seconds: float) -> None:
        assert seconds == 1.0
        self._slept.set()
        await self._woken.wait()
        self._woken.clear()

    async def looks(self, times: int = 2) -> None:
        """Let the file be looked at so often."""
        for _ in range(times):
            await self._slept.wait()
            self._slept.clear()
            self._woken.set()
        await self._slept.wait()

    @property
    def names(self) -> list[list[str]]:
        return [[r.name for r in settings.replicate.resources] for settings in self.told]

    @property
    def detail(self) -> str:
        return self.readiness.conditions["configuration"]

    @property
    def valid(self) -> float | None:
        return REGISTRY.get_sample_value("kube_sync_config_valid")


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path / "config.yaml")
    world.file.write_text(_NONE + _ONE)
    return world


async def test_file_that_stays_as_it_is_tells_nothing(world: World) -> None:
    async with running(world.watch().follow(world.told.append)):
        await world.looks(5)
        assert (world.told, world.detail, world.valid) == ([], "ok", 1)


async def test_change_is_told_once(world: World) -> None:
    async with running(world.watch().follow(world.told.append)):
        await world.looks()
        world.file.write_text(_NONE + _TWO)
        await world.looks(5)
        assert world.names == [["nodes"]]


async def test_change_before_the_first_look_is_told_too(world: World) -> None:
    watch = world.watch()
    world.file.write_text(_NONE + _TWO)
    async with running(watch.follow(world.told.append)):
        await world.looks()
        assert world.names == [["nodes"]]


async def test_content_counts_when_it_was_there_twice(world: World) -> None:
    """An editor empties the file before it writes it, and an empty file means the defaults."""
    async with running(world.watch().follow(world.told.append)):
        await world.looks()
        world.file.write_text("")
        await world.looks(1)
        world.file.write_text(_NONE + _TWO)
        await world.looks(1)
        assert world.told == []
        await world.looks(1)
        assert world.names == [["nodes"]]


async def test_swapped_link_is_a_change_whatever_its_time(world: World, tmp_path: Path) -> None:
    """As Kubernetes does for a ConfigMap that is mounted."""
    for name, text in (("one", _ONE), ("two", _TWO)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.yaml").write_text(_NONE + text)
    (tmp_path / "..data").symlink_to("one")
    world.file.unlink()
    world.file.symlink_to("..data/config.yaml")
    async with running(world.watch().follow(world.told.append)):
        await world.looks()
        (tmp_path / "new").symlink_to("two")
        (tmp_path / "new").rename(tmp_path / "..data")
        await world.looks()
        assert world.names == [["nodes"]]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "not YAML"),
        ("when: 0b_", "not YAML"),
        ("[" * 500, "not YAML: nested too deeply"),
        ("[]", "expected a mapping"),
        ("opa: {urll: x}", "opa.urll: unknown key"),
        (_TWO + "placement: {resources: [pods]}", 'placement.resources[0]: "pods" is not repl'),
    ],
)
async def test_mistake_changes_nothing_and_is_told(world: World, text: str, reason: str) -> None:
    async with running(world.watch().follow(world.told.append)):
        await world.looks()
        world.file.write_text(text)
        await world.looks(4)
        assert world.told == []
        assert world.detail.startswith("the last good one is in force, since ")
        assert reason in world.detail
        assert world.readiness.reasons == {}
        assert world.valid == 0
        world.file.write_text(_NONE + _ONE)
        await world.looks()
        assert (world.told, world.detail, world.valid) == ([], "ok", 1)


async def test_file_that_is_gone_changes_nothing_until_it_is_back(world: World) -> None:
    async with running(world.watch().follow(world.told.append)):
        await world.looks()
        world.file.unlink()
        await world.looks(3)
        assert "No such file" in world.detail
        assert world.valid == 0
        world.file.write_text(_NONE + _ONE)
        await world.looks()
        assert (world.told, world.detail, world.valid) == ([], "ok", 1)


async def test_mistake_is_logged_once(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    async with running(world.watch().follow(world.told.append)):
        world.file.unlink()
        await world.looks(5)
    assert capsys.readouterr().out.count("configuration_not_applied") == 1


async def test_what_needs_a_restart_is_named_and_not_applied(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    watch = world.watch()
    world.file.write_text(
        _NONE + _TWO + "opa: {url: 'http://me:secret@opa:1'}\nremediate: {mode: off}"
    )
    async with running(watch.follow(world.told.append)):
        await world.looks()
        assert world.detail == "restart to apply opa.url, remediate.mode"
        (settings,) = world.told
        assert world.names == [["nodes"]]
        assert settings.opa == Settings().opa
        assert settings.remediate.mode == "enforce"
        assert (world.valid, world.readiness.reasons) == (1, {})
        world.file.write_text(_NONE + _TWO)
        await world.looks()
        assert world.detail == "ok"
    out = capsys.readouterr().out
    assert out.count("configuration_needs_restart") == 1
    assert "secret" not in out


async def test_root_stays_where_it_is_while_resources_change(world: World) -> None:
    watch = world.watch()
    world.file.write_text(_NONE + _TWO.replace("{resources", "{root: other, resources"))
    async with running(watch.follow(world.told.append)):
        await world.looks()
        assert world.detail == "restart to apply replicate.root"
        assert world.told[0].replicate.root == "kubernetes"
        assert world.names == [["nodes"]]


async def test_variable_wins_over_a_file_that_changes(world: World) -> None:
    world.source = Source(
        str(world.file),
        {"KUBE_SYNC_REPLICATE_RESOURCES": "[]", "KUBE_SYNC_PLACEMENT_RESOURCES": "[]"},
    )
    async with running(world.watch().follow(world.told.append)):
        await world.looks()
        world.file.write_text(_TWO)
        await world.looks()
        assert (world.told, world.valid) == ([], 1)
