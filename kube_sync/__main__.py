"""The programs `kube-sync`, which is also `python -m kube_sync`, and `kubectl-kube_sync`."""

from __future__ import annotations

import signal
from types import ModuleType


def main() -> None:
    """Run `kube-sync`."""
    _cli().main()


def kubectl_plugin() -> None:
    """Run one command as `kubectl kube-sync`, which finds the installation by itself."""
    _cli().main(plugin=True)


def _cli() -> ModuleType:
    """Import the commands. Ctrl-C meanwhile ends the program, which has nothing to tidy up yet."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:  # else who started it does not want it
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from kube_sync import cli  # noqa: PLC0415 - see above

    signal.signal(signal.SIGINT, before)
    return cli


if __name__ == "__main__":
    main()
