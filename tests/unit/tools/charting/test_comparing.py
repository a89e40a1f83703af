from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tools.charting import comparing
from tools.charting.comparing import differences

MINIMAL: list[dict[str, Any]] = [
    {"kind": "Namespace", "metadata": {"name": "kube-sync"}},
    {
        "kind": "Deployment",
        "metadata": {"name": "a", "namespace": "kube-sync"},
        "spec": {
            "template": {
                "metadata": {"labels": {"app": "a"}},
                "spec": {"volumes": [{"name": "x"}, {"name": "y", "configMap": "kube-sync-opa"}]},
            }
        },
    },
    {
        "kind": "Job",
        "metadata": {"name": "provision", "namespace": "kube-sync"},
        "spec": {"ttlSecondsAfterFinished": 60},
    },
]
DEPLOYMENT = "Deployment kube-sync a"
HELM_LABELS = {"helm.sh/chart": "kube-sync-1", "app.kubernetes.io/managed-by": "Helm"}


@pytest.fixture(autouse=True)
def _kustomize(monkeypatch: pytest.MonkeyPatch) -> None:
    text = yaml.safe_dump_all(MINIMAL)
    monkeypatch.setattr(comparing, "built", lambda *_: [*yaml.safe_load_all(text)])


def _differences(monkeypatch: pytest.MonkeyPatch, text: str) -> list[str]:
    monkeypatch.setattr(comparing, "run", lambda *_arguments, **_: text)
    return differences(Path("helm"), "minimal")


def _helms() -> list[dict[str, Any]]:
    """What a chart makes of the same, in Helm's way."""
    _, deployment, job = yaml.safe_load_all(yaml.safe_dump_all(MINIMAL))
    job["metadata"]["name"] += "-1-0a1b2c3d"
    job["spec"]["ttlSecondsAfterFinished"] = 3600
    for metadata in (deployment["metadata"], deployment["spec"]["template"]["metadata"]):
        metadata["labels"] = {**metadata.get("labels", {}), **HELM_LABELS}
        metadata["annotations"] = {"checksum/config": "0"}
    deployment["spec"]["template"]["spec"]["volumes"].reverse()
    return [deployment, job]


def test_what_is_only_helms_way_is_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _differences(monkeypatch, yaml.safe_dump_all(_helms())) == []


def test_differences_are_named_with_their_place(monkeypatch: pytest.MonkeyPatch) -> None:
    deployment, job = _helms()
    deployment["spec"]["template"]["metadata"]["labels"]["app"] = "b"
    job["spec"]["backoffLimit"] = 1
    extra = {"kind": "Secret", "metadata": {"name": "s"}}
    text = yaml.safe_dump_all([deployment, job, extra])
    assert _differences(monkeypatch, text) == [
        f"{DEPLOYMENT} spec template metadata labels app: 'b' in the chart, 'a' by kustomize",
        "Job kube-sync provision spec backoffLimit: 1 in the chart, None by kustomize",
        "Secret s: only in the chart",
    ]
    assert _differences(monkeypatch, yaml.safe_dump_all([deployment])) == [
        f"{DEPLOYMENT} spec template metadata labels app: 'b' in the chart, 'a' by kustomize",
        "Job kube-sync provision: not in the chart",
    ]
