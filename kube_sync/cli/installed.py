"""Which configuration a command uses: a file, or that of the installation in the cluster.

`kubectl kube-sync` asks the cluster unless a file is named; `kube-sync` does with --installation.
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from kube_sync import CONFIG_ENV
from kube_sync.cli.options import refuse
from kube_sync.cli.runner import ENVIRONMENT, run_async

if TYPE_CHECKING:  # slow
    from kube_sync.config import Settings
    from kube_sync.inspect.installation.reaching import Place, Server

_TERMINATED: Final = 143  # as of a program that SIGTERM ends
_VARIABLES: Final = {
    "kubeconfig": "KUBE_SYNC_KUBERNETES_KUBECONFIG",
    "context": "KUBE_SYNC_KUBERNETES_CONTEXT",
}


def is_sought(arguments: argparse.Namespace) -> bool:
    """Tell whether the cluster is asked for the configuration. Raises Misconfigured."""
    named = getattr(arguments, "installation", None) is not None
    config = getattr(arguments, "config", None)
    refuse(named and config is not None, "--installation: not together with --config")
    file = config or ENVIRONMENT.get(CONFIG_ENV)
    return named or (getattr(arguments, "plugin", False) and not file)


def environment_of(arguments: argparse.Namespace) -> Mapping[str, str]:
    """Return the environment, with what the command line says in its place."""
    said = {
        variable: value
        for name, variable in _VARIABLES.items()
        if (value := getattr(arguments, name, None)) is not None
    }
    return {**ENVIRONMENT, **said}


def load(arguments: argparse.Namespace, *, of: str | None = "replicate") -> Settings:
    """Return the configuration; of the cluster, that of the container that runs the command `of`.

    Without such a command no cluster is asked. Raises SyncError.
    """
    if of is None or not is_sought(arguments):
        from kube_sync.config import load_settings  # noqa: PLC0415 - slow

        return load_settings(arguments.config, environment_of(arguments))
    from kube_sync.inspect.installation.reaching import installed_settings  # noqa: PLC0415 - slow

    return run_async(installed_settings(place_of(arguments), of))


def place_of(arguments: argparse.Namespace) -> Place:
    """Return where the installation is to be looked for."""
    from kube_sync.config import Kubernetes  # noqa: PLC0415 - slow
    from kube_sync.inspect.installation.reaching import Place  # noqa: PLC0415 - slow

    environment = environment_of(arguments)
    kubernetes = Kubernetes(*(environment.get(variable) for variable in _VARIABLES.values()))
    return Place(kubernetes, getattr(arguments, "installation", None), environment)


def default_namespace(arguments: argparse.Namespace) -> str | None:
    """Return where an object lies whose namespace nobody says: as kubectl has it, or None.

    Raises Misconfigured.
    """
    if arguments.namespace is not None or not is_sought(arguments):
        return None
    from kube_sync.inspect.installation.reaching import context_namespace  # noqa: PLC0415 - slow

    return run_async(context_namespace(place_of(arguments).kubernetes))


@contextmanager
def reached(
    arguments: argparse.Namespace, settings: Settings, server: Server
) -> Iterator[Settings]:
    """Yield the settings by which a server is asked: as configured, or through the API server.

    No file of this machine is read because a configuration in the cluster names it. Raises
    SyncError.
    """
    if not is_sought(arguments):
        yield settings
        return
    from kube_sync.inspect.installation import reaching  # noqa: PLC0415 - slow

    given = frozenset(
        name for name in ("token_file", "ca_file") if getattr(arguments, name, None) is not None
    )
    with (
        _ended_by_sigterm(),
        reaching.reached(place_of(arguments), settings, server, given) as found,
    ):
        yield found.settings


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """Leave the block at SIGTERM, so that copies of tokens go with it."""
    if threading.current_thread() is not threading.main_thread():  # only there can it be caught
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(_TERMINATED))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
