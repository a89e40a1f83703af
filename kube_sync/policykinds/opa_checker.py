"""Checks policies by a query to the OPA that makes the decisions.

Invariant: missing Rego is distinguished from Rego that fails on a policy; and where policies are
checked together, a state of OPA's data that differs from this cache is detected.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Protocol

import msgspec

from kube_sync.errors import Retriable, Undecided, decoded
from kube_sync.policykinds.kinds import PolicyKind
from kube_sync.policykinds.policy_cache import HeldPolicy
from kube_sync.policykinds.reports import Report, read_report

# A report on this is always defined, if only to say that it is invalid.
_ANY: Final = msgspec.Raw(b'{"metadata":{"name":"","namespace":""},"spec":{}}')


class Engine(Protocol):
    """The OPA with the Rego of decisions and the replicated data."""

    async def query(self, path: str, body: bytes) -> bytes | None:
        """Return the document at `path` for an input, None when it is undefined."""

    async def get_data(self, path: tuple[str, ...]) -> bytes | None:
        """Return the document at `path`, None if there is none."""


class _Replicated(msgspec.Struct):
    spec: Any = None


class OpaPolicyChecker:
    """Checks policies of one kind; `root` is the path of the replicated data in OPA."""

    def __init__(self, kind: PolicyKind, engine: Engine, root: str) -> None:
        self._kind = kind
        self._engine = engine
        self._root = root

    async def ready(self, namespace: str, policies: Sequence[HeldPolicy]) -> None:
        """Check that OPA has exactly these policies in this namespace. Raises SyncError.

        Two watches deliver them, either of which may be ahead. If it is OPA's, the cache changes
        later too, and all are checked again.
        """
        answer = await self._engine.get_data((self._root, self._kind.gvr.resource, namespace))
        problem = f"what OPA has of {namespace} are no {self._kind.gvr.resource}"
        replicated = decoded(answer or b"{}", dict[str, _Replicated], problem)
        if {name: one.spec for name, one in replicated.items()} != {
            p.key.name: p.spec for p in policies
        }:
            msg = f"OPA does not have all {self._kind.gvr.resource} of {namespace} as they are yet"
            raise Retriable(msg)

    async def report_on(self, policy: HeldPolicy) -> Report:
        """Return the report on a policy.

        Raises Undecided when the Rego fails on it, another SyncError when OPA does not have the
        Rego yet or does not answer.
        """
        body = msgspec.Raw(policy.body)
        if (answer := await self._query(body)) is None:
            if await self._query(_ANY) is None:
                msg = f"OPA does not know {self._kind.rule}"
                raise Retriable(msg)
            answer = await self._query(body)  # OPA may have got the Rego since the first query
        if answer is None:
            msg = f"{self._kind.rule} is undefined for it"
            raise Undecided(msg)
        return read_report(answer, self._kind.rule)

    async def _query(self, policy: msgspec.Raw) -> bytes | None:
        body = msgspec.json.encode({"input": {"object": policy}})
        return await self._engine.query(self._kind.report, body)
