"""The Helm chart as the real helm renders it; `make check` compares it with kustomize."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from kube_sync import __version__
from kube_sync.config import Settings, load_settings
from kube_sync.provisioning.wanted import wanted
from tests.fakes.manifests import Manifest, containers, of_kind, pod_templates
from tools.charting.chart import CHART, ROOT
from tools.charting.comparing import INSTALLATIONS, differences, render, run
from tools.servers.binaries import ensure_binary
from tools.servers.errors import ToolError
from tools.supply.notes import tag_of

pytestmark = pytest.mark.usefixtures("launcher")  # before which helm is built

ON, OFF = {"enabled": True}, {"enabled": False}
SECRETS = {"apiGroups": [""], "resources": ["secrets"]}
DEPLOYMENTS = {
    "apiGroups": ["apps"],
    "apiVersions": ["v1"],
    "resources": ["deployments"],
    "operations": ["CREATE", "UPDATE"],
    "scope": "Namespaced",
}
PAGE = (ROOT / "docs/helm.md").read_text(encoding="utf-8")
ALL = {
    "topology": ON,
    "policySync": ON,
    "prometheus": {"monitors": ON, "rules": ON},
    "ledger": ON,
}


@pytest.fixture(scope="module")
def helm() -> Path:
    return ensure_binary("helm")


@pytest.fixture
def rendered(helm: Path, tmp_path: Path) -> Any:
    """Render the chart with values, as a function."""

    def render_with(*arguments: str, **values: Any) -> list[Manifest]:
        file = tmp_path / "values.yaml"
        file.write_text(yaml.safe_dump(values), encoding="utf-8")
        return render(helm, CHART, file, *arguments)

    return render_with


def named(manifests: list[Manifest], kind: str, name: str) -> Manifest:
    [found] = [one for one in of_kind(manifests, kind) if one["metadata"]["name"] == name]
    return found


def settings(manifests: list[Manifest], folder: Path) -> Settings:
    """Return what the processes of an installation read."""
    file = folder / "config.yaml"
    config = named(manifests, "ConfigMap", "kube-sync")["data"]["config.yaml"]
    file.write_text(config, encoding="utf-8")
    variables = named(manifests, "ConfigMap", "kube-sync-variables")["data"]
    return load_settings(str(file), variables or {})


@pytest.mark.parametrize("installation", INSTALLATIONS)
def test_chart_and_kustomize_make_the_same_objects(helm: Path, installation: str) -> None:
    assert differences(helm, installation) == []


def test_a_template_that_differs_from_the_manifests_is_found(helm: Path, tmp_path: Path) -> None:
    chart = Path(shutil.copytree(CHART, tmp_path / "chart"))
    template = chart / "templates/opa.yaml"
    text = template.read_text(encoding="utf-8")
    template.write_text(text.replace("- --authorization=basic", "- --authorization=off"))
    [found] = differences(helm, "minimal", chart)
    assert re.match(
        r"Deployment kube-sync kube-sync .*'--authorization=off' in the chart", found
    ), found


def test_linter_of_helm_finds_nothing(helm: Path) -> None:
    for values in (CHART / "ci").iterdir():
        run(helm, "lint", "--strict", str(CHART), f"--values={values}")


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"nameOverride": "x"}, "nameOverride"),
        ({"certificates": "certmanager"}, "cert-manager"),
        ({"config": {"opa": {"ulr": "https://opa"}}}, "ulr"),
        ({"config": {"remediate": {"mode": False}}}, "mode"),
        ({"config": {"admission": {"classes": True}}}, "classes"),
        ({"ledger": {"enabled": True}, "opa": {"replicas": 2}}, "replicas"),
        ({"admission": {"replicas": 1}}, "replicas"),
        ({"networkPolicy": {"apiServerPorts": []}}, "apiServerPorts"),
        ({"opa": {"resources": {"limit": {"memory": "1Gi"}}}}, "/opa/resources.*limit"),
        ({"config": {"decisions": {"listen": 9400}}}, "/config/decisions/listen"),
        ({"traces": {"endpoint": "otel:4318"}}, "/traces/endpoint"),
        ({"env": [{"name": "KUBE_SYNC_BUILTIN", "value": "[]"}]}, "KUBE_SYNC_BUILTIN.*config"),
        (
            {"replicator": {"extraRules": [SECRETS | {"verbs": ["get"]}]}},
            "/verbs/0.*'list', 'watch'",
        ),
        (
            {"webhook": {"rules": [DEPLOYMENTS | {"apiGroups": ["*"]}]}},
            r"/rules/0/apiGroups/0.*'[*]'",
        ),
        (
            {"webhook": {"rules": [DEPLOYMENTS | {"resources": ["*/status"]}]}},
            r"/rules/0/resources/0.*'[*]/status'",
        ),
        ({"webhook": {"rules": [DEPLOYMENTS | {"scope": "Cluster"}]}}, "/scope.*'Namespaced'"),
        (
            {"webhook": {"rules": [{k: v for k, v in DEPLOYMENTS.items() if k != "scope"}]}},
            "/webhook/rules/0.*scope",
        ),
        ({"scheduling": ON, "placement": OFF}, "scheduling.enabled needs placement.enabled"),
        ({"argocd": {"health": ON}, "placement": OFF}, "argocd.health.enabled needs placement"),
        (
            {"scheduling": ON, "config": {"builtin": ["metadata"]}},
            "needs scheduling in config.builtin",
        ),
        (
            {"certManager": {"issuerRef": {"name": "own"}}},
            "issuerRef needs certificates: cert-manager",
        ),
        ({"opa": {"podLabels": {"app.kubernetes.io/name": "x"}}}, "opa.podLabels: .*name is taken"),
        ({"argocd": {"health": {"servers": ON}}}, "servers.enabled needs argocd.health.enabled"),
    ],
)
def test_values_that_are_wrong_are_refused_by_name(
    rendered: Any, values: dict[str, Any], said: str
) -> None:
    with pytest.raises(ToolError, match=said):
        rendered(**values)


@pytest.mark.parametrize("namespace", ["default", "kube-system"])
def test_a_namespace_that_others_share_is_refused(helm: Path, namespace: str) -> None:
    """All its pods would get the NetworkPolicies, and the webhook would leave out its objects."""
    with pytest.raises(ToolError, match="a namespace of its own"):
        run(helm, "template", "kube-sync", str(CHART), f"--namespace={namespace}")


def test_values_of_all_pods_are_in_each_and_a_workload_has_its_own(rendered: Any) -> None:
    for_all = {
        "nodeSelector": {"os": "linux"},
        "tolerations": [{"key": "infra", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "priorityClassName": "high",
        "imagePullSecrets": [{"name": "registry"}],
    }
    own = {"nodeSelector": {"disk": "fast"}, "podAnnotations": {"b": "2"}, "podLabels": {"d": "4"}}
    manifests = rendered(**for_all, **ALL, podAnnotations={"a": "1"}, podLabels={"c": "3"}, opa=own)
    templates = dict(pod_templates(manifests))
    assert len(templates) == 6
    for name, template in templates.items():
        is_opa = name == "Deployment kube-sync"
        expected = for_all | ({"nodeSelector": {"disk": "fast"}} if is_opa else {})
        assert {key: template["spec"].get(key) for key in for_all} == expected
        annotations, labels = (template["metadata"][key] for key in ("annotations", "labels"))
        assert (annotations["a"], annotations.get("b")) == ("1", "2" if is_opa else None)
        assert (labels["c"], labels.get("d")) == ("3", "4" if is_opa else None)


def test_images_resources_and_labels_are_those_of_the_values(rendered: Any) -> None:
    digest = "sha256:" + "0" * 64
    manifests = rendered(
        "--set=image.tag=",
        image={"repository": "r.example/ks", "pullPolicy": "Always"},
        opa={"image": {"digest": digest}, "resources": {"limits": {"memory": "9Gi"}}},
        labels={"team": "x"},
        **ALL,
    )
    for _, container in containers(manifests):
        if container["name"] == "opa":
            assert container["image"] == f"openpolicyagent/opa@{digest}"
            assert container["resources"]["limits"] == {
                "memory": "9Gi",
                "ephemeral-storage": "512Mi",
            }
        else:
            assert container["image"] == f"r.example/ks:{tag_of(__version__)}"  # as it is published
            assert container["imagePullPolicy"] == "Always"
    assert {one["metadata"]["labels"]["team"] for one in manifests} == {"x"}


def test_pods_have_the_environment_the_user_and_the_spread_of_the_values(rendered: Any) -> None:
    headers = {"name": "OTEL_EXPORTER_OTLP_HEADERS", "value": "a=b"}
    spread = [{"maxSkew": 2, "topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule"}]
    generator = {"generator": ON}
    own = {"topologySpreadConstraints": spread}
    manifests = rendered(**ALL, env=[headers], runAsUser=1_000_680_000, argocd=generator, opa=own)
    for pod, container in containers(manifests):
        variables = [one["name"] for one in container.get("env", ())]
        assert (headers in container.get("env", ())) == (container["name"] != "opa")
        assert len({*variables}) == len(variables)
        identities = [v for k, v in pod["securityContext"].items() if k.startswith(("runAs", "fs"))]
        assert {*identities} == {True, 1_000_680_000}
    spreads = {
        name: template["spec"].get("topologySpreadConstraints")
        for name, template in pod_templates(manifests)
    }
    assert spreads.pop("Deployment kube-sync") == spread
    assert [len(one) for one in spreads.values() if one] == [2, 2, 2]
    manifests = rendered(**ALL, runAsUser=None)
    for pod, _ in containers(manifests):
        assert pod["securityContext"].keys() == {"runAsNonRoot", "seccompProfile"}


def test_roles_and_registrations_have_the_rules_of_the_values(rendered: Any) -> None:
    deployments = {"apiGroups": ["apps"], "resources": ["deployments"]}
    read, patch = (deployments | {"verbs": [*verbs]} for verbs in (("list", "watch"), ("patch",)))
    webhook = {"rules": [DEPLOYMENTS], "exemptNamespaces": ["ci"], "timeoutSeconds": 9}
    manifests = rendered(
        replicator={"extraRules": [read]},
        remediator={"extraRules": [patch]},
        webhook=webhook,
        scheduling=ON,
        metadata=ON,
        config={"policies": {"namespaces": ["a", "b"]}},
    )
    for account, rule in (("replicator", read), ("remediator", patch)):
        assert rule in named(manifests, "ClusterRole", f"kube-sync-{account}")["rules"]
    kinds = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
    registrations = of_kind(manifests, *kinds)
    assert len(registrations) == 6
    for one in registrations:
        [found] = one["webhooks"]
        of_placement = one["metadata"]["name"] == "kube-sync-placement"
        assert (DEPLOYMENTS in found["rules"]) == of_placement
        assert found["timeoutSeconds"] == 9
        [left_out] = found["namespaceSelector"]["matchExpressions"]
        more = ["a", "b", "ci"] if of_placement else []
        assert left_out["values"] == ["kube-system", "kube-sync", *more]


@pytest.mark.parametrize(
    ("endpoint", "to"),
    [
        ("http://tempo.watch.svc.cluster.local:4319", "watch"),
        ("https://otlp.example.com:443", None),
        ("http://localhost:4318", ""),
    ],
)
def test_traces_go_to_the_collector_of_the_values(
    rendered: Any, tmp_path: Path, endpoint: str, to: str | None
) -> None:
    manifests = rendered(traces={**ON, "endpoint": endpoint})
    assert settings(manifests, tmp_path).observe.tracing.enabled
    variables = named(manifests, "ConfigMap", "kube-sync-variables")["data"]
    assert variables["OTEL_EXPORTER_OTLP_ENDPOINT"] == endpoint
    [opa] = [container for _, container in containers(manifests) if container["name"] == "opa"]
    address = endpoint.partition("//")[2]
    assert f"--set=distributed_tracing.address={address}" in opa["args"]
    by_tls = "--set=distributed_tracing.encryption=tls" in opa["args"]
    assert by_tls == endpoint.startswith("https:")
    egress = named(manifests, "NetworkPolicy", "kube-sync-default")["spec"]["egress"][2:]
    if to == "":
        assert egress == [], "it runs in the pod"
        return
    [rule] = egress
    assert [one["port"] for one in rule["ports"]] == [int(address.rpartition(":")[2])]
    selector = {"matchLabels": {"kubernetes.io/metadata.name": to}}
    assert rule.get("to") == (None if to is None else [{"namespaceSelector": selector}])


def test_rights_in_argo_cds_namespace_are_of_the_feature_that_needs_them(rendered: Any) -> None:
    def roles(**argocd: Any) -> set[str]:
        manifests = rendered(argocd=argocd)
        found = of_kind(manifests, "Role", "ClusterRole")
        kept = ("argocd", "generator", "applications")
        names = {one["metadata"]["name"].removeprefix("kube-sync-") for one in found}
        return {name for name in names if any(word in name for word in kept)}

    assert roles() == set()
    assert roles(health=ON) == {"remediator-applications"}
    servers = {"remediator-applications", "remediator-argocd"}
    assert roles(health={**ON, "servers": ON}) == servers
    assert roles(generator=ON) == {"provision-generator", "remediator-argocd"}
    placed = {"replicator-applicationsets", "remediator-applicationsets"}
    assert roles(applicationSets=ON) == placed
    by_hand = rendered(argocd={"generator": ON}, certificates="none")
    assert "kube-sync-provision-generator" not in {one["metadata"]["name"] for one in by_hand}


def test_monitors_ledger_and_issuer_are_as_the_values_say(rendered: Any) -> None:
    manifests = rendered(
        ledger={"enabled": True, "size": "5Gi", "storageClassName": "fast"},
        prometheus={"monitors": {"enabled": True}, "labels": {"release": "p"}},
        certificates="cert-manager",
        certManager={"issuerRef": {"kind": "ClusterIssuer", "name": "own"}},
        networkPolicy={"apiServerPorts": [7443], "monitoringNamespace": "watch"},
    )
    claim = named(manifests, "PersistentVolumeClaim", "kube-sync-ledger")["spec"]
    assert claim["storageClassName"] == "fast"
    assert claim["resources"]["requests"]["storage"] == "5Gi"
    for monitor in of_kind(manifests, "PodMonitor", "ServiceMonitor"):
        assert monitor["metadata"]["labels"]["release"] == "p"
    assert of_kind(manifests, "Issuer") == []
    certificates = of_kind(manifests, "Certificate")
    assert [one["spec"]["issuerRef"]["name"] for one in certificates] == ["own", "own"]
    policy = named(manifests, "NetworkPolicy", "kube-sync-default")["spec"]
    assert policy["egress"][1]["ports"] == [{"protocol": "TCP", "port": 7443}]


def test_keys_of_config_are_in_the_file_and_no_variable_overrides_them(
    rendered: Any, tmp_path: Path
) -> None:
    config = {
        "remediate": {"mode": "dry-run", "guard": {"moves_per_minute": 5}},
        "admission": {"classes": "off"},
        "builtin": ["scheduling", "metadata"],
    }
    found = settings(rendered(config=config, scheduling={"enabled": True}), tmp_path)
    assert found.remediate.mode == "dry-run"
    assert found.remediate.guard.moves_per_minute == 5
    assert found.admission.classes == "off"
    assert list(found.builtin) == ["scheduling", "metadata"]
    assert found.admission.registration.name == "kube-sync-placement", "of the chart's own file"
    before = settings(rendered(scheduling={"enabled": True}), tmp_path)
    assert (before.remediate.mode, list(before.builtin)) == ("enforce", ["scheduling"])


def test_a_change_of_the_configuration_replaces_the_pods(rendered: Any) -> None:
    def checksums(**values: Any) -> set[str]:
        templates = dict(pod_templates(rendered(**ALL, **values)))
        return {
            template["metadata"]["annotations"]["checksum/config"]
            for name, template in templates.items()
            if name.startswith("Deployment")
        }

    [one] = checksums()
    [other] = checksums(config={"remediate": {"mode": "manual"}})
    assert one != other
    assert checksums() == {one}


def test_each_set_of_values_has_a_job_of_its_own(rendered: Any) -> None:
    """What renders without Helm's history would change the Job otherwise, which nobody can."""

    def job(**values: Any) -> str:
        [found] = of_kind(rendered(**values), "Job")
        return str(found["metadata"]["name"])

    assert job() == job()
    assert job() != job(image={"digest": "sha256:" + "0" * 64})


