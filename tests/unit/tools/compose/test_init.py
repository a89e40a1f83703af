"""What must hold of docker-compose.yml without starting it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from kube_sync.certificates import make_authority
from kube_sync.config import load_settings
from kube_sync.decisions.sealing import Seals
from tools.compose import init
from tools.observing.mixin import dashboards
from tools.servers.apiserver import accounts, token_rows
from tools.servers.prometheus import IMAGE, ensure_prometheus
from tools.servers.secured_opa import access_data
from tools.servers.versions import tools

ROOT = Path(__file__).resolve().parents[4]
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
SERVICES: dict[str, Any] = COMPOSE["services"]
SCRAPING = yaml.safe_load((ROOT / "tools/compose/prometheus.yaml").read_text(encoding="utf-8"))
OWN = ("replicator", "remediator", "admission")


def test_compose_1_29_reads_it() -> None:
    assert "version" not in COMPOSE


@pytest.mark.parametrize("name", SERVICES)
def test_service_is_confined(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["mem_limit"]
    assert service["restart"]


@pytest.mark.parametrize("name", [name for name in SERVICES if name != "init"])
def test_service_that_stays_runs_as_nobody(name: str) -> None:
    assert SERVICES[name]["user"] == "65532:65532"


@pytest.mark.parametrize("name", SERVICES)
def test_service_publishes_on_the_loopback_only(name: str) -> None:
    assert all(port.startswith("127.0.0.1:") for port in SERVICES[name].get("ports", ()))


@pytest.mark.parametrize("name", ["opa", "etcd", "kube-apiserver"])
def test_server_has_the_pinned_image(name: str) -> None:
    assert SERVICES[name]["image"].partition("$")[0] == tools()[name].image


def test_prometheus_has_the_image_that_tests_have() -> None:
    assert SERVICES["prometheus"]["image"].partition("$")[0] == IMAGE


def test_prometheus_scrapes_every_service_where_it_listens() -> None:
    jobs = {job["job_name"]: job for job in SCRAPING["scrape_configs"]}
    assert jobs.keys() == {"kube-sync-opa", *(f"kube-sync-{name}" for name in OWN)}
    for name in OWN:
        port = SERVICES[name]["environment"]["KUBE_SYNC_OBSERVE_LISTEN"].rpartition(":")[2]
        assert jobs[f"kube-sync-{name}"]["static_configs"] == [{"targets": [f"{name}:{port}"]}]
    assert jobs["kube-sync-opa"]["scheme"] == "https"


def test_prometheus_is_handed_the_token_of_its_role(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(init, "VOLUMES", tmp_path)
    state = init.load_or_make(init.VOLUMES / "state.json")
    init.hand_out_prometheus(state)
    (opa,) = (j for j in SCRAPING["scrape_configs"] if j["job_name"] == "kube-sync-opa")
    token_file, ca_file = opa["authorization"]["credentials_file"], opa["tls_config"]["ca_file"]
    inside = tmp_path / "prometheus"
    assert (inside / Path(token_file).name).read_text() == state.opa_tokens["metrics"]
    assert (inside / Path(ca_file).name).read_bytes() == state.authority.cert_pem
    assert (inside / "data").is_dir()


def test_configuration_of_prometheus_is_one(tmp_path: Path) -> None:
    """promtool reads the files that it names, so they are where this machine has them."""
    (tmp_path / "token").touch()
    (tmp_path / "ca.crt").write_bytes(make_authority("test").cert_pem)
    text = (ROOT / "tools/compose/prometheus.yaml").read_text(encoding="utf-8")
    for inside, here in (
        ("/etc/prometheus/rules.yaml", ROOT / "manifests/prometheus/rules.yaml"),
        ("/prometheus/opa.token", tmp_path / "token"),
        ("/prometheus/ca.crt", tmp_path / "ca.crt"),
    ):
        text = text.replace(inside, str(here))
    (tmp_path / "prometheus.yaml").write_text(text, encoding="utf-8")
    checked = subprocess.run(
        [ensure_prometheus("promtool"), "check", "config", tmp_path / "prometheus.yaml"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_grafana_finds_the_dashboards_and_the_data_source_that_they_ask() -> None:
    volumes = dict(v.rsplit(":", 2)[:2][::-1] for v in SERVICES["grafana"]["volumes"])
    (provider,) = _provisioned("dashboards")["providers"]
    assert provider["type"] == "file"
    folder = ROOT / volumes[provider["options"]["path"]]
    assert {path.name for path in folder.glob("*.json")} == dashboards().keys()
    assert (ROOT / volumes["/etc/grafana/provisioning"]).is_dir()
    (source,) = _provisioned("datasources")["datasources"]
    assert source["url"] == "http://prometheus:9090"
    assert (source["type"], source["isDefault"]) == ("prometheus", True)


def _provisioned(what: str) -> Any:
    (file,) = (ROOT / "manifests/dashboards/provisioning" / what).iterdir()
    return yaml.safe_load(file.read_text(encoding="utf-8"))


def test_grafana_starts_for_those_who_ask_for_it_only() -> None:
    assert [name for name in SERVICES if SERVICES[name].get("profiles")] == ["grafana"]


@pytest.mark.parametrize("name", OWN)
def test_own_service_has_a_health_check_of_its_own_port(name: str) -> None:
    port = SERVICES[name]["environment"]["KUBE_SYNC_OBSERVE_LISTEN"].rpartition(":")[2]
    assert SERVICES[name]["healthcheck"]["test"][-1] == f"http://127.0.0.1:{port}/readyz"


@pytest.mark.parametrize("name", OWN)
def test_own_service_has_a_valid_configuration(name: str) -> None:
    settings = load_settings(str(ROOT / "tools/compose/config.yaml"), SERVICES[name]["environment"])
    assert settings.kubernetes.kubeconfig == f"/run/kube-sync/{name}.kubeconfig"
    assert settings.opa.url == "https://opa:8181"


def test_accounts_are_the_service_accounts_of_the_manifests() -> None:
    assert accounts()["replicator"].name == "system:serviceaccount:kube-sync:kube-sync-replicator"
    assert token_rows({"admin": "secret"}) == (
        'secret,admin,admin,"system:masters,system:authenticated"\n'
    )


def test_opa_is_told_digests_and_no_tokens() -> None:
    assert "secret" not in str(access_data([("replicator", "secret")]))


def test_remediator_is_handed_a_token_of_its_own_also_where_an_earlier_version_made_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(init, "VOLUMES", tmp_path)
    record = tmp_path / "state.json"
    init.load_or_make(record)
    earlier = json.loads(record.read_text(encoding="utf-8"))
    del earlier["remediation_token"]
    record.write_text(json.dumps(earlier), encoding="utf-8")
    state = init.load_or_make(record)
    init.hand_out_services(state)
    at = SERVICES["remediator"]["environment"]["KUBE_SYNC_REMEDIATE_TOKEN_FILE"]
    assert at == "/run/kube-sync/remediation.token"
    token = (tmp_path / "remediator/remediation.token").read_text(encoding="utf-8")
    assert token == state.remediation_token
    assert token not in ("", state.decisions_token)
    replicator = SERVICES["replicator"]["environment"]
    assert replicator["KUBE_SYNC_REMEDIATE_TOKEN_FILE"] == at, "its page shows what is held"
    assert (tmp_path / "replicator/remediation.token").read_text(encoding="utf-8") == token
    assert not (tmp_path / "admission/remediation.token").exists()


def test_replicators_page_asks_the_remediator_where_it_listens() -> None:
    asked, listens = (
        SERVICES[name]["environment"]["KUBE_SYNC_REMEDIATE_LISTEN"]
        for name in ("replicator", "remediator")
    )
    assert asked == f"remediator:{listens.rpartition(':')[2]}"


def test_ledger_is_in_a_volume_that_the_replicator_alone_may_write() -> None:
    settings = load_settings(
        str(ROOT / "tools/compose/config.yaml"), SERVICES["replicator"]["environment"]
    )
    folder = Path(settings.ledger.path or "").parent
    mounted = {
        name: service["volumes"]
        for name, service in SERVICES.items()
        if any(str(volume).startswith("ledger:") for volume in service.get("volumes", ()))
    }
    assert mounted.keys() == {"init", "replicator"}
    assert f"ledger:{folder}" in mounted["replicator"]
    assert "ledger:/volumes/ledger" in mounted["init"]
    assert "ledger" in COMPOSE["volumes"]


def test_services_are_handed_one_key_of_notes_that_stays_also_where_a_record_had_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(init, "VOLUMES", tmp_path)
    record = tmp_path / "state.json"
    first = init.load_or_make(record)
    earlier = json.loads(record.read_text(encoding="utf-8"))
    del earlier["notes_key"]
    record.write_text(json.dumps(earlier), encoding="utf-8")
    init.hand_out_services(init.load_or_make(record))
    file = ROOT / "tools/compose/config.yaml"
    for name in OWN:
        settings = load_settings(str(file), SERVICES[name]["environment"])
        assert settings.placement.key_file == "/run/kube-sync/notes.key"
        seals = Seals(str(tmp_path / name / "notes.key"))
        assert seals.is_required
    keys = {(tmp_path / name / "notes.key").read_text(encoding="utf-8") for name in OWN}
    assert keys == {init.load_or_make(record).notes_key}
    assert keys != {first.notes_key}
    assert init.load_or_make(record).kube_tokens == first.kube_tokens
