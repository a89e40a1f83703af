# ruff: noqa: ASYNC240 - a test has nothing else to do while it writes a small file
from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from structlog.testing import capture_logs

from kube_sync.certificates import issue, make_authority, write_certificates
from kube_sync.config import Kubernetes
from kube_sync.errors import Misconfigured
from kube_sync.kube import credentials as credentials_module
from kube_sync.kube.clientconfig import config_modules
from kube_sync.kube.credentials import Credentials
from tests.fakes.apiserver import write_kubeconfig

SERVER = "http://127.0.0.1:1/"


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Path:
    return tmp_path / "kubeconfig"


async def loaded(kubeconfig: Path, clock: Clock | None = None) -> Credentials:
    credentials = Credentials(Kubernetes(kubeconfig=str(kubeconfig)), clock or Clock())
    await credentials.load()
    return credentials


async def test_server_has_no_trailing_slash(kubeconfig: Path) -> None:
    write_kubeconfig(kubeconfig, SERVER, {"token": "t"})
    credentials = await loaded(kubeconfig)
    assert credentials.server == "http://127.0.0.1:1"
    assert credentials.server_name is None


async def test_missing_kubeconfig_is_misconfigured_and_named(kubeconfig: Path) -> None:
    with pytest.raises(
        Misconfigured,
        match=rf"^kubernetes\.kubeconfig: {kubeconfig}: there is no such file: .* --kubeconfig",
    ):
        await loaded(kubeconfig)


@pytest.mark.parametrize("text", ["{}:/gone", "/gone:{}", ":{}:"])
async def test_kubeconfigs_of_a_list_that_exist_are_read(kubeconfig: Path, text: str) -> None:
    write_kubeconfig(kubeconfig, SERVER, {"token": "t"})
    assert (await loaded(Path(text.format(kubeconfig)))).server == "http://127.0.0.1:1"


async def test_without_a_variable_the_usual_file_is_meant(
    kubeconfig: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(kubeconfig.parent))
    monkeypatch.setattr(config_modules()[0], "KUBE_CONFIG_DEFAULT_LOCATION", "")
    (kubeconfig.parent / ".kube").mkdir()
    write_kubeconfig(kubeconfig.parent / ".kube/config", SERVER, {"token": "t"})
    credentials = Credentials(Kubernetes())
    await credentials.load()
    assert credentials.server == "http://127.0.0.1:1"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "hello",
        "a: [\n",
        "apiVersion: v1\nkind: Config\n",
        "current-context: c\ncontexts: [{name: c, context: {cluster: gone}}]\nclusters: []\n",
    ],
)
async def test_broken_kubeconfig_is_misconfigured_and_named(kubeconfig: Path, text: str) -> None:
    kubeconfig.write_text(text, encoding="utf-8")
    with pytest.raises(Misconfigured, match=rf"^kubernetes\.kubeconfig: {kubeconfig}: \S"):
        await loaded(kubeconfig)


@pytest.mark.parametrize("cluster", [{}, [], None, 5, {"server": 5}, {"server": None}])
async def test_cluster_without_a_server_is_misconfigured(kubeconfig: Path, cluster: Any) -> None:
    """kubernetes_asyncio asserts what it expects, without a word."""
    await _rewritten(kubeconfig, "clusters", "cluster", cluster)


@pytest.mark.parametrize(
    "user",
    [
        None,
        5,
        "x",
        {"tokenFile": "/nope"},
        {"exec": {}},
        {"exec": {"command": "/nope", "apiVersion": "client.authentication.k8s.io/v1"}},
        {"auth-provider": {"name": "oidc"}},
    ],
)
async def test_user_that_cannot_be_read_is_misconfigured(kubeconfig: Path, user: Any) -> None:
    await _rewritten(kubeconfig, "users", "user", user)


async def _rewritten(kubeconfig: Path, section: str, name: str, value: Any) -> None:
    write_kubeconfig(kubeconfig, SERVER, {"token": "t"})
    document = yaml.safe_load(kubeconfig.read_text(encoding="utf-8"))
    document[section][0][name] = value
    kubeconfig.write_text(yaml.safe_dump(document), encoding="utf-8")
    with pytest.raises(Misconfigured, match=rf"^kubernetes\.kubeconfig: {kubeconfig}: \S"):
        await loaded(kubeconfig)


async def test_unknown_context_is_misconfigured(kubeconfig: Path) -> None:
    write_kubeconfig(kubeconfig, SERVER, {"token": "t"})
    credentials = Credentials(Kubernetes(kubeconfig=str(kubeconfig), context="other"))
    with pytest.raises(Misconfigured, match=r'it has no context "other": .* by --context'):
        await credentials.load()


async def test_a_current_context_that_is_not_set_is_said(kubeconfig: Path) -> None:
    write_kubeconfig(kubeconfig, SERVER, {"token": "t"})
    document = yaml.safe_load(kubeconfig.read_text(encoding="utf-8"))
    del document["current-context"]
    kubeconfig.write_text(yaml.safe_dump(document), encoding="utf-8")
    with pytest.raises(Misconfigured, match="its current context is not set: "):
        await loaded(kubeconfig)


async def test_token_is_sent_as_bearer(kubeconfig: Path) -> None:
    write_kubeconfig(kubeconfig, SERVER, {"token": "secret-token\n"})
    credentials = await loaded(kubeconfig)
    assert await credentials.headers() == {"Authorization": "Bearer secret-token"}


async def test_user_without_a_token_sends_no_header(kubeconfig: Path) -> None:
    write_kubeconfig(kubeconfig, SERVER, {})
    assert await (await loaded(kubeconfig)).headers() == {}


