"""What the story reads and does: the API servers of hub and spokes, never our own logs.

Writes go through kubectl, as people's would; reads are plain requests, so that the times told are
those of the system and not of kubectl.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from tools.demo.fleet import Manifest
from tools.demo.sync.estate import HUB, Estate, apply
from tools.demo.sync.objects import CLASS, ON_SPOKES, PLACEMENT, SPACE, SPOKES, decided, decision
from tools.servers.http import request
from tools.servers.spokes import RunningSpoke

_SYNC = "kube-sync.io/PolicySync"
_PLACED = "kuadrant.io/policies-synced"
_SAID = "kube-sync.io/synced-status"
_LEAVING = "kuadrant.io/grace-timeout"
_WORKS = "/apis/work.open-cluster-management.io/v1/namespaces/{}/manifestworks"
_POLICIES = "/apis/examples.kube-sync.io/v1alpha1/namespaces/{}/colorpolicies"
_OURS = "kube-sync.io/policy-sync"  # whose entry of `status.ancestors`: PolicyStatus
_CLASSES = "/apis/gateway.networking.k8s.io/v1/gatewayclasses"


class World:
    """One estate, seen from outside."""

    def __init__(self, estate: Estate) -> None:
        self.estate = estate

    def store(self, cluster: str, manifest: Manifest) -> None:
        """Create or change an object of a cluster."""
        apply(self._cluster(cluster), manifest)

    def delete_policy(self, cluster: str, space: str, name: str) -> None:
        """Delete a policy of a cluster."""
        self._cluster(cluster).kubectl("delete", "colorpolicy", name, f"--namespace={space}")

    def decide(self, *clusters: str) -> None:
        """Have the hub's Gateway placed on these clusters."""
        hub = self._cluster(HUB)
        apply(hub, decision())
        apply(hub, decided(clusters), options=["--subresource=status"])

    def forget_decision(self) -> None:
        """Delete the decision, as a mistake would."""
        name = f"{PLACEMENT}-decision-1"
        self._cluster(HUB).kubectl("delete", "placementdecision", name, f"--namespace={SPACE}")

    def class_says(self) -> tuple[str, ...]:
        """Return status and reason of what the hub says of the class's parameters."""
        return _condition(self._get(HUB, f"{_CLASSES}/{CLASS}"), _SYNC)[:2]

    def hub_says(self, policy: str, type_: str) -> tuple[str, ...]:
        """Return status, reason and message of what is said of the hub's policy and its Gateway."""
        status = self._policy(HUB, SPACE, policy).get("status", {})
        ours = [one for one in status.get("ancestors", ()) if one["controllerName"] == _OURS]
        return _condition({"status": ours[0]} if ours else {}, type_)

    def works(self) -> dict[str, int]:
        """Return the generation of the work of each cluster that has one."""
        return {
            cluster: work["metadata"]["generation"]
            for cluster in SPOKES
            for work in self._get(HUB, _WORKS.format(cluster))["items"]
        }

    def leaving(self) -> list[str]:
        """Return the clusters whose work is marked with the time from which it may go."""
        return [
            cluster
            for cluster in SPOKES
            for work in self._get(HUB, _WORKS.format(cluster))["items"]
            if _LEAVING in _annotations(work)
        ]

    def copies(self, policy: str) -> dict[str, str | None]:
        """Return which colour the sky has by each spoke's copy of a policy."""
        return {cluster: _sky(self._policy(cluster, ON_SPOKES, policy)) for cluster in SPOKES}

    def copy(self, cluster: str, policy: str) -> Any:
        """Return a spoke's copy of a policy, {} where there is none."""
        return self._policy(cluster, ON_SPOKES, policy)

    def versions(self, policy: str) -> dict[str, str]:
        """Return the resourceVersion of each copy and each work: it changes with every write."""
        held = {c: self._policy(c, ON_SPOKES, policy) for c in SPOKES}
        held |= {f"work of {c}": self._get(HUB, _WORKS.format(c)) for c in SPOKES}
        return {name: _version(one) for name, one in held.items()}

    def listed(self, policy: str) -> list[str]:
        """Return on which clusters the hub's policy says to have copies."""
        text = _annotations(self._policy(HUB, SPACE, policy)).get(_PLACED, "[]")
        return [one["cluster"] for one in json.loads(text)]

    def told(self, policy: str, field: str, clusters: Iterable[str] = SPOKES) -> dict[str, str]:
        """Return what each cluster has told the hub of its copy in a field."""
        text = _annotations(self._policy(HUB, SPACE, policy)).get(_SAID, "{}")
        said = json.loads(text)
        return {cluster: said.get(cluster, {}).get(field) for cluster in clusters}

    def _policy(self, cluster: str, space: str, name: str) -> Any:
        found = self._get(cluster, f"{_POLICIES.format(space)}/{name}")
        return found if found["kind"] == "ColorPolicy" else {}

    def _get(self, cluster: str, path: str) -> Any:
        server = self._cluster(cluster).cluster
        token = server.tokens["admin"]
        answer = request("GET", server.url + path, ca_file=server.ca_file, token=token)
        return json.loads(answer.body)

    def _cluster(self, name: str) -> RunningSpoke:
        return self.estate.clusters[name]


def _condition(body: Any, type_: str) -> tuple[str, ...]:
    for one in body.get("status", {}).get("conditions", ()):
        if one["type"] == type_:
            return one["status"], one["reason"], one["message"]
    return ()


def _sky(body: Any) -> str | None:
    return body["spec"]["rules"]["sky"]["color"] if body else None


def _annotations(body: Any) -> dict[str, str]:
    return body.get("metadata", {}).get("annotations") or {}


def _version(body: Any) -> str:
    if "items" in body:
        return ",".join(one["metadata"]["resourceVersion"] for one in body["items"])
    return str(body.get("metadata", {}).get("resourceVersion"))
