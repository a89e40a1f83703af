"""What the manifests say fits what the program does: files, names, ports, versions."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from kube_sync.cli import parser
from kube_sync.config import Settings, check_stream, load_settings, parse_listen
from kube_sync.config.environment import ENV_PREFIX, fields
from kube_sync.provisioning.plan import names
from kube_sync.provisioning.wanted import GENERATOR, wanted
from tests.fakes.manifests import MANIFESTS, OVERLAYS, Manifest, build, containers, of_kind
from tools.servers.binaries import ensure_binary
from tools.servers.versions import tools

PORTS = {"replicate": 9401, "remediate": 9402, "admit": 9403, "topology": 9405, "policy-sync": 9407}


def ours(overlay: str) -> list[tuple[list[Manifest], Manifest, Manifest]]:
    manifests = build(f"overlays/{overlay}")
    return [
        (manifests, pod, container)
        for pod, container in containers(manifests)
        if container["image"] == "kube-sync:dev"
    ]


def variables(manifests: list[Manifest], container: Manifest) -> dict[str, str]:
    maps = {found["metadata"]["name"]: found for found in of_kind(manifests, "ConfigMap")}
    found: dict[str, str] = {}
    for source in container.get("envFrom", ()):
        found |= maps[source["configMapRef"]["name"]]["data"]
    return found | {entry["name"]: entry["value"] for entry in container.get("env", ())}


def settings(manifests: list[Manifest], container: Manifest, folder: Path) -> Settings:
    [found] = [
        found
        for found in of_kind(manifests, "ConfigMap")
        if found["metadata"]["name"] == "kube-sync"
    ]
    file = folder / "config.yaml"
    file.write_text(found["data"]["config.yaml"], encoding="utf-8")
    return load_settings(str(file), variables(manifests, container))


def files_in(pod: Manifest, container: Manifest) -> Iterator[str]:
    """Yield every file of a Secret or a bound token that the container finds."""
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    for mount in container["volumeMounts"]:
        place = PurePosixPath(mount["mountPath"])
        secret = volumes[mount["name"]].get("secret")
        if secret is None:
            continue
        items = [item["path"] for item in secret.get("items", ())]
        for name in items or ("ca.crt", "tls.crt", "tls.key"):
            yield str(place / name)


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_every_variable_is_a_field_and_the_configuration_is_valid(
    overlay: str, tmp_path: Path
) -> None:
    known = {field.variable for field in fields()}
    for manifests, _, container in ours(overlay):
        assert set(variables(manifests, container)) <= known
        settings(manifests, container, tmp_path)


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_every_command_line_is_understood(overlay: str) -> None:
    for _, _, container in ours(overlay):
        parser().parse_args(container["args"])


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_every_file_of_the_configuration_is_mounted_where_it_is_read(
    overlay: str, tmp_path: Path
) -> None:
    needed = {
        "replicate": (
            "opa.token_file",
            "opa.ca_file",
            "decisions.token_file",
            "decisions.basis.cert_file",
            "decisions.basis.key_file",
            "remediate.token_file",
            "placement.key_file",
        ),
        "remediate": ("decisions.token_file", "remediate.token_file", "placement.key_file"),
        "admit": (
            "placement.key_file",
            "opa.token_file",
            "opa.ca_file",
            "decisions.token_file",
            "decisions.ca_file",
            "admission.cert_file",
            "admission.key_file",
            "admission.registration.ca_file",
        ),
    }
    seen = 0
    for manifests, pod, container in ours(overlay):
        values = {field.path: field for field in fields()}
        found = settings(manifests, container, tmp_path)
        for path in needed.get(container["args"][0], ()):
            assert values[path].of(found) in set(files_in(pod, container))
            seen += 1
    assert seen == (0 if overlay == "spoke" else 18)


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_probes_ask_the_port_where_the_command_serves(overlay: str) -> None:
    for _, _, container in ours(overlay):
        command = container["args"][0]
        if command == "provision":
            continue
        port = {entry["name"]: entry["containerPort"] for entry in container["ports"]}
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            if (found := container.get(probe)) is not None:
                assert port[found["httpGet"]["port"]] == PORTS[command]
                assert found["httpGet"]["path"] in ("/livez", "/readyz")


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_every_secret_and_configmap_that_a_pod_mounts_is_made_by_somebody(overlay: str) -> None:
    manifests = build(f"overlays/{overlay}")
    made = set(names(wanted(Settings()))) | {"kube-root-ca.crt"}
    made |= {found["metadata"]["name"] for found in of_kind(manifests, "ConfigMap", "Secret")}
    made |= {found["spec"]["secretName"] for found in of_kind(manifests, "Certificate")}
    for pod, _ in containers(manifests):
        assert set(_mounted(pod["volumes"])) <= made


def _mounted(volumes: list[dict[str, Any]]) -> Iterator[str]:
    for volume in volumes:
        for source in (volume, *volume.get("projected", {}).get("sources", ())):
            if "secret" in source:
                yield source["secret"].get("secretName") or source["secret"]["name"]
            if "configMap" in source:
                yield source["configMap"]["name"]


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_no_service_speaks_in_the_name_of_the_configuration(overlay: str) -> None:
    """A Service kube-sync-opa would be KUBE_SYNC_OPA_SERVICE_HOST in every pod."""
    for pod, container in containers(build(f"overlays/{overlay}")):
        assert pod["enableServiceLinks"] is False
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert ENV_PREFIX == "KUBE_SYNC_"


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_every_container_has_requests_and_limits_but_no_limit_of_cpu(overlay: str) -> None:
    """kube-score is not asked about these, since it would want a limit of CPU."""
    for _, container in containers(build(f"overlays/{overlay}")):
        resources = container["resources"]
        assert set(resources["requests"]) == {"cpu", "memory", "ephemeral-storage"}
        assert set(resources["limits"]) == {"memory", "ephemeral-storage"}


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_ephemeral_storage_has_room_for_volumes_and_logs(overlay: str) -> None:
    """A kubelet keeps five files of logs a container; some clusters let each have 50 MB."""
    for pod, container in containers(build(f"overlays/{overlay}")):
        sizes = {
            volume["name"]: mebibytes(volume["emptyDir"]["sizeLimit"])
            for volume in pod["volumes"]
            if "emptyDir" in volume
        }
        own = sum(sizes.get(mount["name"], 0) for mount in container["volumeMounts"])
        logs = 64 if container["name"] == "provision" else 5 * 50
        storage = {
            kind: mebibytes(of["ephemeral-storage"]) for kind, of in container["resources"].items()
        }
        assert storage["requests"] < own + logs <= storage["limits"]


def mebibytes(quantity: str) -> int:
    assert quantity.endswith("Mi")
    return int(quantity.removesuffix("Mi"))


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_pods_of_a_deployment_spread_over_nodes_and_zones(overlay: str) -> None:
    for deployment in of_kind(build(f"overlays/{overlay}"), "Deployment"):
        spread = deployment["spec"]["template"]["spec"]["topologySpreadConstraints"]
        keys = [constraint["topologyKey"] for constraint in spread]
        assert keys == ["kubernetes.io/hostname", "topology.kubernetes.io/zone"]
        for constraint in spread:
            assert constraint["labelSelector"] == deployment["spec"]["selector"]
            assert constraint["whenUnsatisfiable"] == "ScheduleAnyway", "a drain would be stuck"
            assert constraint["matchLabelKeys"] == ["pod-template-hash"], "old pods would count"


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_a_drain_takes_one_pod_of_a_deployment_at_a_time(overlay: str) -> None:
    manifests = build(f"overlays/{overlay}")
    budgets = of_kind(manifests, "PodDisruptionBudget")
    for deployment in of_kind(manifests, "Deployment"):
        [spec] = [
            budget["spec"]
            for budget in budgets
            if budget["spec"]["selector"] == deployment["spec"]["selector"]
        ]
        replicas = deployment["spec"]["replicas"]
        assert spec.get("maxUnavailable", replicas - spec.get("minAvailable", 0)) == 1
        assert replicas == 2 or (overlay != "production" and replicas == 1)


@pytest.mark.parametrize("component", ["ledger", "dry-run", "two-replicas", "traces"])
def test_a_linter_finds_nothing_in_an_overlay_with_a_component(
    component: str, tmp_path: Path
) -> None:
    """`make check` asks it about the overlays as they are."""
    assert findings(yaml.safe_dump_all(_with(component, tmp_path))) == []


def test_the_linter_finds_a_deployment_of_one_replica_and_a_pod_without_a_network_policy() -> None:
    manifests = [m for m in build("overlays/minimal") if m["kind"] != "NetworkPolicy"]
    for deployment in of_kind(manifests, "Deployment"):
        deployment["metadata"]["annotations"].pop("kube-score/ignore")
    text = " ".join(findings(yaml.safe_dump_all(manifests)))
    assert "kube-sync/kube-sync apps/v1/Deployment: Deployment few replicas" in text
    assert "kube-sync/kube-sync apps/v1/Deployment: The pod does not have a matching" in text
    assert "(opa) CPU limit is not set" in text


def findings(text: str) -> list[str]:
    """Return what kube-score says of manifests, as `make check` runs it."""
    makefile = (MANIFESTS.parent / "Makefile").read_text(encoding="utf-8")
    [arguments] = re.findall(r"^SCORED := (.*)$", makefile, re.MULTILINE)
    said = subprocess.run(
        [ensure_binary("kube-score"), *arguments.split()],
        input=text,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    lines = said.stdout.splitlines()
    assert lines, said.stderr
    found = [line for line in lines if not line.startswith(("[OK]", "[SKIPPED]"))]
    assert said.returncode == bool(found), said.stderr
    return found


def test_the_webhook_has_time_to_answer_what_has_come(tmp_path: Path) -> None:
    [(manifests, pod, container)] = [
        found for found in ours("minimal") if found[2]["args"][0] == "admit"
    ]
    drain = settings(manifests, container, tmp_path).admission.drain_seconds
    notice, late, grace = 3.0, 0.25, 1.0  # seconds: see kube_sync.runtime.draining
    assert pod["terminationGracePeriodSeconds"] > notice + late + drain + grace


def test_opa_is_of_the_version_that_everything_is_tested_with() -> None:
    found = {container["image"] for _, container in containers(build("overlays/minimal"))}
    images = {image.partition("@")[0] for image in found}
    assert images == {"kube-sync:dev", tools()["opa"].image}


def test_the_job_may_touch_the_secrets_that_it_makes_and_no_others() -> None:
    [role] = [
        found
        for found in of_kind(build("overlays/minimal"), "Role")
        if found["metadata"]["name"] == "kube-sync-provision"
    ]
    [named, create] = role["rules"]
    assert set(named["resourceNames"]) == set(names(wanted(Settings())))
    [policy] = of_kind(build("provision"), "ValidatingAdmissionPolicy")
    [allowed] = [one for one in policy["spec"]["variables"] if one["name"] == "allowed"]
    known = set(re.findall(r"'(kube-sync-[a-z-]+)': ", allowed["expression"]))
    assert known == {*names(wanted(Settings())), GENERATOR}
    assert (named["verbs"], create["verbs"]) == (["get", "update"], ["create"])


def test_certificates_of_cert_manager_are_for_the_same_hosts() -> None:
    found = {
        certificate["spec"]["secretName"]: set(certificate["spec"].get("dnsNames", ()))
        | set(certificate["spec"].get("ipAddresses", ()))
        for certificate in of_kind(build("overlays/production"), "Certificate")
        if not certificate["spec"].get("isCA")
    }
    made = {each.secret: set(each.hosts) for each in wanted(Settings()).certificates}
    assert found == made


def test_with_cert_manager_the_job_makes_tokens_only() -> None:
    for overlay, expected in (("production", True), ("minimal", False)):
        jobs = [c for _, c in containers(build(f"overlays/{overlay}")) if c["name"] == "provision"]
        assert [("--tokens-only" in job["args"]) for job in jobs] == [expected, expected]


def test_production_brings_its_rules_and_dashboards() -> None:
    manifests = build("overlays/production")
    [rules] = of_kind(manifests, "PrometheusRule")
    groups = yaml.safe_load((MANIFESTS / "prometheus/rules.yaml").read_text(encoding="utf-8"))
    assert rules["spec"] == groups
    label = {"grafana_dashboard": "1"}
    found = [c for c in of_kind(manifests, "ConfigMap") if c["metadata"].get("labels") == label]
    files = {name: text for config_map in found for name, text in config_map["data"].items()}
    boards = (MANIFESTS / "dashboards").glob("*.json")
    assert files == {board.name: board.read_text(encoding="utf-8") for board in boards}


def of_command(manifests: list[Manifest], command: str) -> tuple[Manifest, Manifest]:
    """Return the pod and the container that run one of our commands."""
    [found] = [
        (pod, container)
        for pod, container in containers(manifests)
        if container["image"] == "kube-sync:dev" and container["args"][0] == command
    ]
    return found


@pytest.mark.parametrize("overlay", ["minimal", "production", "hub"])
def test_webhook_follows_the_replicator_beside_the_opa_that_it_asks(
    overlay: str, tmp_path: Path
) -> None:
    manifests = build(f"overlays/{overlay}")
    _, serving = of_command(manifests, "replicate")
    _, asking = of_command(manifests, "admit")
    served = settings(manifests, serving, tmp_path).decisions
    check_stream(served)
    asked = settings(manifests, asking, tmp_path)
    url, opa = urlsplit(asked.decisions.url), urlsplit(asked.opa.url)
    assert (url.scheme, url.hostname, url.path) == ("https", opa.hostname, "/v1/basis")
    assert url.hostname in {
        host for found in wanted(Settings()).certificates for host in found.hosts
    }
    assert asked.decisions.ca_file == asked.opa.ca_file, "one authority signs both"
    assert asked.decisions.token_file == served.token_file
    [service] = [
        found
        for found in of_kind(manifests, "Service")
        if f"{found['metadata']['name']}.kube-sync.svc" == url.hostname
    ]
    [port] = [found for found in service["spec"]["ports"] if found["port"] == url.port]
    [target] = [p for p in serving["ports"] if p["name"] == port["targetPort"]]
    assert served.basis.listen is not None
    assert parse_listen("", served.basis.listen)[1] == target["containerPort"]


def test_classes_are_on_and_one_key_switches_them_off(tmp_path: Path) -> None:
    manifests = build("overlays/minimal")
    _, container = of_command(manifests, "admit")
    assert settings(manifests, container, tmp_path).classes() == "on"
    [config] = [
        found
        for found in of_kind(manifests, "ConfigMap")
        if found["metadata"]["name"] == "kube-sync"
    ]
    text = config["data"]["config.yaml"]
    config["data"]["config.yaml"] = text.replace("classes: on", "classes: off")
    assert settings(manifests, container, tmp_path).classes() == "off"
    container["env"].append({"name": "KUBE_SYNC_ADMISSION_CLASSES", "value": "verify"})
    assert settings(manifests, container, tmp_path).classes() == "verify"


def _with(component: str, folder: Path) -> list[Manifest]:
    """Return the minimal overlay with a component."""
    kustomization = {
        "resources": [os.path.relpath(MANIFESTS / "overlays/minimal", folder)],
        "components": [os.path.relpath(MANIFESTS / "components" / component, folder)],
    }
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(kustomization), encoding="utf-8")
    return build(str(folder))


def test_the_ledger_lies_on_a_volume_that_it_fits_on_and_nothing_else_is_writable(
    tmp_path: Path,
) -> None:
    manifests = _with("ledger", tmp_path)
    [(pod, found)] = [(p, c) for p, c in containers(manifests) if c["name"] == "replicator"]
    ledger = settings(manifests, found, tmp_path).ledger
    [mount] = [m for m in found["volumeMounts"] if m["name"] == "ledger"]
    assert ledger.path is not None
    assert PurePosixPath(ledger.path).parent == PurePosixPath(mount["mountPath"])
    assert found["securityContext"]["readOnlyRootFilesystem"]
    [volume] = [v for v in pod["volumes"] if v["name"] == "ledger"]
    [claim] = of_kind(manifests, "PersistentVolumeClaim")
    assert volume["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    size = int(claim["spec"]["resources"]["requests"]["storage"].removesuffix("Gi")) << 30
    assert size >= 2 * ledger.max_size
    [deployment] = [
        d for d in of_kind(manifests, "Deployment") if d["metadata"]["name"] == "kube-sync"
    ]
    assert deployment["spec"]["replicas"] == 1, "each replicator has a ledger of its own"
    assert deployment["spec"]["strategy"] == {"type": "Recreate"}, "two would wait for one volume"
    assert len(manifests) == len(build("overlays/minimal")) + 1


def test_traces_of_all_parts_and_of_opa_go_to_one_collector_that_is_let_through(
    tmp_path: Path,
) -> None:
    manifests = _with("traces", tmp_path)
    for command in ("replicate", "remediate", "admit"):
        _, container = of_command(manifests, command)
        assert settings(manifests, container, tmp_path).observe.tracing.enabled
        collector = urlsplit(variables(manifests, container)["OTEL_EXPORTER_OTLP_ENDPOINT"])
    [opa] = [container for _, container in containers(manifests) if container["name"] == "opa"]
    said = [argument for argument in opa["args"] if argument.startswith("--set=")]
    assert [one.removeprefix("--set=distributed_tracing.") for one in said] == [
        "type=http",
        f"address={collector.netloc}",
        "sample_percentage=0",
    ]
    service, namespace, _ = str(collector.hostname).split(".")
    [policy] = [
        found
        for found in of_kind(manifests, "NetworkPolicy")
        if found["metadata"]["name"] == "kube-sync-default"
    ]
    [egress] = [rule for rule in policy["spec"]["egress"] if "to" in rule]
    [peer] = egress["to"]
    labels = peer["namespaceSelector"]["matchLabels"]
    assert (service, labels) == ("otel-collector", {"kubernetes.io/metadata.name": namespace})
    assert egress["ports"] == [{"protocol": "TCP", "port": collector.port}]


def test_a_dry_run_changes_the_mode_and_nothing_else(tmp_path: Path) -> None:
    dry, wet = _with("dry-run", tmp_path), build("overlays/minimal")
    for manifests, mode in ((dry, "dry-run"), (wet, "enforce")):
        [container] = [c for _, c in containers(manifests) if c["name"] == "remediator"]
        assert settings(manifests, container, tmp_path).remediate.mode == mode
    assert len(dry) == len(wet)


def test_argo_cd_reaches_the_generator_by_a_name_of_its_certificate(tmp_path: Path) -> None:
    manifests = _with("argocd", tmp_path)
    [container] = [c for _, c in containers(manifests) if c["name"] == "remediator"]
    served = settings(manifests, container, tmp_path).remediate.argocd
    assert served.listen is not None
    [config] = of_kind(build("argocd"), "ConfigMap")
    url = urlsplit(config["data"]["baseUrl"])
    assert url.scheme == "https"
    assert url.hostname in {
        host for found in wanted(Settings()).certificates for host in found.hosts
    }
    [service] = [
        found
        for found in of_kind(manifests, "Service")
        if f"{found['metadata']['name']}.kube-sync.svc" == url.hostname
    ]
    [port] = [found for found in service["spec"]["ports"] if found["port"] == url.port]
    [target] = [p for p in container["ports"] if p["name"] == port["targetPort"]]
    assert parse_listen("", served.listen)[1] == target["containerPort"]
    token = config["data"]["token"].removeprefix("$").partition(":")
    [volume] = [
        volume
        for pod, found in containers(manifests)
        if found is container
        for volume in pod["volumes"]
        if volume["name"] == "generator"
    ]
    assert volume["secret"]["secretName"] == token[0]
    assert [item["key"] for item in volume["secret"]["items"]] == [token[2]]
    assert len(manifests) == len(build("overlays/minimal"))
