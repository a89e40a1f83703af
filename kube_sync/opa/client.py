"""HTTP client of one OPA: its data, its policies, its decisions.

Invariant: every request has a time limit, no aiohttp error leaves this module, and every answer
that is not a success raises by what to do next. Bodies pass through as bytes.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Literal, Protocol, TypeVar
from urllib.parse import quote

import aiohttp
import msgspec

from kube_sync.config import Opa
from kube_sync.errors import NO_JSON, EpochLost, NotFound, Refused, Retriable, SyncError, Undecided
from kube_sync.observability import metrics, tracing
from kube_sync.opa import paths
from kube_sync.opa.paths import DataPath
from kube_sync.runtime.clienttls import Tls, client_tls
from kube_sync.runtime.httperrors import retriable
from kube_sync.runtime.tokenfile import TokenFile

T = TypeVar("T")

_CONNECT_SECONDS = 5.0
_WRITE_SECONDS = 60.0
_QUERY_SECONDS = 10.0
_WRITE = aiohttp.ClientTimeout(total=_WRITE_SECONDS, sock_connect=_CONNECT_SECONDS)
_QUERY = aiohttp.ClientTimeout(total=_QUERY_SECONDS, sock_connect=_CONNECT_SECONDS)


_CONFLICT = "eval_conflict_error"
_PLACE = re.compile(r" at \S+:[0-9]+\Z")


class OpaError(msgspec.Struct):
    """OPA's error response, for the author of the policy: complete, but without values.

    Others read it too, and values are made of the data that policies read, such as Secrets.
    """

    code: str = ""
    message: str = ""
    errors: list[Any] = []

    def __post_init__(self) -> None:
        self.errors = [*map(without_values, self.errors)]

    def __str__(self) -> str:
        """Format as one line: the message and, if OPA gives one, the first cause with its row."""
        first = self.errors[0] if self.errors else None
        if not isinstance(first, dict):
            return self.message
        location = first.get("location")
        where = ""
        if isinstance(location, dict) and location.get("file"):
            where = f"{location['file']}:{location.get('row', '?')}: "
        return f"{where}{first.get('message', self.message)}"


def without_values(cause: Any) -> Any:  # noqa: ANN401 - any JSON
    """Return a cause of OPA's; an error of conflicting values keeps only their locations."""
    if not isinstance(cause, dict) or cause.get("code") != _CONFLICT:
        return cause
    message, *values = str(cause.get("message", "")).split("\n")  # newlines in strings are escaped
    places = (found[0] for value in values if (found := _PLACE.search(value)))
    return cause | {"message": "\n ".join((message, *places))}


class PolicyRejected(SyncError):
    """OPA rejected a module, or the removal of one that others need; nothing changed."""

    def __init__(self, error: OpaError) -> None:
        super().__init__(str(error))
        self.error = error


class _Result(msgspec.Struct):
    result: msgspec.Raw = msgspec.Raw()  # empty when undefined


class _Timed(msgspec.Struct):
    result: msgspec.Raw = msgspec.Raw()
    metrics: dict[str, Any] | None = None
    decision_id: str = ""  # if OPA logs decisions


class Explained(msgspec.Struct):
    """A decision with its explanation, a line a step; `result` is empty if it is undefined."""

    result: msgspec.Raw = msgspec.Raw()
    explanation: list[str] = []


class _Term(msgspec.Struct):
    value: Any = None


class _Package(msgspec.Struct):
    path: list[_Term] = []


class _Ast(msgspec.Struct):
    package: _Package = msgspec.field(default_factory=_Package)


class LoadedPolicy(msgspec.Struct):
    """A module that OPA holds, from whatever source."""

    id: str
    raw: str = ""
    ast: _Ast = msgspec.field(default_factory=_Ast)

    @property
    def package(self) -> DataPath:
        """The parts of its package; the first term of the tree is the variable `data`."""
        return tuple(str(term.value) for term in self.ast.package.path[1:])


class CompiledPolicy(msgspec.Struct):
    """A module that OPA holds, with its compiled syntax tree."""

    id: str
    raw: str = ""
    ast: Any = None


class _Policies(msgspec.Struct):
    result: list[LoadedPolicy] = []


class _CompiledPolicies(msgspec.Struct):
    result: list[CompiledPolicy] = []


class _Bundle(msgspec.Struct):
    resource: str = ""


class _Config(msgspec.Struct):
    bundles: dict[str, _Bundle] | None = None
    labels: dict[str, str] = {}


class _ConfigResult(msgspec.Struct):
    result: _Config = msgspec.field(default_factory=_Config)


