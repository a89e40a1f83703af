"""Certificates that the tests of the webhook share."""

from __future__ import annotations

from pathlib import Path

import pytest

from kube_sync.certificates import write_certificates


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ca.crt, ca.key, tls.crt and tls.key for 127.0.0.1."""
    folder = tmp_path_factory.mktemp("certificates")
    write_certificates(folder, ["127.0.0.1"])
    return folder
