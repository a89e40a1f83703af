"""HTTP client of a policy engine, OPA or another one: one POST for one decision.

Invariant: an attempt has a time limit, no aiohttp error leaves this module, and every answer
without a decision raises an error by what to do next (`failures`). Connections are kept and reused.
Retries are those of `decision_client`; `breaker` knows whether the engine is down.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager

import aiohttp
import msgspec

from kube_sync.admission.engine_errors import Evaluation, Failed, NoAnswer, Passing
from kube_sync.admission.engine_formats import Answer
from kube_sync.admission.review import Review
from kube_sync.admission.target import Target
from kube_sync.config import masked
from kube_sync.errors import NO_JSON, Misconfigured, Retriable
from kube_sync.observability import metrics, tracing
from kube_sync.opa.client import OpaError
from kube_sync.runtime.clienttls import Tls, client_tls
from kube_sync.runtime.httperrors import retriable
from kube_sync.runtime.tokenfile import TokenFile

_KEEP_SECONDS = 30.0  # an unused connection; OPA itself keeps it longer
_BUSY = (429, 502, 503, 504)
_NEVER = (501, 505)  # (RFC 9110, section 15.6: what the server cannot do at all)
_MAX_TEXT = 200  # characters of an answer that is no JSON

_answered = metrics.admission_engine_attempts.labels("answered")  # once: labels cost


class EngineClient:
    """A connection pool to one engine."""

    def __init__(
        self,
        target: Target,
        headers: Callable[[], dict[str, str]],
        session: aiohttp.ClientSession,
        tls: Callable[[], Tls],
    ) -> None:
        self._target = target
        self._headers = headers
        self._session = session
        self._tls = tls
        self.where = f"policy engine {masked(target.url)}"
        self._url = _with_provenance(target, target.url)
        self._timeout = aiohttp.ClientTimeout(total=target.timeout_seconds)

    async def ask(self, review: Review, resource: msgspec.Raw) -> Answer:
        """Ask once for the decision on a resource, as the policy's input.

        Raises Failed, or Passing if a retry may succeed.
        """
        body = self._target.dialect.ask(review, resource)
        return await self.counted(self._attempt(self._url, body))

    async def attempt(self, review: Review, resource: msgspec.Raw, url: str) -> Answer:
        """Ask at another URL without counting. Raises Failed and Passing, as `ask` does."""
        body = self._target.dialect.ask(review, resource)
        return await self._attempt(_with_provenance(self._target, url), body)

    async def probe(self) -> None:
        """Send an empty input; an undefined decision is an answer too.

        Raises Failed and Passing, as `ask` does.
        """
        try:
            await self.counted(self._attempt(self._url, self._target.dialect.empty))
        except Failed as error:
            if error.why not in ("undefined", "evaluation-error"):
                raise

    async def counted(self, attempt: Awaitable[Answer]) -> Answer:
        """Await an attempt and count its result."""
        try:
            answer = await attempt
        except (Failed, Passing) as error:
            metrics.admission_engine_attempts.labels(error.why).inc()
            raise
        _answered.inc()
        return answer

    async def _attempt(self, url: str, body: bytes) -> Answer:
        status, answer, headers = await self._post(url, body)
        if not 200 <= status < 300:  # noqa: PLR2004 - HTTP's own
            raise self._failure(status, answer, headers)
        try:
            found = self._target.dialect.read(answer)
        except Failed as error:
            msg = f"{self.where}: {error}"
            raise Failed(msg, error.why) from error
        if found is None:
            raise self.undefined()
        return found

    async def _post(self, url: str, body: bytes) -> tuple[int, bytes, Mapping[str, str]]:
        try:
            headers = self._headers()
        except Misconfigured as error:  # token file missing: the next review retries
            msg = f"{self.where}: {error}"
            raise Failed(msg, "unauthorized") from error
        try:
            with retriable(self.where), tracing.request("policy engine", "POST", url) as traced:
                async with self._session.post(
                    url,
                    data=body,
                    headers={**headers, **traced.headers},
                    timeout=self._timeout,
                    ssl=self._tls(),
                    allow_redirects=False,  # the token is for this engine alone
                ) as response:
                    traced.answered(response.status)
                    return response.status, await response.read(), response.headers
        except Retriable as error:
            late = isinstance(error.__cause__, TimeoutError)
            raise NoAnswer(str(error), "timeout" if late else "unreachable") from error

    def _failure(self, status: int, body: bytes, headers: Mapping[str, str]) -> Failed | Passing:
        error = _account(body)
        message = f"{self.where}: {status} {error}".strip()
        if status in (401, 403):
            return Failed(message, "unauthorized")
        if status == 404:  # noqa: PLR2004
            return self.undefined(status)
        if status == 500 and error.code == "internal_error" and error.errors:  # noqa: PLR2004
            return Evaluation(message, error)
        if status in _BUSY:
            # A proxy's error for an engine that is down counts as no answer.
            kind = Passing if status == 429 else NoAnswer  # noqa: PLR2004
            return kind(message, "overloaded", _seconds(headers.get("Retry-After", "")))
        if status >= 500 and status not in _NEVER:  # noqa: PLR2004
            return Passing(message, "failing", _seconds(headers.get("Retry-After", "")))
        return Failed(message, "rejected")

    def undefined(self, status: int | None = None) -> Failed:
        """Return the error of an undefined decision."""
        said = f" ({status})" if status else ""
        return Failed(f"{self.where}: the decision is undefined{said}", "undefined")


@asynccontextmanager
async def engine_client(target: Target) -> AsyncGenerator[EngineClient]:
    """Yield a client of the configured engine. Raises Misconfigured."""
    tls = client_tls(target.url, target.ca_file, target.cert_file, target.key_file)
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEP_SECONDS)
    session = aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        headers={"Content-Type": "application/json"},
    )
    async with session:
        yield EngineClient(target, _authorization(target), session, tls)


def _authorization(target: Target) -> Callable[[], dict[str, str]]:
    if target.token is not None:
        fixed = {"Authorization": f"Bearer {target.token}"}
        return lambda: fixed
    token = TokenFile(target.token_file)
    token.current()  # fail at start if it is invalid
    return token.headers


def _with_provenance(target: Target, url: str) -> str:
    """Ask OPA for the revisions of its bundles in the answer; other engines ignore it."""
    joint = "&" if "?" in url else "?"
    return url + (f"{joint}provenance=true" if target.dialect.provenance else "")


def _account(body: bytes) -> OpaError:
    try:
        return msgspec.json.decode(body, type=OpaError)
    except NO_JSON:
        text = " ".join(body[: 4 * _MAX_TEXT].decode("utf-8", "replace").split())
        return OpaError(message=text[:_MAX_TEXT])


def _seconds(text: str) -> float | None:
    """Parse Retry-After; a date is ignored for the back-off (RFC 9110, section 10.2.3)."""
    return float(text) if text.isascii() and text.isdigit() else None
