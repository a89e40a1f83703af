"""Register the webhook of `manifests/webhook` at an address of our own."""

from __future__ import annotations

import base64
from pathlib import Path
from urllib.parse import urljoin

import yaml

from tools.servers.stack import RunningStack

_MANIFEST = Path(__file__).resolve().parents[2] / "manifests/webhook"


def register_webhook(stack: RunningStack, url: str, authority: bytes) -> None:
    """Tell the API server to ask at `url`, whose certificate `authority` (PEM) has signed.

    Of `url` the paths of the manifest take the place of its own.
    """
    found = list(yaml.safe_load_all(stack.kubectl("kustomize", str(_MANIFEST))))
    for webhook in (webhook for one in found for webhook in one["webhooks"]):
        # The manifest names a Service; there is none in a stack without a cluster around it.
        webhook["clientConfig"] = {
            "url": urljoin(url, webhook["clientConfig"]["service"]["path"]),
            "caBundle": base64.b64encode(authority).decode(),
        }
    stack.kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump_all(found))
