"""One plain OPA for all tests of the analysis, emptied of policies by each that loads some."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.analysis.opa import PolicyOpa, plain_spec
from tools.servers.running import Launcher, free_port, launch_on_free_port


@pytest.fixture(scope="session")
def policy_opa(launcher: Launcher, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PolicyOpa]:
    """Compiles policies and decides."""
    folder = tmp_path_factory.mktemp("policy-opa")
    server = launch_on_free_port(launcher, lambda: plain_spec(folder, free_port()))
    opa = PolicyOpa.at(server.url)
    yield opa
    opa.connection.close()
    server.stop()
