"""`python -m kube_sync` is `kube-sync`."""

from __future__ import annotations

from kube_sync.cli import main

main()
