from __future__ import annotations

import subprocess
import sys

import pytest

from kube_sync.kube.clientconfig import config_modules

_READ = """
import sys
from kube_sync.kube.clientconfig import config_modules
kube_config, incluster_config = config_modules()
print(sorted(n for n in sys.modules if n.startswith(("kubernetes_asyncio", "urllib3"))))
configuration = kube_config.Configuration()
configuration.username, configuration.password = "a", "b"
print(configuration.get_basic_auth_token())
from kubernetes_asyncio import client, config
print(client.V1Pod.__name__, callable(config.load_kube_config), client.ApiClient.__name__)
"""


def test_configuration_is_read_without_models_and_urllib3_which_can_be_imported_after() -> None:
    finished = subprocess.run(
        [sys.executable, "-c", _READ], capture_output=True, text=True, timeout=60, check=True
    )
    assert finished.stdout.splitlines() == ["[]", "Basic YTpi", "V1Pod True ApiClient"]


def test_a_release_that_is_laid_out_otherwise_is_imported_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config_modules.cache_clear()
    for name in [name for name in sys.modules if name.startswith("kubernetes_asyncio")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr("kube_sync.kube.clientconfig._CONFIG_MODULE", "no_such_module")
    kube_config, incluster_config = config_modules()
    assert kube_config.Configuration is incluster_config.Configuration
    assert "kubernetes_asyncio.client.models" in sys.modules
    config_modules.cache_clear()
