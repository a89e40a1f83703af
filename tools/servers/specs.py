"""How each pinned server is run: one description, the same for processes and containers.

Everything listens on the loopback only, but for the API server of a node's cluster. What a server
reads (certificates, tokens, policies) its caller writes into its folder first; see `stack`.
"""

from __future__ import annotations

from pathlib import Path

from tools.servers.files import LOOPBACK
from tools.servers.running import ServerSpec

SERVICE_ACCOUNT_ISSUER = "https://kubernetes.default.svc"


# Below OPA's folder: the bundle that says who may ask what of it, and its configuration, if any.
AUTHZ_BUNDLE, OPA_CONFIG = "authz", "config.json"


def etcd_spec(folder: Path, port: int) -> ServerSpec:
    """Describe etcd with its data in the folder; not synced to disk, since no test loses power."""
    url = f"http://127.0.0.1:{port}"
    peer = "http://127.0.0.1:0"  # a single member has no peers: any port will do
    arguments = {
        "data-dir": str(folder / "data"),
        "listen-client-urls": url,
        "advertise-client-urls": url,
        "listen-peer-urls": peer,
        "initial-advertise-peer-urls": peer,
        "initial-cluster": f"default={peer}",
        "log-level": "warn",
        # The default of 2 GiB is less than the history of fifty thousand objects under load.
        "quota-backend-bytes": str(8 << 30),
    }
    return ServerSpec(
        name="etcd",
        program="etcd",
        arguments=("--unsafe-no-fsync", *_flags(arguments)),
        folder=folder,
        url=url,
        ready_paths=("/health",),
    )


def apiserver_spec(
    folder: Path,
    port: int,
    etcd_url: str,
    *,
    admin_token: str,
    ca_file: Path,
    address: str = LOOPBACK[0],
    extra_arguments: tuple[str, ...] = (),
) -> ServerSpec:
    """Describe kube-apiserver: TLS, tokens from a file, RBAC, and none of the controllers."""
    arguments = {
        "etcd-servers": etcd_url,
        "bind-address": address,
        "advertise-address": address,
        "secure-port": str(port),
        "tls-cert-file": str(folder / "tls.crt"),
        "tls-private-key-file": str(folder / "tls.key"),
        "token-auth-file": str(folder / "tokens.csv"),
        "authorization-mode": "RBAC",
        "service-account-issuer": SERVICE_ACCOUNT_ISSUER,
        "service-account-key-file": str(folder / "service-account.crt"),
        "service-account-signing-key-file": str(folder / "service-account.key"),
        "service-cluster-ip-range": "10.0.0.0/24",
        "endpoint-reconciler-type": "none",
        "disable-admission-plugins": "ServiceAccount",
    }
    return ServerSpec(
        name="kube-apiserver",
        program="kube-apiserver",
        arguments=(*_flags(_but_for(arguments, extra_arguments)), *extra_arguments),
        folder=folder,
        url=f"https://{address}:{port}",
        # /readyz holds the hook that installs the first roles; the namespace comes just after.
        ready_paths=("/readyz", "/api/v1/namespaces/default"),
        ca_file=ca_file,
        token=admin_token,
        # Most of its CPU goes into definitions of kinds; less of it with a larger heap (measured),
        # as long as that stays below what the container may have.
        environment={"GOGC": "400", "GOMEMLIMIT": "1500MiB"},
        memory="2g",
        patience=120.0,
    )


def opa_spec(
    folder: Path,
    port: int,
    *,
    ca_file: Path,
    token: str,
    extra_arguments: tuple[str, ...] = (),
) -> ServerSpec:
    """Describe OPA, secured by the files in its folder."""
    arguments = ("run", "--server", f"--addr=127.0.0.1:{port}", "--log-level=error")
    return ServerSpec(
        name="opa",
        program="opa",
        arguments=(
            *arguments,
            "--skip-version-check",
            *_opa_security(folder),
            *((f"--config-file={config}",) if (config := folder / OPA_CONFIG).exists() else ()),
            *extra_arguments,
        ),
        folder=folder,
        url=f"https://127.0.0.1:{port}",
        ready_paths=("/health",),
        ca_file=ca_file,
        token=token,
        memory="2g",
    )


def _opa_security(folder: Path) -> tuple[str, ...]:
    files = {
        "tls-cert-file": str(folder / "tls.crt"),
        "tls-private-key-file": str(folder / "tls.key"),
    }
    return (
        *_flags(files),
        "--authentication=token",
        "--authorization=basic",
        "--bundle",
        str(folder / AUTHZ_BUNDLE),
    )


def _but_for(values: dict[str, str], extra: tuple[str, ...]) -> dict[str, str]:
    """Leave out what is said again: of a list of plugins both would count."""
    said = {argument.removeprefix("--").partition("=")[0] for argument in extra}
    return {name: value for name, value in values.items() if name not in said}


def _flags(values: dict[str, str]) -> tuple[str, ...]:
    return tuple(f"--{name}={value}" for name, value in values.items())