async def test_token_of_two_lines_is_misconfigured(kubeconfig: Path) -> None:
    """aiohttp raises ValueError for a line break in a header, for every request."""
    write_kubeconfig(kubeconfig, SERVER, {"token": "one\ntwo"})
    credentials = await loaded(kubeconfig)
    with pytest.raises(Misconfigured, match="more than one word") as caught:
        await credentials.headers()
    assert "two" not in str(caught.value)


async def test_rotated_token_file_is_picked_up_after_a_minute(
    kubeconfig: Path, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("first\n", encoding="utf-8")
    write_kubeconfig(kubeconfig, SERVER, {"tokenFile": str(token)})
    credentials = await loaded(kubeconfig, clock := Clock())
    assert await credentials.headers() == {"Authorization": "Bearer first"}
    token.write_text("second\n", encoding="utf-8")
    clock.now += 59
    assert await credentials.headers() == {"Authorization": "Bearer first"}
    clock.now += 2
    assert await credentials.headers() == {"Authorization": "Bearer second"}


async def test_rotated_token_file_is_picked_up_at_once_after_a_refusal(
    kubeconfig: Path, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("first", encoding="utf-8")
    write_kubeconfig(kubeconfig, SERVER, {"tokenFile": str(token)})
    credentials = await loaded(kubeconfig)
    token.write_text("second", encoding="utf-8")
    credentials.forget()
    assert await credentials.headers() == {"Authorization": "Bearer second"}


async def test_certificate_files_that_are_none_are_misconfigured(
    kubeconfig: Path, tmp_path: Path
) -> None:
    broken = tmp_path / "broken.crt"
    broken.write_text("no certificate", encoding="utf-8")
    user = {"client-certificate": str(broken), "client-key": str(broken)}
    write_kubeconfig(kubeconfig, "https://127.0.0.1:1", user)
    credentials = await loaded(kubeconfig)
    with pytest.raises(Misconfigured, match=r"certificates of https://127\.0\.0\.1:1"):
        credentials.tls()


@pytest.fixture
def pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Files and variables of a pod; returns its token file."""
    write_certificates(tmp_path / "tls", ["localhost"])
    token = tmp_path / "token"
    token.write_text("pod-token", encoding="utf-8")
    monkeypatch.setattr(credentials_module, "_SERVICE_ACCOUNT_TOKEN", token)
    _, incluster_config = config_modules()
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(token))
    authority = str(tmp_path / "tls/ca.crt")
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", authority)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    return token


async def test_pod_uses_its_service_account(pod: Path) -> None:
    credentials = Credentials(Kubernetes(), clock := Clock())
    await credentials.load()
    assert credentials.server == "https://10.0.0.1:443"
    assert await credentials.headers() == {"Authorization": "Bearer pod-token"}
    assert credentials.tls().check_hostname
    pod.write_text("rotated", encoding="utf-8")
    clock.now += 61
    assert await credentials.headers() == {"Authorization": "Bearer rotated"}


@pytest.mark.usefixtures("pod")
async def test_pod_without_an_api_server_is_misconfigured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST")
    with pytest.raises(Misconfigured, match="the pod's service account: "):
        await Credentials(Kubernetes()).load()


@pytest.mark.usefixtures("pod")
async def test_kubeconfig_is_preferred_to_the_pods_service_account(kubeconfig: Path) -> None:
    write_kubeconfig(kubeconfig, SERVER, {"token": "t"})
    assert (await loaded(kubeconfig)).server == "http://127.0.0.1:1"


@dataclass
class Rotating:
    """A kubeconfig with a client certificate in files that are replaced."""

    folder: Path
    credentials: Credentials
    clock: Clock

    def replace(self, *, key_only: bool = False) -> None:
        """Put a new pair in place of the old one, or only a new key."""
        pair = issue(_AUTHORITY, "client", ["client"])
        (self.folder / "tls.key").write_bytes(pair.key_pem)
        if not key_only:
            (self.folder / "tls.crt").write_bytes(pair.cert_pem)

    async def a_minute_later(self, last: ssl.SSLContext) -> ssl.SSLContext:
        """Make the next request."""
        self.clock.now += 61
        await self.credentials.headers()
        return self.credentials.tls(last)


_AUTHORITY = make_authority("clients")


@pytest.fixture
async def rotating(kubeconfig: Path, tmp_path: Path) -> Rotating:
    clock = Clock()
    files = {"client-certificate": "tls.crt", "client-key": "tls.key"}
    user = {name: str(tmp_path / file) for name, file in files.items()}
    write_kubeconfig(kubeconfig, "https://127.0.0.1:1", user)
    credentials = Credentials(Kubernetes(kubeconfig=str(kubeconfig)), clock)
    rotating = Rotating(tmp_path, credentials, clock)
    rotating.replace()
    await credentials.load()
    return rotating


async def test_rotated_client_certificate_is_shown_after_a_minute(rotating: Rotating) -> None:
    first = rotating.credentials.tls(None)
    assert await rotating.a_minute_later(first) is first, "and nothing is made anew without news"
    rotating.replace()
    assert rotating.credentials.tls(first) is first
    second = await rotating.a_minute_later(first)
    assert second is not first
    assert await rotating.a_minute_later(second) is second


async def test_half_a_rotated_pair_leaves_the_last_good_one_in_use(rotating: Rotating) -> None:
    first = rotating.credentials.tls(None)
    rotating.replace(key_only=True)
    with capture_logs() as logs:
        assert await rotating.a_minute_later(first) is first
    assert [log["event"] for log in logs] == ["kubernetes_certificates_not_good"]
    rotating.replace()
    assert await rotating.a_minute_later(first) is not first
