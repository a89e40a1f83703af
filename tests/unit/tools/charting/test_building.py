from __future__ import annotations

from tools.charting.building import built
from tools.charting.chart import ROOT
from tools.charting.parts import Build


def test_names_have_no_hashes_wherever_they_are() -> None:
    found = built(ROOT / "manifests", Build(("config", "opa")))
    names = {one["metadata"]["name"] for one in found if one["kind"] == "ConfigMap"}
    assert names == {"kube-sync", "kube-sync-opa", "kube-sync-variables"}
    [deployment] = [one for one in found if one["kind"] == "Deployment"]
    pod = deployment["spec"]["template"]["spec"]
    maps = {one["configMap"]["name"] for one in pod["volumes"] if "configMap" in one}
    sources = [one["envFrom"][0]["configMapRef"]["name"] for one in pod["containers"][1:]]
    assert maps | {*sources} == names
