"""Policies one by one, through a table that stands for OPA."""

from __future__ import annotations

from typing import Any, cast

import msgspec

from kube_sync.opa.client import LoadedPolicy
from kube_sync.opa.entry import ENTRY_MODULE
from kube_sync.opa.paths import DataPath
from kube_sync.policies.policy_api import Puts

LANE = {f"kube_sync_stage/canary/p__{name}": f"package {name}" for name in "ab"}


class Table:
    """Modules, and the order in which they came and went."""

    def __init__(self) -> None:
        self.steps: list[tuple[str, str]] = []

    async def put_data(self, path: DataPath, document: bytes) -> None:
        """Keep nothing."""

    async def get_data(self, path: DataPath) -> bytes | None:
        """Return what an earlier process wrote down."""
        return msgspec.json.encode([ENTRY_MODULE, *LANE]) if path else None

    async def put_policy(self, policy_id: str, source: str) -> None:
        """Take a module."""
        assert source
        self.steps.append(("put", policy_id))

    async def delete_policy(self, policy_id: str) -> None:
        """Take one out."""
        self.steps.append(("delete", policy_id))


async def test_entry_goes_before_the_lane_that_it_leads_to_and_before_all_else() -> None:
    """Else half a lane would decide for those who ask by the entry."""
    table = Table()
    puts = Puts(cast("Any", table), ["p"])
    await puts.adopt([LoadedPolicy(policy_id, "") for policy_id in (*LANE, ENTRY_MODULE)])
    found = await puts.deliver({"p/a/a.rego": "package a"})
    assert found.modules == {"p/a/a.rego": "package a"}
    assert table.steps[0] == ("delete", ENTRY_MODULE)
    assert sorted(table.steps[1:]) == [*(("delete", i) for i in LANE), ("put", "p/a/a.rego")]
