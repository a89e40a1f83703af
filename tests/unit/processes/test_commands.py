from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from kube_sync.config import Kubernetes, Observe, Placement, Settings, Source
from kube_sync.errors import Misconfigured
from kube_sync.processes.commands import run_admit, run_all, run_remediate, run_replicate
from tools.servers.running import free_port

_SOURCE = Source(None, {})
COMMANDS: dict[str, Callable[[Settings], Awaitable[None]]] = {
    "replicate": partial(run_replicate, source=_SOURCE),
    "remediate": run_remediate,
    "admit": run_admit,
    "run": partial(run_all, source=_SOURCE),
}


async def warnings(
    command: str, folder: Path, key_file: str | None
) -> list[MutableMapping[str, Any]]:
    """Return what a command warns of before it finds that it has no kubeconfig."""
    settings = Settings(
        kubernetes=Kubernetes(str(folder / "none")),
        placement=Placement(key_file=key_file),
        observe=Observe(f"127.0.0.1:{free_port()}"),
    )
    with capture_logs() as logs, pytest.raises(Misconfigured, match="none"):
        await COMMANDS[command](settings)
    return [log for log in logs if log["log_level"] == "warning" and log["event"] != "not_ready"]


@pytest.mark.parametrize("command", COMMANDS)
async def test_command_without_a_key_warns_once_that_notes_are_not_sealed(
    command: str, tmp_path: Path
) -> None:
    (warning,) = await warnings(command, tmp_path, None)
    assert (warning["event"], warning["setting"]) == ("notes_not_sealed", "placement.key_file")


@pytest.mark.parametrize("command", COMMANDS)
async def test_command_with_a_key_warns_of_nothing(command: str, tmp_path: Path) -> None:
    assert await warnings(command, tmp_path, str(tmp_path / "key")) == []
