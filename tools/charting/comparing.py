"""Whether the chart and kustomize make the same objects, for each installation with values.

What Helm's own way makes different is taken away from both, by `_of_helm` and `_of_kustomize`, and
nothing else.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from kube_sync.yamlnodes import Rules, plain, single
from tools.charting.building import Manifest, built
from tools.charting.chart import CHART, ROOT
from tools.charting.parts import Build
from tools.charting.tree import identity
from tools.servers.errors import ToolError
from tools.servers.manifests import documents_of

# What kustomize builds where the chart has the values `ci/NAME-values.yaml`.
_MINIMAL: Final = "overlays/minimal"
INSTALLATIONS: Final[Mapping[str, Build]] = {
    "minimal": Build((_MINIMAL,)),
    "production": Build(("overlays/production",)),
    "hub": Build(("overlays/hub",)),
    "spoke": Build(("overlays/spoke",)),
    "scheduling": Build(
        (_MINIMAL, "crds", "scheduling-rbac", "webhook-scheduling"),
        variables=("KUBE_SYNC_BUILTIN=[scheduling]",),
    ),
    "metadata": Build(
        (_MINIMAL, "crds", "metadata-rbac", "webhook-metadata"),
        variables=("KUBE_SYNC_BUILTIN=[metadata]",),
    ),
    "topology": Build((_MINIMAL, "topology-rbac", "topology", "topology-data-rbac")),
    "fleet": Build(
        (
            _MINIMAL,
            "labelled",
            "placement-decisions",
            "ocm-placement-decisions",
            "multikueue",
            "policy-sync-direct-rbac",
            "argocd",
            "argocd-applicationsets",
            "argocd-health",
        ),
        ("argocd", "ledger", "openreports", "traces"),
    ),
    "ocm-argocd": Build(
        (
            "base",
            "config",
            "opa",
            "admission",
            "webhook",
            "provision",
            "ocm-placement-decisions-argocd",
            "argocd-health",
            "argocd-clusters",
        )
    ),
}
_HELM_LABELS: Final = frozenset(
    {
        "helm.sh/chart",
        "app.kubernetes.io/instance",
        "app.kubernetes.io/version",
        "app.kubernetes.io/managed-by",
    }
)
_HELM_ANNOTATIONS: Final = frozenset({"helm.sh/resource-policy", "checksum/config"})
# Lists of named items that a component adds to, kustomize at the beginning.
_UNORDERED: Final = frozenset({"containers", "env", "ports", "volumes", "volumeMounts"})
_REVISION: Final = re.compile(r"-1-[0-9a-f]{8}$")  # of the release, and its values
_Id = tuple[str, str, str]  # kind, namespace, name
Objects = dict[_Id, Any]


def differences(helm: Path, installation: str, chart: Path = CHART) -> list[str]:
    """Return where an installation differs, a line each. Raises ToolError."""
    ours = _by_id(built(ROOT / "manifests", INSTALLATIONS[installation]), _of_kustomize)
    rendered = render(helm, chart, chart / f"ci/{installation}-values.yaml")
    return [*_differing(_by_id(rendered, _of_helm), ours)]


def render(helm: Path, chart: Path, values: Path, *arguments: str) -> list[Manifest]:
    """Return the objects that helm makes of a chart, without its tests. Raises ToolError."""
    options = ["--namespace=kube-sync", "--skip-tests", "--set=image.tag=dev", *arguments]
    said = run(helm, "template", "kube-sync", str(chart), f"--values={values}", *options)
    return [*documents_of(said)]


def run(
    helm: Path,
    *arguments: str,
    environment: Mapping[str, str] | None = None,
    seconds: float = 60.0,
) -> str:
    """Run helm and return what it prints. Raises ToolError with what it says."""
    answer = subprocess.run(
        [helm, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    if answer.returncode != 0:
        msg = f"helm {' '.join(arguments[:3])}: {(answer.stderr or answer.stdout).strip()}"
        raise ToolError(msg)
    return answer.stdout


def _by_id(manifests: list[Manifest], plainly: Callable[[Manifest], Manifest]) -> Objects:
    found = {}
    for manifest in map(plainly, manifests):
        metadata = manifest["metadata"]
        found[manifest["kind"], metadata.get("namespace", ""), metadata["name"]] = manifest
    found.pop(("Namespace", "", "kube-sync"), None)  # Helm makes it, or finds it
    return found


def _of_helm(manifest: Manifest) -> Manifest:
    """Take away what only Helm has: its labels, annotations, and a Job for each revision."""
    if manifest["kind"] == "Job":
        manifest["metadata"]["name"] = _REVISION.sub("", manifest["metadata"]["name"])
        manifest["spec"].pop("ttlSecondsAfterFinished")
    for metadata in _metadata(manifest):
        for name, own in (("labels", _HELM_LABELS), ("annotations", _HELM_ANNOTATIONS)):
            kept = {k: v for k, v in (metadata.get(name) or {}).items() if k not in own}
            metadata[name] = kept or None
    found: Manifest = _without_nulls(_parsed(manifest))
    return found


def _of_kustomize(manifest: Manifest) -> Manifest:
    """Take away what only kustomize has: namespaces where none can be, a Job's end."""
    if manifest["kind"] == "Job":
        manifest["spec"].pop("ttlSecondsAfterFinished")
    if manifest["kind"].startswith("ValidatingAdmissionPolicy"):
        manifest["metadata"].pop("namespace", None)
    found: Manifest = _without_nulls(_parsed(manifest))
    return found


