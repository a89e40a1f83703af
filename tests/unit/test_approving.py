from __future__ import annotations

from pathlib import Path

import pytest

from kube_sync.app import run_approve
from kube_sync.errors import Terminal
from kube_sync.kube.approvals import APPROVED
from kube_sync.settings import Kubernetes, Policies, Settings
from tests.fakes.apiserver import fake_apiserver
from tests.fakes.clients import CONFIGMAPS, key

REGO = {"p.rego": "package p"}


async def test_an_approval_is_written_on_the_first_policy(tmp_path: Path) -> None:
    async with fake_apiserver() as api:
        api.define(CONFIGMAPS, "ConfigMap")
        settings = Settings(
            kubernetes=Kubernetes(kubeconfig=str(api.kubeconfig(tmp_path / "kubeconfig", None))),
            policies=Policies(namespaces=("other", "policies")),
        )
        with pytest.raises(Terminal, match="no policy ConfigMap in other, policies to approve"):
            await run_approve(settings, ["x"])
        for name, data in (("a", {"ca.crt": ""}), ("c", REGO), ("b", REGO)):
            api.put(CONFIGMAPS, key(name, "policies"), data=data)
        said = await run_approve(settings, ["moves-1", "fleet-2"], lambda: 100.0)
        assert said == "approved on ConfigMap policies/b: moves-1, fleet-2"
        await run_approve(settings, ["freeze-3"], lambda: 200.0)
        found = api.get(CONFIGMAPS, key("b", "policies"))["metadata"]["annotations"]
        assert found == {APPROVED: "moves-1@100,fleet-2@100,freeze-3@200"}
