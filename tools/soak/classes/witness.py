"""Asks OPA and the webhook the same question, again and again, as nobody of the project would.

It shares no code with kube_sync: it reads what the policy decides out of OPA's answer, and out of
the JSON Patch or the denial of the webhook.
"""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp

from benchmarks.load import Target
from tools.servers.stack import RunningStack
from tools.soak.classes.judging import UNDECIDED, Difference, Judge, Ruling, Sample
from tools.soak.classes.policies import KEY

_DECISION = "io/k8s/federation/admission"
_WORKERS = 2
_PATIENCE = 30.0  # seconds for one answer
_LOST = (aiohttp.ClientError, TimeoutError, ConnectionError, ValueError)
_AFTER_A_FAILURE = 0.05  # seconds


class Witness:
    """The judges of so many objects."""

    def __init__(
        self,
        manifests: Sequence[dict[str, Any]],
        bodies: Sequence[str],
        ask_opa: Callable[[str], Awaitable[Any]],
        ask_webhook: Callable[[str], Awaitable[Any]],
    ) -> None:
        """`bodies` are the reviews of `manifests`; both functions POST a body and return JSON."""
        self._asked = [
            (Judge(manifest["metadata"]["name"]), json.dumps({"input": manifest}), body)
            for manifest, body in zip(manifests, bodies, strict=True)
        ]
        self._ask_opa, self._ask_webhook = ask_opa, ask_webhook
        self.failed = 0  # without an answer of the webhook

    @property
    def counts(self) -> Counter[Ruling]:
        """How many answers of the webhook were judged, and how."""
        return sum((judge.counts for judge, _, _ in self._asked), Counter[Ruling]())

    @property
    def differences(self) -> list[Difference]:
        """The answers of the webhook that OPA does not give."""
        return [found for judge, _, _ in self._asked for found in judge.differences]

    async def run(self) -> None:
        """Ask until cancelled."""
        async with asyncio.TaskGroup() as group:
            for first in range(_WORKERS):
                group.create_task(self._ask(self._asked[first::_WORKERS]))

    async def _ask(self, asked: Sequence[tuple[Judge, str, str]]) -> None:
        while True:
            for judge, question, review in asked:
                judge.seen(await _sample(self._opa, question))
                try:
                    judge.heard(await _sample(self._webhook, review))
                except _LOST:
                    self.failed += 1
                    await asyncio.sleep(_AFTER_A_FAILURE)

    async def _opa(self, question: str) -> str:
        try:
            return of_opa(await self._ask_opa(question))
        except _LOST:
            await asyncio.sleep(_AFTER_A_FAILURE)
            return UNDECIDED

    async def _webhook(self, review: str) -> str:
        return of_webhook((await self._ask_webhook(review))["response"])


async def _sample(ask: Callable[[str], Awaitable[str]], body: str) -> Sample:
    asked = time.monotonic()
    answer = await ask(body)
    return Sample(asked, time.monotonic(), answer)


def of_opa(document: dict[str, Any]) -> str:
    """Return the decision in an answer of OPA's data API, as text."""
    found = document.get("result")
    if found is None:
        return UNDECIDED
    if errors := found.get("errors"):
        return _denied("; ".join(sorted(errors)))
    return _placed(found.get("annotations", {}))


def of_webhook(response: dict[str, Any]) -> str:
    """Return the decision in a response of the webhook, as text."""
    if response["allowed"]:
        found = _annotations(json.loads(base64.b64decode(response.get("patch", "W10="))))
        return _placed(found) if found else UNDECIDED
    status = response["status"]
    return UNDECIDED if status["code"] == 503 else _denied(status["message"])  # noqa: PLR2004


def _annotations(operations: Sequence[dict[str, Any]]) -> dict[str, str]:
    """Return the annotations of the policy that a JSON Patch adds."""
    found: dict[str, str] = {}
    for operation in operations:
        _, _, what, *rest = operation["path"].split("/")
        if what == "annotations":
            key = rest[0].replace("~1", "/").replace("~0", "~") if rest else ""
            found |= {key: operation["value"]} if key else operation["value"]
    return {key: value for key, value in found.items() if key.startswith(KEY)}


def _placed(annotations: dict[str, str]) -> str:
    return json.dumps(annotations, sort_keys=True)


def _denied(reasons: str) -> str:
    return f"denied: {reasons}"


@dataclass(frozen=True, slots=True)
class _Client:
    """POSTs JSON to one place."""

    session: aiohttp.ClientSession
    url: str

    async def post(self, body: str) -> Any:
        async with self.session.post(self.url, data=body) as response:
            return json.loads(await response.read())


@asynccontextmanager
async def witness(
    stack: RunningStack, webhook: Target, manifests: Sequence[dict[str, Any]]
) -> AsyncGenerator[Witness]:
    """Yield a witness of a webhook, whose target holds the reviews of these objects."""
    token = stack.opa_token_files["admission"].read_text(encoding="utf-8").strip()
    async with (
        _session(str(stack.opa_ca_file), {"Authorization": f"Bearer {token}"}) as opa,
        _session(webhook.ca_file, {}) as reviews,
    ):
        ask_opa = _Client(opa, f"{stack.opa_url}/v1/data/{_DECISION}").post
        ask_webhook = _Client(reviews, webhook.url).post
        bodies = webhook.bodies[: len(manifests)]
        yield Witness(manifests, bodies, ask_opa, ask_webhook)


def _session(ca_file: str, headers: dict[str, str]) -> aiohttp.ClientSession:
    tls = ssl.create_default_context(cafile=ca_file)
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=tls),
        headers={"Content-Type": "application/json", **headers},
        timeout=aiohttp.ClientTimeout(total=_PATIENCE),
    )
