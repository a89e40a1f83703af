"""The API server's address and the credentials of this process.

kubernetes_asyncio reads kubeconfigs and service accounts (tokens, token files, exec plugins, client
certificates). It reads most of them only once, so this module reloads them every minute and after a
refusal. The library makes no requests here.
"""

from __future__ import annotations

import os
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import structlog
import yaml

from kube_sync.config import Kubernetes
from kube_sync.errors import Misconfigured
from kube_sync.kube.clientconfig import config_modules

log: structlog.stdlib.BoundLogger = structlog.get_logger()

_SERVICE_ACCOUNT_TOKEN = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")
# What kubernetes_asyncio raises, asserts included, where a file has another shape than it expects.
_MALFORMED = (ValueError, TypeError, AttributeError, AssertionError)
_USUAL = "~/.kube/config"
_MAX_AGE = 60.0  # seconds; client-go reads service account tokens as often


class Credentials:
    """The current address and credentials; call `load` before anything else."""

    def __init__(self, settings: Kubernetes, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._clock = clock
        self._loaded_at = 0.0
        self._configuration: Any = None
        self.namespace: str | None = None  # that the kubeconfig's context names
        self._loads = self._tls_of = 0  # number of loads, and the one of the TLS context
        self._tls_content: list[object] = []

    async def load(self) -> None:
        """Read the kubeconfig or the service account. Raises Misconfigured, naming the file."""
        # Imported here, so that `config` and `certs` do not pay for it.
        kube_config, incluster_config = config_modules()
        configuration = kube_config.Configuration()
        where = self._settings.kubeconfig or str(kube_config.KUBE_CONFIG_DEFAULT_LOCATION)
        where = where or _USUAL  # of an empty KUBECONFIG
        try:
            if self._settings.kubeconfig is None and _in_cluster():
                where = "the pod's service account"
                load_in_cluster: Callable[..., None] = incluster_config.load_incluster_config
                load_in_cluster(client_configuration=configuration)
            else:
                _check_is_there(where)
                loader = await kube_config.load_kube_config(
                    where,
                    context=self._settings.context,
                    client_configuration=configuration,
                    persist_config=False,
                )
                self.namespace = (loader.current_context["context"] or {}).get("namespace") or None
        except (kube_config.ConfigException, OSError, yaml.YAMLError, *_MALFORMED) as error:
            msg = f"kubernetes.kubeconfig: {where}: {_reason(error, self._settings.context)}"
            raise Misconfigured(msg) from error
        self._configuration = configuration
        self._loaded_at = self._clock()
        self._loads += 1

    @property
    def server(self) -> str:
        """The API server's URL without a trailing slash."""
        return str(self._configuration.host).rstrip("/")

    @property
    def server_name(self) -> str | None:
        """The server name to verify in the API server's certificate, if the kubeconfig sets one."""
        name = getattr(self._configuration, "tls_server_name", None)
        return str(name) if name else None

    def forget(self) -> None:
        """Reload the credentials before the next request: the API server refused them."""
        self._loaded_at = float("-inf")

    async def headers(self) -> dict[str, str]:
        """Return the Authorization header, or none if a client certificate authenticates us.

        Raises Misconfigured.
        """
        if self._clock() - self._loaded_at > _MAX_AGE:
            await self.load()
        token = self._configuration.api_key.get("BearerToken", "").strip()
        token = token.removeprefix("Bearer ").strip()
        if len(token.split()) > 1:  # a line break would make every request a ValueError
            msg = f"kubernetes.kubeconfig: the token for {self.server} is more than one word"
            raise Misconfigured(msg)
        return {"Authorization": f"Bearer {token}"} if token else {}

    def tls(self, last: ssl.SSLContext | None = None) -> ssl.SSLContext:
        """Return the API server's TLS context: `last` unless out of date. Raises Misconfigured.

        If certificate and key do not match or are half written, `last` stays in use: the files are
        perhaps being replaced right now.
        """
        if last is not None and self._tls_of == self._loads:
            return last
        self._tls_of = self._loads
        content = self._certificates()
        if last is not None and content == self._tls_content:
            return last
        try:
            context = self._context()
        except Misconfigured as error:
            if last is None:
                raise
            log.warning("kubernetes_certificates_not_good", reason=str(error))
            return last
        self._tls_content = content
        return context

    def _certificates(self) -> list[object]:
        """Return the inputs of the TLS context, so that it is rebuilt only when they change."""
        configuration = self._configuration
        found: list[object] = [configuration.verify_ssl]
        for file in (configuration.ssl_ca_cert, configuration.cert_file, configuration.key_file):
            try:
                found.append(Path(file).read_bytes() if file else None)
            except OSError as error:
                found.append(str(error))
        return found

    def _context(self) -> ssl.SSLContext:
        configuration = self._configuration
        try:
            context = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
            if configuration.cert_file:
                context.load_cert_chain(configuration.cert_file, configuration.key_file)
        except OSError as error:
            msg = f"kubernetes.kubeconfig: certificates of {self.server}: {error}"
            raise Misconfigured(msg) from error
        if not configuration.verify_ssl:  # `insecure-skip-tls-verify` in the kubeconfig
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


def _check_is_there(where: str) -> None:
    """Make sure that one of the files exists. Raises FileNotFoundError."""
    if not any(Path(file).expanduser().exists() for file in where.split(os.pathsep) if file):
        msg = "there is no such file: name a kubeconfig by --kubeconfig or KUBECONFIG"
        raise FileNotFoundError(msg)


def _reason(error: Exception, context: str | None) -> str:
    """Return what is wrong with a kubeconfig."""
    why = " ".join(str(error).split()) or "not a kubeconfig"
    if "contexts list" in why or "current-context" in why:
        missing = f'it has no context "{context}"' if context else "its current context is not set"
        return f"{missing}: name one of `kubectl config get-contexts` by --context"
    return why


def _in_cluster() -> bool:
    return _SERVICE_ACCOUNT_TOKEN.exists()
