"""Put the values of a chart into objects: namespace, images, resources, labels of Helm.

What an object has in such a place becomes the default of the value, so that a chart without values
is what kustomize builds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tools.charting.emitting import expression
from tools.charting.tree import Block, Either, Insert, Only, Scalar, Tree, Yaml

_NAMESPACE: Final = "kube-sync"
_IN_NAMESPACE: Final = expression(".Release.Namespace")
_IMAGE: Final = "kube-sync:dev"
# The values of each workload, and of each container.
_WORKLOADS: Final = {
    "kube-sync": "opa",
    "kube-sync-admission": "admission",
    "kube-sync-topology": "topology",
    "kube-sync-policy-sync": "policySync",
    "kube-sync-provision": "provision",
}
_CONTAINERS: Final = {
    "opa": "opa",
    "replicator": "replicator",
    "remediator": "remediator",
    "admission": "admission",
    "topology": "topology",
    "policy-sync": "policySync",
    "provision": "provision",
}
_SPREAD: Final = "topologySpreadConstraints"
_USER: Final = ".Values.runAsUser"
_IDS: Final = frozenset({"runAsUser", "runAsGroup", "fsGroup"})
# Where the manifests expect a collector of traces.
_COLLECTOR: Final = "otel-collector.monitoring.svc:4318"
_BY_TLS: Final = 'and .Values.traces.enabled (hasPrefix "https:" .Values.traces.endpoint)'
_PLACEMENT: Final = "kube-sync-placement"
_POLICIES: Final = "kube-federation-scheduling-policy"
_JOB_STAYS: Final = 3600  # seconds, longer than anybody waits for a release
_KEPT: Final = Insert('include "kube-sync.kept" .')
_ISSUER: Final = (
    '(.Values.certManager.issuerRef | default (dict "kind" "Issuer" "name" "kube-sync"))'
)


def name_of(manifest: Mapping[str, Any]) -> str:
    """Return an object as `Kind name`."""
    return f"{manifest['kind']} {manifest['metadata']['name']}"


class Furnisher:
    """Furnishes objects, and notes the defaults of the values that it puts there, by their path."""

    def __init__(self) -> None:
        self.defaults: dict[str, Any] = {}

    def furnished(self, manifest: Mapping[str, Tree]) -> dict[Any, Tree]:
        """Return an object with the places for values."""
        kind, _, name = name_of(manifest).partition(" ")
        found: dict[Any, Tree] = _namespaced(dict(manifest), ())
        metadata = found["metadata"]
        metadata["name"] = name
        metadata["labels"] = {**metadata.get("labels", {}), _labels(kind): None}
        if kind.startswith("ValidatingAdmissionPolicy"):
            metadata.pop("namespace", None)  # kustomize does not know that it has none
        if kind in ("CustomResourceDefinition", "Namespace", "PersistentVolumeClaim"):
            metadata["annotations"] = {**metadata.get("annotations", {}), _KEPT: None}
        if kind in ("Deployment", "Job", "CronJob"):
            self._workload(found, kind, _WORKLOADS[name])
        self._others(found, f"{kind} {name}")
        return found

    def _value(self, path: str, default: Tree) -> str:
        """Note a default, and return the expression of the value."""
        self.defaults[path] = default
        return f".Values.{path}"

    def _workload(self, found: dict[Any, Tree], kind: str, values: str) -> None:
        spec = found["spec"]
        if kind == "Deployment":
            spec["replicas"] = Scalar(self._value(f"{values}.replicas", spec["replicas"]))
        job = spec["jobTemplate"]["spec"] if kind == "CronJob" else spec
        self._pod(job["template"], values, checksum=kind == "Deployment")

    def _pod(self, template: dict[Any, Tree], values: str, *, checksum: bool) -> None:
        own = f'(dict "root" . "of" .Values.{values})'
        metadata, spec = template["metadata"], template["spec"]
        labels = Insert(f'include "kube-sync.podLabels" {own}')
        metadata["labels"] = {**metadata["labels"], labels: None}
        annotations = [Insert(f'include "kube-sync.podAnnotations" {own}')]
        if checksum:
            annotations.insert(0, Insert('include "kube-sync.checksum" .'))
        metadata["annotations"] = {**metadata.get("annotations", {}), **dict.fromkeys(annotations)}
        spec[Insert(f'include "kube-sync.pod" {own}')] = None
        if (spread := spec.get(_SPREAD)) is not None:
            chosen = f".Values.{values}.{_SPREAD}"
            spec[_SPREAD] = Either(chosen, Yaml(chosen), spread)
        context = spec["securityContext"]
        context |= {key: Only(_USER, Scalar(f"int64 {_USER}")) for key in _IDS & context.keys()}
        for container in spec["containers"]:
            self._container(container)

    def _container(self, container: dict[Any, Tree]) -> None:
        values = _CONTAINERS[container["name"]]
        resources = self._value(f"{values}.resources", container["resources"])
        container["resources"] = Yaml(resources)
        image = ".Values.image"
        if container["image"] != _IMAGE:
            image = f".Values.{values}.image"
            repository, _, tag = container["image"].rpartition(":")
            self.defaults |= {f"{values}.image.repository": repository, f"{values}.image.tag": tag}
        chosen = f'include "kube-sync.image" (dict "image" {image} "root" .)'
        container["image"] = expression(chosen)
        if image == ".Values.image":
            container["env"] = _with_more(container.get("env"), ".Values.env")
        else:
            container["args"].append(Only(_BY_TLS, "--set=distributed_tracing.encryption=tls"))
        container[Insert(f'include "kube-sync.pullPolicy" {image}')] = None

    def _others(self, found: dict[Any, Tree], name: str) -> None:
        spec = found.get("spec", {})
        match name:
            case "ConfigMap kube-sync":
                found["data"] = {"config.yaml": Block('include "kube-sync.config" .')}
            case "ConfigMap kube-sync-variables":
                found["data"] = {Insert('include "kube-sync.variables" .'): None}
            case "Job kube-sync-provision":
                # A Job cannot be changed: each revision and each set of values has one of its own.
                # With `--wait` Helm waits for it, as long as it takes: it may not vanish before.
                found["metadata"]["name"] += "-" + expression('include "kube-sync.revision" .')
                spec["ttlSecondsAfterFinished"] = _JOB_STAYS
            case "Certificate kube-sync-opa" | "Certificate kube-sync-admission":
                found["spec"] = {**spec, "issuerRef": Yaml(_ISSUER)}
            case "ClusterRole kube-sync-replicator" | "ClusterRole kube-sync-remediator":
                account = name.rpartition("-")[2]
                found["rules"].append(_more(f".Values.{account}.extraRules"))
            case "NetworkPolicy kube-sync-default":
                collector = Insert('include "kube-sync.collectorEgress" .')
                spec["egress"] = [
                    collector if isinstance(rule, Only) else rule for rule in spec["egress"]
                ]
                ports = [entry["port"] for entry in spec["egress"][1]["ports"]]
                path = self._value("networkPolicy.apiServerPorts", ports)
                spec["egress"][1]["ports"] = [Insert(f'include "kube-sync.tcpPorts" {path}')]
            case "NetworkPolicy kube-sync-monitoring":
                labels = spec["ingress"][0]["from"][0]["namespaceSelector"]["matchLabels"]
                ((key, namespace),) = labels.items()
                path = self._value("networkPolicy.monitoringNamespace", namespace)
                labels[key] = expression(path)
            case "PersistentVolumeClaim kube-sync-ledger":
                requests = spec["resources"]["requests"]
                requests["storage"] = expression(self._value("ledger.size", requests["storage"]))
                spec[Insert('include "kube-sync.storageClass" .')] = None
        if name.startswith(("MutatingWebhook", "ValidatingWebhook")):
            self._webhook(found)

    def _webhook(self, found: dict[Any, Tree]) -> None:
        [webhook] = found["webhooks"]
        webhook["timeoutSeconds"] = Scalar(
            self._value("webhook.timeoutSeconds", webhook["timeoutSeconds"])
        )
        if found["metadata"]["name"] != _PLACEMENT:
            return  # SchedulingPolicies and MetadataPolicies say themselves where they hold
        webhook["rules"].append(_more(".Values.webhook.rules"))
        [named] = webhook["namespaceSelector"]["matchExpressions"]
        # As the webhook itself makes it, or an upgrade would be a conflict with it.
        named["values"].remove(_POLICIES)
        policies = '(include "kube-sync.policyNamespaces" . | fromYamlArray)'
        named["values"].append(_more(f"concat {policies} .Values.webhook.exemptNamespaces"))


def _more(items: str) -> Insert:
    """Return the place of more items of a list, where there are any."""
    return Insert(f'include "kube-sync.items" ({items})')


def _with_more(items: Tree, values: str) -> Tree:
    """Return a list of items, which may depend on a condition, with those of a value."""
    if isinstance(items, Only):
        own = [Only(items.condition, item) for item in items.value]
        return Only(f"or ({items.condition}) {values}", [*own, _more(values)])
    return Only(values, [_more(values)]) if items is None else [*items, _more(values)]


def _labels(kind: str) -> Insert:
    watched = kind in ("PodMonitor", "ServiceMonitor", "PrometheusRule")
    return Insert(f'include "kube-sync.{"prometheusLabels" if watched else "labels"}" .')


def _namespaced(tree: Tree, path: tuple[str, ...]) -> Tree:
    """Put the namespace of the release where that of the manifests is, in new containers."""
    if isinstance(tree, Only):
        return Only(tree.condition, _namespaced(tree.value, path))
    if isinstance(tree, Either):
        return Either(
            tree.condition, _namespaced(tree.then, path), _namespaced(tree.otherwise, path)
        )
    if isinstance(tree, Mapping):
        return {key: _namespaced(value, (*path, str(key))) for key, value in tree.items()}
    if isinstance(tree, list):
        return [_namespaced(value, path) for value in tree]
    return _text(tree, path) if isinstance(tree, str) else tree


def _text(text: str, path: tuple[str, ...]) -> str:
    if text == _NAMESPACE and path[-1] in ("namespace", "values"):
        return _IN_NAMESPACE
    if path[-1] == "dnsNames":
        return text.replace(f".{_NAMESPACE}", f".{_IN_NAMESPACE}")
    text = text.replace(_COLLECTOR, expression('include "kube-sync.collector" .'))
    return text.replace(f".{_NAMESPACE}.svc", f".{_IN_NAMESPACE}.svc")