def test_any_namespace_can_be_that_of_the_release(rendered: Any, tmp_path: Path) -> None:
    systems = {"scheduling": {"enabled": True}, "metadata": {"enabled": True}}
    manifests = rendered("--namespace=elsewhere", certificates="cert-manager", **ALL, **systems)
    found = settings(manifests, tmp_path)
    assert found.coordination.namespace == "elsewhere"
    assert {namespace for one in manifests for namespace in namespaces_of(one)} <= NAMESPACES
    for certificate in wanted(found).certificates:
        [made] = [
            one["spec"]
            for one in of_kind(manifests, "Certificate")
            if one["spec"]["secretName"] == certificate.secret
        ]
        assert {*made["dnsNames"], *made.get("ipAddresses", ())} == {*certificate.hosts}
    [url] = {
        entry["value"]
        for _, container in containers(manifests)
        for entry in container.get("env", ())
        if entry["name"] == "KUBE_SYNC_OPA_URL"
    }
    assert url == "https://kube-sync-opa.elsewhere.svc:8181"


NAMESPACES = {"elsewhere", "kube-system", "kube-federation-scheduling-policy"}


def namespaces_of(tree: Any) -> Iterator[str]:
    """Yield every namespace that an object names."""
    if isinstance(tree, dict):
        for key, value in tree.items():
            if key == "namespace" and isinstance(value, str):
                yield value
            elif key == "namespaceSelector":
                yield from (v for e in value.get("matchExpressions", ()) for v in e["values"])
            else:
                yield from namespaces_of(value)
    elif isinstance(tree, list):
        for value in tree:
            yield from namespaces_of(value)


