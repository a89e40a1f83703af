"""Fixtures that several folders of unit tests share."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest

from kube_sync.opa.client import OpaClient
from tests.fakes.clients import opa_of
from tests.fakes.opa import FakeOpa, fake_opa


@pytest.fixture
async def opa() -> AsyncGenerator[FakeOpa]:
    """An OPA in memory, empty."""
    async with fake_opa() as opa:
        yield opa


@pytest.fixture
async def client(opa: FakeOpa) -> AsyncGenerator[OpaClient]:
    """Our own client of that OPA."""
    async with opa_of(opa) as client:
        yield client