def _metadata(manifest: Manifest) -> Iterator[Manifest]:
    """Yield the metadata of an object, and of the pods that it makes."""
    yield manifest["metadata"]
    spec = manifest.get("spec") or {}
    for template in (spec, spec.get("jobTemplate", {}).get("spec", {})):
        if "template" in template:
            yield template["template"]["metadata"]


def _without_nulls(tree: Any) -> Any:
    """Drop nulls, and sort the lists whose order means nothing by the names of their items."""
    if isinstance(tree, list):
        return [_without_nulls(value) for value in tree]
    if not isinstance(tree, dict):
        return tree
    found = {key: _without_nulls(value) for key, value in tree.items() if value is not None}
    return found | {key: _sorted(found[key]) for key in _UNORDERED & found.keys()}


def _sorted(items: Any) -> Any:
    named = isinstance(items, list) and all("name" in item for item in items)
    return sorted(items, key=identity) if named else items


def _parsed(manifest: Manifest) -> Manifest:
    """Parse the configuration file: its comments and the order of its keys mean nothing."""
    if manifest["kind"] == "ConfigMap" and "config.yaml" in (manifest.get("data") or {}):
        text = manifest["data"]["config.yaml"]
        if (node := single(text, Rules(words=True), "configuration")) is not None:
            manifest["data"]["config.yaml"] = plain(node)
    return manifest


def _differing(chart: Objects, kustomize: Objects) -> Iterator[str]:
    for one in sorted(chart.keys() | kustomize.keys()):
        name = " ".join(filter(None, one))
        if one not in chart:
            yield f"{name}: not in the chart"
        elif one not in kustomize:
            yield f"{name}: only in the chart"
        else:
            yield from _places(name, chart[one], kustomize[one])


def _places(path: str, chart: Any, kustomize: Any) -> Iterator[str]:
    """Yield the innermost places where two values differ."""
    if isinstance(chart, dict) and isinstance(kustomize, dict):
        for key in sorted(chart.keys() | kustomize.keys()):
            yield from _places(f"{path} {key}", chart.get(key), kustomize.get(key))
    elif isinstance(chart, list) and isinstance(kustomize, list) and len(chart) == len(kustomize):
        for number, pair in enumerate(zip(chart, kustomize, strict=True)):
            yield from _places(f"{path}[{number}]", *pair)
    elif chart != kustomize:
        yield f"{path}: {chart!r} in the chart, {kustomize!r} by kustomize"
