"""One OPA on the whole folder `rego/`, for all tests of the scheduling rules."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.scheduling.engine import SchedulingOpa, whole_folder_spec
from tools.servers.running import Launcher, free_port, launch_on_free_port


@pytest.fixture(scope="session")
def scheduling_opa(
    launcher: Launcher, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SchedulingOpa]:
    """Decide with what `opa run --server rego/` loads."""
    folder = tmp_path_factory.mktemp("scheduling-opa")
    server = launch_on_free_port(launcher, lambda: whole_folder_spec(folder, free_port()))
    opa = SchedulingOpa.at(server.url)
    yield opa
    opa.connection.close()
    server.stop()