class QueryApi(Protocol):
    """The query API of OPA."""

    async def query(self, path: str, body: bytes) -> bytes | None:
        """Return the document at `path` for this body; None when it is undefined."""


class OpaClient:
    """A connection pool to one OPA."""

    def __init__(
        self,
        url: str,
        token: TokenFile,
        session: aiohttp.ClientSession,
        tls: Callable[[], Tls],
    ) -> None:
        self._tls = tls
        self._url = url.rstrip("/")
        self._token = token
        self._session = session

    @property
    def url(self) -> str:
        """OPA's address, for messages."""
        return self._url

    async def put_data(self, path: DataPath, document: bytes) -> None:
        """Replace everything at `path`; parents are created. Raises SyncError."""
        with metrics.opa_write_seconds.labels("put").time():
            await self._request("PUT", "/v1/data" + paths.url(path), document)

    async def ensure_data(self, path: DataPath) -> None:
        """Create an empty object at `path` unless a document exists; parents are created.

        Raises SyncError, NotFound where a parent is no object. (OPA has no other condition than
        `If-None-Match: *`, and checks data alone, not what policies define.)
        """
        with metrics.opa_write_seconds.labels("ensure").time():
            await self._request("PUT", "/v1/data" + paths.url(path), b"{}", unless_there=True)

    async def stream_data(self, path: DataPath, chunks: AsyncIterator[bytes]) -> None:
        """Replace the document at `path` by one that is streamed in chunks. Raises SyncError.

        OPA applies it once it is complete; an interrupted stream changes nothing.
        """
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=_CONNECT_SECONDS, sock_read=_WRITE_SECONDS
        )
        with metrics.opa_write_seconds.labels("stream").time():
            await self._request("PUT", "/v1/data" + paths.url(path), chunks, timeout=timeout)

    async def patch_data(self, operations: Sequence[bytes]) -> None:
        """Apply all operations or none. Raises EpochLost when a path does not exist (404)."""
        body = b"[" + b",".join(operations) + b"]"
        metrics.opa_batch_operations.observe(len(operations))
        with metrics.opa_write_seconds.labels("patch").time():
            try:
                await self._request("PATCH", "/v1/data", body, "application/json-patch+json")
            except NotFound as error:
                raise EpochLost(str(error)) from error

    async def get_data(self, path: DataPath) -> bytes | None:
        """Return the document at `path` as JSON, None if there is none. Raises SyncError."""
        return _result(await self._request("GET", "/v1/data" + paths.url(path)))

    async def query(self, path: str, body: bytes) -> bytes | None:
        """Evaluate the decision at `path`; `body` is `{"input": …}`. None when it is undefined.

        Raises Undecided on an evaluation error, which a retry does not change.
        """
        return _result(await self._request("POST", "/v1/data/" + path, body, timeout=_QUERY))

    async def timed_query(self, path: str, body: bytes) -> tuple[bytes | None, float | None]:
        """Evaluate as `query` does; also return OPA's evaluation time (seconds), None if unknown.

        The time excludes waiting for a busy machine or for a write of data or policies.
        """
        answer = await self._request("POST", f"/v1/data/{path}?metrics=true", body, timeout=_QUERY)
        found = _decode(answer, _Timed)
        if found.decision_id:
            tracing.describe({"opa.decision_id": found.decision_id})
        nanoseconds = (found.metrics or {}).get("timer_rego_query_eval_ns")
        seconds = nanoseconds / 1e9 if isinstance(nanoseconds, int | float) else None
        return bytes(found.result) or None, seconds

    async def explain(
        self,
        path: str,
        body: bytes,
        longest: int,
        seconds: float,
        *,
        what: Literal["full", "notes"] = "full",
    ) -> Explained:
        """Evaluate the decision at `path` with a trace of its steps, as OPA prints it for people.

        `notes`: only steps on which a policy notes something (`trace`), and the steps to them.

        Raises Retriable when that takes longer than `seconds` or more than `longest` bytes, and
        Undecided on an evaluation error.
        """
        timeout = aiohttp.ClientTimeout(total=seconds, sock_connect=_CONNECT_SECONDS)
        whole = f"/v1/data/{path}?explain={what}&pretty=true"
        answer = await self._request("POST", whole, body, timeout=timeout, longest=longest)
        return _decode(answer, Explained)

    async def policies(self) -> list[LoadedPolicy]:
        """Return all modules that OPA holds. Raises SyncError."""
        return _decode(await self._request("GET", "/v1/policies"), _Policies).result

    async def compiled_policies(self) -> list[CompiledPolicy]:
        """Return all modules that OPA holds, with their syntax trees. Raises SyncError."""
        return _decode(await self._request("GET", "/v1/policies"), _CompiledPolicies).result

    async def bundle_from(self, resource: str) -> str | None:
        """Return the name of the bundle that OPA fetches from `resource`, None if it does not.

        Raises SyncError.
        """
        config = await self._config()
        for name, bundle in (config.bundles or {}).items():
            # Without a configured resource OPA requests `bundles/<name>`.
            if (bundle.resource or f"bundles/{name}").strip("/").endswith(resource):
                return name
        return None

    async def version(self) -> str | None:
        """Return OPA's version, None if its configuration does not say it. Raises SyncError."""
        return (await self._config()).labels.get("version")

    async def _config(self) -> _Config:
        try:
            body = await self._request("GET", "/v1/config")
        except Refused as error:
            msg = f"{error}; its authorization has to allow GET /v1/config to the replicator"
            raise Refused(msg) from error
        return _decode(body, _ConfigResult).result

    async def answers_strangers(self) -> bool:
        """Return whether OPA answers requests without a token. Raises SyncError."""
        try:
            await self._request("GET", "/v1/config", stranger=True)
        except (Refused, NotFound):
            return False
        return True

    async def put_policy(self, policy_id: str, source: str) -> None:
        """Load one module. Raises PolicyRejected with OPA's errors when it does not compile."""
        await self._request("PUT", _policy(policy_id), source.encode(), "text/plain")

    async def delete_policy(self, policy_id: str) -> None:
        """Unload one module; one that is gone already is no error. Raises PolicyRejected."""
        try:
            await self._request("DELETE", _policy(policy_id))
        except NotFound:
            return

    async def _request(
        self,
        method: str,
        path: str,
        body: bytes | AsyncIterator[bytes] | None = None,
        content_type: str = "application/json",
        timeout: aiohttp.ClientTimeout = _WRITE,  # noqa: ASYNC109 - aiohttp's own, by phases
        *,
        unless_there: bool = False,
        stranger: bool = False,
        longest: int | None = None,
    ) -> bytes:
        headers = ({} if stranger else self._token.headers()) | (
            {"If-None-Match": "*"} if unless_there else {}
        )
        if body is not None:
            headers["Content-Type"] = content_type
        with retriable(f"OPA {self._url}"), tracing.request("OPA", method, path) as traced:
            async with self._session.request(
                method,
                self._url + path,
                data=body,
                headers={**headers, **traced.headers},
                timeout=timeout,
                ssl=self._tls(),
            ) as response:
                traced.answered(response.status)
                answer = await _read(response, longest)
                there = unless_there and response.status == 304  # noqa: PLR2004 - HTTP's own
                if not (there or 200 <= response.status < 300):  # noqa: PLR2004
                    raise self._failure(response.status, answer, response.headers)
                return answer

    def _failure(self, status: int, body: bytes, headers: Mapping[str, str]) -> SyncError:
        try:
            error = msgspec.json.decode(body, type=OpaError)
        except NO_JSON:
            error = OpaError(message=body[:200].decode("utf-8", "replace").strip())
        message = f"OPA {self._url}: {status} {error}"
        match status:
            case 400:
                return PolicyRejected(error)
            case 401 | 403:
                return Refused(f"{message} (is opa.token_file the right one?)")
            case 404:
                return NotFound(message)
            case 500 if error.code == "internal_error" and error.errors:
                return Undecided(str(error))
            case _:
                after = headers.get("Retry-After", "")
                return Retriable(message, float(after) if after.isdigit() else None)


@asynccontextmanager
async def opa_client(settings: Opa) -> AsyncGenerator[OpaClient]:
    """Yield a client for the configured OPA. Raises Misconfigured."""
    tls = client_tls(settings.url, settings.ca_file)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        yield OpaClient(settings.url, TokenFile(settings.token_file), session, tls)


async def _read(response: aiohttp.ClientResponse, longest: int | None) -> bytes:
    if longest is None:
        return await response.read()
    parts, size = list[bytes](), 0
    async for part in response.content.iter_any():
        parts.append(part)
        size += len(part)
        if size > longest:
            response.close()  # otherwise aiohttp would read the rest
            msg = f"OPA answers with more than {longest >> 20} MiB"
            raise Retriable(msg)
    return b"".join(parts)


def _policy(policy_id: str) -> str:
    return "/v1/policies/" + quote(policy_id, safe="/")


def _result(body: bytes) -> bytes | None:
    return bytes(_decode(body, _Result).result) or None


def _decode(body: bytes, shape: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=shape)
    except NO_JSON as error:
        msg = f"what answers is not OPA: {error}"
        raise Retriable(msg) from error
