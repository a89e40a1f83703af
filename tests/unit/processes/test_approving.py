from __future__ import annotations

from pathlib import Path

import pytest

from kube_sync.config import Kubernetes, Policies, Settings
from kube_sync.errors import Terminal
from kube_sync.kube.approvals import APPROVED
from kube_sync.objects import ObjectKey
from kube_sync.policysync.hubstate import GATEWAY_CLASSES
from kube_sync.processes.approving import run_approve, run_approve_removals
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


async def test_removals_are_approved_on_the_parameters_of_the_first_class(tmp_path: Path) -> None:
    async with fake_apiserver() as api:
        api.define(CONFIGMAPS, "ConfigMap")
        api.define(GATEWAY_CLASSES, "GatewayClass", builtin=False, namespaced=False)
        kubeconfig = str(api.kubeconfig(tmp_path / "kubeconfig", None))
        settings = Settings(kubernetes=Kubernetes(kubeconfig=kubeconfig))
        with pytest.raises(Terminal, match="no GatewayClass with parameters"):
            await run_approve_removals(settings, ["x"])
        for name, params in (("a", None), ("b", "gone"), ("c", "params"), ("d", "others")):
            ref = {"group": "", "kind": "ConfigMap", "namespace": "system", "name": params}
            spec = {} if params is None else {"parametersRef": ref}
            api.put(GATEWAY_CLASSES, ObjectKey("", name), spec=spec)
        for name in ("params", "others"):
            api.put(CONFIGMAPS, key(name, "system"), data={})
        said = await run_approve_removals(settings, ["moves-1"], lambda: 100.0)
        assert said == "approved on ConfigMap system/params: moves-1"
        await run_approve_removals(settings, ["moves-2"], lambda: 200.0)
        found = api.get(CONFIGMAPS, key("params", "system"))["metadata"]["annotations"]
        assert found == {APPROVED: "moves-1@100,moves-2@200"}
