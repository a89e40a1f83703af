"""Checks the readiness page of a local process, for `HEALTHCHECK` in an image without a shell.

Its only input is an address. Standard library only, since it runs every few seconds. Also asks a
webhook for a decision, as the API server would, for `helm test`.
"""

from __future__ import annotations

import json
import ssl
import urllib.request
from collections.abc import Iterable, Sequence
from http.client import HTTPException
from typing import NamedTuple
from urllib.error import HTTPError

# The default ports of the commands' readiness pages; 9404 is the remediator's status page.
PORTS = (9401, 9402, 9403, 9405, 9406, 9407, 9408, 9409)
_SECONDS = 5.0
_NOT_FOUND = 404
_UNDECIDED = 503  # of the status of a review that was denied since nothing decided on it
# A dry run of a ReplicaSet that no policy is about.
_REVIEW = {
    "apiVersion": "admission.k8s.io/v1",
    "kind": "AdmissionReview",
    "request": {
        "uid": "kube-sync-healthcheck",
        "kind": {"group": "apps", "version": "v1", "kind": "ReplicaSet"},
        "resource": {"group": "apps", "version": "v1", "resource": "replicasets"},
        "name": "kube-sync-healthcheck",
        "namespace": "default",
        "operation": "CREATE",
        "dryRun": True,
        "userInfo": {"username": "kube-sync-healthcheck"},
        "object": {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": {"name": "kube-sync-healthcheck", "namespace": "default"},
        },
    },
}


class Health(NamedTuple):
    """The result of one page; `there` is false if nobody, or another program, listens there."""

    good: bool
    said: str
    there: bool = True


def page(listen: tuple[str, int]) -> str:
    """Return the local URL of the readiness page at a listen address."""
    host, port = listen
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - not to bind
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/readyz"


def usual_pages(ports: Iterable[int] = PORTS) -> list[str]:
    """Return the local URLs of all commands' readiness pages, if no address is configured."""
    return [page(("127.0.0.1", port)) for port in ports]


def asked(url: str) -> Health:
    """Request one page, within 5 seconds."""
    return _answer(url)


def reviewed(url: str, ca_file: str | None = None) -> Health:
    """Ask a webhook about an object, within 5 seconds; it is good if anything decides on it.

    `ca_file` verifies its certificate; None: the certificate authorities of the system.
    """
    try:
        context = ssl.create_default_context(cafile=ca_file)
    except OSError as error:  # SSLError is one
        return Health(good=False, said=f"{ca_file}: {error}")
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(url, json.dumps(_REVIEW).encode(), headers)  # noqa: S310
    answer = _answer(request, urllib.request.HTTPSHandler(context=context))
    return _decided(url, answer.said) if answer.good else answer


def _decided(url: str, said: str) -> Health:
    try:
        response = json.loads(said)["response"]
        allowed, status = response["allowed"], response.get("status") or {}
        undecided = not allowed and status.get("code") == _UNDECIDED
    except (ValueError, KeyError, TypeError, AttributeError):
        return Health(good=False, said=f"{url}: the answer is no AdmissionReview")
    what = "admitted" if allowed else f"denied: {status.get('message', 'for no reason')}"
    return Health(good=not undecided, said=f"{url}: {what}\n")


def _answer(request: str | urllib.request.Request, *handlers: urllib.request.BaseHandler) -> Health:
    # Never through a proxy of the environment: what is asked is on this machine, or in its cluster.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), *handlers)
    url = request if isinstance(request, str) else request.full_url
    try:
        with opener.open(request, timeout=_SECONDS) as response:
            return Health(good=True, said=response.read().decode())
    except HTTPError as error:
        with error:
            said = error.read().decode(errors="replace").strip()
        return Health(good=False, said=said or f"{url}: {error}", there=error.code != _NOT_FOUND)
    except (OSError, HTTPException, ValueError) as error:
        reason = getattr(error, "reason", error)
        there = not isinstance(reason, ConnectionRefusedError)
        return Health(good=False, said=f"{url}: {error}", there=there)


def found(urls: Sequence[str]) -> Health:
    """Check the pages that exist; if there are several, all have to be ready."""
    answers = [health for health in map(asked, urls) if health.there]
    if not answers:
        return Health(good=False, said=f"nobody answers at {', '.join(urls)}", there=False)
    return min(answers, key=lambda health: health.good)
