"""The floor: what a bare client needs for the same bytes, and nothing else.

No projection, no recovery, no keys: one LIST and one PUT for a first sync, a watch and a PUT for
an event. It shares no code with kube_sync.
"""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import aiohttp

from tools.servers.stack import RunningStack

REPLICA_SETS = "/apis/apps/v1/replicasets"


class Bare:
    """One client for both servers."""

    def __init__(
        self,
        stack: RunningStack,
        kube: aiohttp.ClientSession,
        opa: aiohttp.ClientSession,
        url: str | None = None,
    ) -> None:
        """`url` is another address of the API server."""
        self._stack = stack
        self._url = url or stack.apiserver_url
        self._kube = kube
        self._opa = opa

    async def kube(
        self, method: str, path: str, body: Any = None, kind: str = "json", accept: str = "*/*"
    ) -> bytes:
        """Ask the API server."""
        async with self._asked(method, path, body, kind, accept) as response:
            answer = await response.read()
            response.raise_for_status()
            return answer

    async def answer(
        self, method: str, path: str, body: Any = None, kind: str = "json"
    ) -> tuple[int, str]:
        """Ask the API server; return the status and the text, whatever they are."""
        async with self._asked(method, path, body, kind) as response:
            return response.status, await response.text()

    def _asked(
        self, method: str, path: str, body: Any, kind: str, accept: str = "*/*"
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        headers = {"Content-Type": f"application/{kind}", "Accept": accept}
        data = None if body is None else json.dumps(body)
        url = self._url + path
        return self._kube.request(method, url, data=data, headers=headers)

    async def put(self, path: str, body: bytes) -> None:
        """Write into OPA."""
        async with self._opa.put(self._stack.opa_url + "/v1/data/" + path, data=body) as response:
            await response.read()
            response.raise_for_status()

    async def put_policy(self, policy_id: str, source: str) -> None:
        """Load one module into OPA."""
        url = f"{self._stack.opa_url}/v1/policies/{policy_id}"
        async with self._opa.put(url, data=source, headers={"Content-Type": "text/plain"}) as put:
            await put.read()
            put.raise_for_status()

    async def get(self, path: str) -> Any:
        """Read from OPA."""
        async with self._opa.get(self._stack.opa_url + "/v1/data/" + path) as response:
            return json.loads(await response.read()).get("result")

    async def opa(self, path: str) -> Any:
        """Read anything of OPA's API."""
        async with self._opa.get(f"{self._stack.opa_url}/{path}") as response:
            answer = json.loads(await response.read())
            response.raise_for_status()
            return answer

    async def query(self, path: str, body: bytes) -> Any:
        """Ask OPA for a decision."""
        async with self._opa.post(self._stack.opa_url + "/v1/data/" + path, data=body) as response:
            answer = json.loads(await response.read())
            response.raise_for_status()
            return answer.get("result")

    async def watch(
        self, since: str | None = None, opened: Callable[[], None] = lambda: None
    ) -> AsyncGenerator[Any]:
        """Yield every event of the ReplicaSets from now on, or since a resourceVersion.

        `opened` is called once the API server has answered.
        """
        if since is None:
            listed = json.loads(await self.kube("GET", REPLICA_SETS + "?limit=1"))
            since = listed["metadata"]["resourceVersion"]
        url = f"{self._url}{REPLICA_SETS}?watch=1&resourceVersion={since}"
        async with self._kube.get(url) as response:
            opened()
            async for line in response.content:
                yield json.loads(line)


@asynccontextmanager
async def bare_client(
    stack: RunningStack, url: str | None = None, role: str = "admin"
) -> AsyncGenerator[Bare]:
    """Yield a client that speaks to both servers with their tokens and certificates.

    `url` is another address of the API server, `role` the account there.
    """
    kube_tls = ssl.create_default_context(cafile=stack.apiserver_ca_file)
    opa_tls = ssl.create_default_context(cafile=stack.opa_ca_file)
    opa_token = stack.opa_token_files["replicator"].read_text(encoding="utf-8").strip()
    patient = aiohttp.ClientTimeout(total=None, sock_connect=10)
    async with (
        aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=kube_tls, limit=32),
            headers={
                "Authorization": f"Bearer {stack.kube_tokens[role]}",
                "Accept-Encoding": "identity",  # as we do: compressing costs more than sending
            },
            timeout=patient,
            read_bufsize=1 << 22,
        ) as kube,
        aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=opa_tls),
            headers={"Authorization": f"Bearer {opa_token}"},
            timeout=patient,
        ) as opa,
    ):
        yield Bare(stack, kube, opa, url)


async def first_sync(bare: Bare) -> float:
    """Return the seconds of one plain LIST and one PUT of its objects."""
    started = time.perf_counter()
    listed = await bare.kube("GET", REPLICA_SETS)
    listed_at = time.perf_counter()
    # Sorting objects by key is not part of the floor: only the bytes' way is.
    tree: dict[str, dict[str, Any]] = {}
    for item in json.loads(listed)["items"]:
        item["metadata"].pop("managedFields", None)
        tree.setdefault(item["metadata"]["namespace"], {})[item["metadata"]["name"]] = item
    body = json.dumps(tree).encode()
    put_at = time.perf_counter()
    await bare.put("kubernetes/replicasets", body)
    return listed_at - started + time.perf_counter() - put_at
