"""A checkout and a shell for whoever does what a page of the documentation says."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.pages import Reader
from tools.servers.binaries import ensure_binary
from tools.servers.stack import stop_recorded

ROOT = Path(__file__).resolve().parents[2]
_OF_THE_READER = (".run", "tutorial", "argocd-try", "packs-try")
_NOT_PASSED_ON = ("COLUMNS", "KUBE", "MAKE", "MFLAGS", "STACK", "DOCKER", "WITH")


@contextmanager
def checked_out() -> Iterator[Path]:
    """Lend a checkout that shares all but what its reader makes in it.

    It does not lie where tests usually put their files: another session ends whatever runs below
    and has lost who started it, as a stack does that `make` has started.
    """
    folder = Path(tempfile.mkdtemp(prefix="kube-sync-tutorial-")).resolve()
    for found in ROOT.iterdir():
        if found.name not in _OF_THE_READER:
            (folder / found.name).symlink_to(found)
    yield folder
    stop_recorded(folder / ".run")
    shutil.rmtree(folder)


@pytest.fixture
def checkout() -> Iterator[Path]:
    """A checkout of the test's own."""
    with checked_out() as folder:
        yield folder


@pytest.fixture
def reader(checkout: Path) -> Reader:
    """A reader whose commands find no container engine, and nobody else's stack."""
    for name in ("etcd", "kube-apiserver"):
        ensure_binary(name)
    passed_on = {k: v for k, v in os.environ.items() if not k.startswith(_NOT_PASSED_ON)}
    own = {"KUBE_SYNC_RUN": str(checkout / ".run"), "DOCKER_HOST": f"unix://{checkout}/none"}
    host = {"KUBE_SYNC_COMPOSE_HOST": str(checkout / ".run/compose")}
    return Reader(checkout, {**passed_on, **own, **host})