def test_values_on_the_page_are_values_of_the_chart(rendered: Any, tmp_path: Path) -> None:
    blocks = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    assert len(blocks) == 3
    for block in blocks:
        assert settings(rendered(**yaml.safe_load(block)), tmp_path)


def test_notes_say_what_to_do_next(helm: Path) -> None:
    notes = {}
    for name in ("minimal", "production", "spoke"):
        values = f"--values={CHART}/ci/{name}-values.yaml"
        arguments = ("--dry-run=client", "--namespace=kube-sync", values, "--set=image.tag=dev")
        said = run(helm, "install", "kube-sync", str(CHART), *arguments)
        notes[name] = said.partition("NOTES:")[2]
    for text in notes.values():
        assert "kubectl --namespace kube-sync wait --for=condition=Available" in text
        assert "kube-sync:dev, which no registry has" in text
    assert re.search(r"the Job kube-sync-provision-1-[0-9a-f]{8} has made", notes["minimal"])
    assert "cert-manager the certificates" in notes["production"]
    assert "only pods that a SchedulingPolicy allows" in notes["production"]
    assert "multicluster.x-k8s.io/v1alpha1/ClusterProfile (docs" in notes["minimal"]
    [as_on_the_page] = re.findall("^kubectl apply .*manifests/crds$", PAGE, re.MULTILINE)
    assert as_on_the_page in notes["minimal"]
    assert "manifests/crds" not in notes["production"]
    assert "helm test" in notes["minimal"]
    assert "helm test" not in notes["spoke"]
