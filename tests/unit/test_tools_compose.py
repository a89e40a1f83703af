"""What must hold of docker-compose.yml without starting it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from kube_sync.settings import load_settings
from tools.servers.apiserver import accounts, token_rows
from tools.servers.secured_opa import access_data
from tools.servers.versions import tools

ROOT = Path(__file__).resolve().parents[2]
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
SERVICES: dict[str, Any] = COMPOSE["services"]
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
    assert SERVICES[name]["image"] == tools()[name].image


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
