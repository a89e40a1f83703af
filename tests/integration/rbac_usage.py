"""What the roles of the manifests grant, and what the API server was asked for.

A grant is an account, an API group, a resource (with its subresource) and a verb; names and
namespaces are the business of other tests. Rules that a label brings in are put in here as the
cluster's own controller would: the stack has none.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tests.fakes.manifests import Manifest, of_kind

PREFIX = "system:serviceaccount:kube-sync:kube-sync-"


class Grant(NamedTuple):
    """That an account may do something."""

    account: str
    group: str
    resource: str
    verb: str

    def __str__(self) -> str:
        """`replicator: patch configmaps`."""
        return f"{self.account}: {self.verb} {self.resource}{'.' * bool(self.group)}{self.group}"


def granted(manifests: Iterable[Manifest]) -> set[Grant]:
    """Return everything that bindings give to our accounts."""
    found = list(manifests)
    roles = {_key(role): rules_of(role, found) for role in of_kind(found, "Role", "ClusterRole")}
    return {
        Grant(account, group, resource, verb)
        for binding in of_kind(found, "RoleBinding", "ClusterRoleBinding")
        for account in _accounts(binding)
        for rule in roles[_bound(binding)]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def rules_of(role: Manifest, manifests: Iterable[Manifest]) -> list[Manifest]:
    """Return a role's rules, with those of the roles whose labels it selects."""
    rules = list(role.get("rules") or ())
    for selector in role.get("aggregationRule", {}).get("clusterRoleSelectors", ()):
        wanted = selector["matchLabels"].items()
        for other in of_kind(list(manifests), "ClusterRole"):
            if wanted <= (other["metadata"].get("labels") or {}).items():
                rules += other["rules"]
    return rules


def _key(role: Manifest) -> tuple[str, str | None, str]:
    return role["kind"], role["metadata"].get("namespace"), role["metadata"]["name"]


def _bound(binding: Manifest) -> tuple[str, str | None, str]:
    kind, name = binding["roleRef"]["kind"], binding["roleRef"]["name"]
    return kind, binding["metadata"].get("namespace") if kind == "Role" else None, name


def _accounts(binding: Manifest) -> Iterator[str]:
    for subject in binding["subjects"]:
        if subject["kind"] == "ServiceAccount" and subject["name"].startswith("kube-sync-"):
            yield subject["name"].removeprefix("kube-sync-")


def asked(audit_log: Path) -> dict[Grant, Mapping[str, Any]]:
    """Return what our accounts were allowed to do, and did; with one of the requests."""
    return {_grant(event): event for event in _ours(audit_log) if _decision(event) == "allow"}


def refused(audit_log: Path) -> dict[Grant, Mapping[str, Any]]:
    """Return what our accounts tried, and no role allows."""
    return {_grant(event): event for event in _ours(audit_log) if _decision(event) == "forbid"}


def held(audit_log: Path) -> list[str]:
    """Return what our accounts had the right to, and a ValidatingAdmissionPolicy refused."""
    answers = ((event, event.get("responseStatus", {})) for event in _ours(audit_log))
    said = ((_grant(event), str(answer.get("message", ""))) for event, answer in answers)
    return [f"{grant}: {message}" for grant, message in said if "AdmissionPolicy" in message]


def _ours(audit_log: Path) -> Iterator[Mapping[str, Any]]:
    for line in audit_log.read_text(encoding="utf-8").splitlines():
        try:
            event = json.loads(line)
        except ValueError:  # the last one is being written
            continue
        if event["user"]["username"].startswith(PREFIX) and "objectRef" in event:
            yield event


def _decision(event: Mapping[str, Any]) -> str:
    return str(event.get("annotations", {}).get("authorization.k8s.io/decision", ""))


def _grant(event: Mapping[str, Any]) -> Grant:
    about = event["objectRef"]
    resource = "/".join(filter(None, (about["resource"], about.get("subresource"))))
    account = event["user"]["username"].removeprefix(PREFIX)
    return Grant(account, about.get("apiGroup", ""), resource, event["verb"])
