"""Compute and write the wanted state of one webhook configuration. Pure except for `replace`.

Invariant: only webhooks that call our path are changed, and of these only the fields that a Wish
names; what others wrote stays, in its place. The object is written whole (PUT) at the
resourceVersion that was read. Server-side apply does not fit: it requires fields that are not ours,
such as `clientConfig`, and owns a selector as one value (`structType=atomic`), others' parts too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec

from kube_sync.kube.cache import Cache
from kube_sync.kube.client import KubeClient
from kube_sync.kube.collection import Item
from kube_sync.objects import GroupVersionResource

CONFIGURATIONS = GroupVersionResource(
    "admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations"
)
VALIDATING = GroupVersionResource(
    "admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations"
)
_NAMESPACE_NAME = "kubernetes.io/metadata.name"  # a label that every namespace has

Json = Mapping[str, Any]
FailurePolicy = Literal["Fail", "Ignore"]


@dataclass(frozen=True, slots=True)
class Wish:
    """The wanted fields of the webhooks at one path; None leaves a field as it is."""

    path: str
    failure_policy: FailurePolicy | None
    ca_bundle: str | None  # base64, as on the wire
    namespaces: tuple[str, ...]  # namespaces to exclude, besides the webhook's own
    conditions: Mapping[str, str | None]  # CEL by name; None removes the condition


class Registered(Cache[Json]):
    """Caches the one configuration, if it exists."""

    def __init__(self, on_change: Callable[[], None]) -> None:
        """Call `on_change` after each change and at the end of each LIST."""
        super().__init__(_decoded, lambda _changes: on_change())

    @property
    def found(self) -> Json | None:
        """The configuration, None if there is none."""
        return next(iter(self.objects.values()), None)


def _decoded(item: Item) -> Json:
    found: Json = msgspec.json.decode(item.body)
    return found


def ours(configuration: Json, path: str) -> list[Json]:
    """Return the webhooks that call `path`, whatever their names."""
    return [w for w in configuration.get("webhooks") or () if _calls(w) == path]


def version(configuration: Json) -> str:
    """Return its resourceVersion."""
    return str(configuration["metadata"]["resourceVersion"])


def made_right(configuration: Json, wish: Wish) -> Json:
    """Return the configuration as wanted; equal to its argument if nothing has to change."""
    webhooks = configuration.get("webhooks") or ()
    right = [_webhook(w, wish) if _calls(w) == wish.path else w for w in webhooks]
    return {**configuration, "webhooks": right} if webhooks else configuration


async def replace(
    client: KubeClient, configuration: Json, configurations: GroupVersionResource = CONFIGURATIONS
) -> str:
    """Write a configuration if it is still at its resourceVersion; return the new one.

    Raises SyncError; Conflict if it was changed meanwhile.
    """
    path = configurations.path(None, configuration["metadata"]["name"])
    answer = await client.request("PUT", path, body=msgspec.json.encode(configuration))
    return version(msgspec.json.decode(answer))


def _calls(webhook: Json) -> str:
    """Return the path that the API server calls (admissionregistration/v1, clientConfig)."""
    client = webhook.get("clientConfig") or {}
    service = client.get("service")
    if service is not None:
        return str(service.get("path") or "/")
    return urlsplit(client.get("url") or "").path or "/"


def _webhook(old: Json, wish: Wish) -> Json:
    new = dict(old)
    if wish.failure_policy is not None:
        new["failurePolicy"] = wish.failure_policy
    client = old["clientConfig"]
    if wish.ca_bundle is not None:
        new["clientConfig"] = {**client, "caBundle": wish.ca_bundle}
    # The namespace of its own pods: while none answers, it must not refuse their start.
    home = (client.get("service") or {}).get("namespace")
    names = wish.namespaces if home is None else (*wish.namespaces, home)
    new["namespaceSelector"] = _leaving_out(old.get("namespaceSelector") or {}, names)
    new["matchConditions"] = _conditions(old.get("matchConditions") or [], wish.conditions)
    # An empty field that was absent before is no difference.
    return {name: value for name, value in new.items() if value or name in old}


def _leaving_out(selector: Json, names: Sequence[str]) -> Json:
    """Return the selector with a `NotIn` for all of `names`; its other parts stay."""
    expressions: list[Json] = list(selector.get("matchExpressions") or ())
    places = [i for i, e in enumerate(expressions) if _is_not_in(e)]
    known = {name for i in places for name in expressions[i].get("values") or ()}
    if missing := [name for name in dict.fromkeys(names) if name not in known]:
        if not places:
            places = [len(expressions)]
            expressions.append({"key": _NAMESPACE_NAME, "operator": "NotIn", "values": []})
        first = expressions[places[0]]
        expressions[places[0]] = {**first, "values": [*(first.get("values") or ()), *missing]}
        return {**selector, "matchExpressions": expressions}
    return selector


def _is_not_in(expression: Json) -> bool:
    return (expression.get("key"), expression.get("operator")) == (_NAMESPACE_NAME, "NotIn")


def _conditions(old: Sequence[Json], wanted: Mapping[str, str | None]) -> list[Json]:
    """Return the match conditions with ours as wanted; all conditions must hold."""
    kept = [c for c in old if wanted.get(c["name"], c["expression"]) is not None]
    right: list[Json] = [
        {**c, "expression": wanted.get(c["name"]) or c["expression"]} for c in kept
    ]
    there = {c["name"] for c in kept}
    return right + [
        {"name": name, "expression": expression}
        for name, expression in wanted.items()
        if expression is not None and name not in there
    ]
