"""The OPA that decisions are asked of, asked about policies themselves.

Keeps true: that its Rego is not there yet is told apart from that it fails on a policy; and where
policies are judged beside each other, that it has another state of them than is meant.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Protocol

import msgspec

from kube_sync.errors import NO_JSON, Retriable, Undecided
from kube_sync.policykinds.kinds import PolicyKind
from kube_sync.policykinds.policy_cache import HeldPolicy
from kube_sync.policykinds.reports import Report, read_report

# About this there is always something to say, if only that it is wrong.
_ANY: Final = msgspec.Raw(b'{"metadata":{"name":"","namespace":""},"spec":{}}')


class Engine(Protocol):
    """The OPA that holds the Rego of decisions, and what is replicated."""

    async def query(self, path: str, body: bytes) -> bytes | None:
        """Return the document at `path` for an input, None when it is undefined."""
        ...

    async def get_data(self, path: tuple[str, ...]) -> bytes | None:
        """Return the document at `path`, None where there is none."""
        ...


class _Replicated(msgspec.Struct):
    spec: Any = None


class OpaPolicyChecker:
    """Judges policies of one kind; `root` is where OPA has what is replicated."""

    def __init__(self, kind: PolicyKind, engine: Engine, root: str) -> None:
        self._kind = kind
        self._engine = engine
        self._root = root

    async def ready(self, namespace: str, policies: Sequence[HeldPolicy]) -> None:
        """Make sure that OPA has exactly these in this namespace. Raises SyncError.

        The two arrive by different ways, either of which may be ahead. If it is OPA, the policies
        come to change here as well, and all are judged again.
        """
        answer = await self._engine.get_data((self._root, self._kind.gvr.resource, namespace))
        try:
            held = msgspec.json.decode(answer or b"{}", type=dict[str, _Replicated])
        except NO_JSON as error:
            msg = f"what OPA has of {namespace} are no {self._kind.gvr.resource}: {error}"
            raise Retriable(msg) from error
        if {name: one.spec for name, one in held.items()} != {p.key.name: p.spec for p in policies}:
            msg = f"OPA does not have all {self._kind.gvr.resource} of {namespace} as they are yet"
            raise Retriable(msg)

    async def judged(self, policy: HeldPolicy) -> Report:
        """Return what there is to say about a policy.

        Raises Undecided when the Rego fails on it, another SyncError when OPA has none of it yet or
        does not answer.
        """
        answer = await self._asked(msgspec.Raw(policy.body))
        if answer is not None:
            return read_report(answer, self._kind.rule)
        if await self._asked(_ANY) is None:
            msg = f"OPA does not know {self._kind.rule}"
            raise Retriable(msg)
        msg = f"{self._kind.rule} is undefined for it"
        raise Undecided(msg)

    async def _asked(self, policy: msgspec.Raw) -> bytes | None:
        body = msgspec.json.encode({"input": {"object": policy}})
        return await self._engine.query(self._kind.report, body)
