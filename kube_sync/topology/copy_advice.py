"""Advice in the condition of a local policy that lost to a copy of a hub's policy.

A local policy replaces a copy only at the copy's own targets. At another level the copy counts as
any policy: its overrides at a Gateway beat a policy of a route. Administrators of the cluster
cannot edit it, and may not know the hub: the condition names the hub's policy and what to do here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from kube_sync.topology.conditions import listed
from kube_sync.topology.effective import Combined
from kube_sync.topology.identity import Locator
from kube_sync.topology.policies import Policy
from kube_sync.topology.synced_policies import hub_policy

_MOST: Final = 3  # copies in one message


def advice(policy: Policy, by: Collection[Locator], parts: Iterable[Combined]) -> str:
    """Return what to add to the condition of a policy that lost to others, "" for nothing.

    `parts` are the combinations that contain the policy, and so all that it can have lost to.
    """
    copies = _copies(by, parts) if by and not policy.synced else {}
    kind = policy.node.kind.kind
    texts = [_advice_on(kind, copies[name]) for name in sorted(copies)[:_MOST]]
    more = len(copies) - len(texts)
    return "".join(f"; {one}" for one in texts) + (f"; {more} more are copies" if more > 0 else "")


def _copies(by: Collection[Locator], parts: Iterable[Combined]) -> Mapping[Locator, Policy]:
    return {
        one.node.locator: one
        for part in parts
        for one in part.policies
        if one.synced and one.node.locator in by
    }


def _advice_on(kind: str, copy: Policy) -> str:
    node = copy.node
    of = hub_policy(node.body)
    named = f"the hub's policy {of}" if of else "a policy of the hub"
    targets = listed(_targets(copy))
    return (
        f"{_full_name(node.namespace, node.name)} is a copy of {named}: to have it otherwise here,"
        f" make a {kind} with the same target, {targets}, which takes the place of the copy, or"
        " ask whoever looks after the hub"
    )


def _targets(copy: Policy) -> Iterable[str]:
    for ref in copy.refs:
        section = f"#{ref.section}" if ref.section else ""
        place = _full_name(ref.namespace or copy.node.namespace, ref.name)
        yield f"{ref.kind.kind} {place}{section}"


def _full_name(namespace: str, name: str) -> str:
    return f"{namespace}/{name}" if namespace else name
