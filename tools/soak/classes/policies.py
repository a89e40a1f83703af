"""The modules of the policy that changes, and the reviews that it decides. Pure.

No answer of a module ever returns: each names the edition of its module, and the revision of each
object that it depends on. So an answer that OPA gives no longer is recognized as such.
"""

from __future__ import annotations

import json
from typing import Any

from benchmarks.admission import review
from tools.demo.fleet import FLEET, replica_set

OBJECTS = "classes-objects"  # the namespace of the ReplicaSets that a policy reads
DATA = "classes-data"  # the namespace of the data ConfigMap
DATA_NAME = "site"
KEY = "soak.example.com/"  # of what the modules decide
REGION, TIER, REV = "region", "tier", "rev"  # labels
TEAM = "example.com/team"  # an annotation
HEALTH = "ControlPlaneHealthy"
EVERYWHERE = "everywhere"
REGIONS = ("r0", "r1", "r2", "r3")
TIERS = ("gold", "silver", "iron", "tin", "lead")
_TEAMS = ("a", "b", "c", None)
_REPLICAS = (1, 2, 3)
_PACKAGE = "package io.k8s.federation.admission\n\n"

_PLACE = f"""
annotations["{KEY}place"] := sprintf("eEDITION:%s", [concat(",", sort(_places))])

errors contains "no region (eEDITION)" if not input.metadata.labels.{REGION}

_places contains place if {{
	some name, cluster in data.kubernetes.clusters.{FLEET}
	cluster.metadata.labels.{REGION} in {{input.metadata.labels.{REGION}, "{EVERYWHERE}"}}
	place := sprintf("%s@%s/%s", [name, cluster.metadata.labels.{REV}, _health(cluster)])
}}

default _health(_) := "new"

_health(cluster) := condition.reason if {{
	some condition in cluster.status.conditions
	condition.type == "{HEALTH}"
}}
"""
_PEERS = f"""
annotations["{KEY}peers"] := sprintf("eEDITION:%s", [concat(",", sort(_peers))])

_peers contains peer if {{
	some name, object in data.kubernetes.replicasets["{OBJECTS}"]
	object.metadata.labels.{TIER} == input.metadata.labels.{TIER}
	peer := sprintf("%s@%s", [name, object.metadata.labels.{REV}])
}}
"""
_SITE = f"""
annotations["{KEY}site"] := sprintf("eEDITION:%v", [data["{DATA}"].{DATA_NAME}.{REV}])
"""
_TIER = f"""
annotations["{KEY}tier"] := sprintf("eEDITION:%s", [input.metadata.labels.{TIER}])
"""
_TEAM = f"""
annotations["{KEY}team"] := sprintf("eEDITION:%s", [input.metadata.annotations["{TEAM}"]])
"""
_SIZE = f"""
annotations["{KEY}size"] := sprintf("eEDITION:%v", [input.spec.replicas])
"""
_CLOCK = f"""
annotations["{KEY}clock"] := "eEDITION" if time.now_ns() > 0
"""
_WHOLE = f"""
annotations["{KEY}whole"] := sprintf("eEDITION:%d", [count(json.marshal(input))])
"""
BROKEN = _PACKAGE + 'annotations["broken'
PLACE = "place"  # the one that is always there
MODULES = {
    PLACE: _PLACE,
    "peers": _PEERS,
    "site": _SITE,
    "tier": _TIER,
    "team": _TEAM,
    "size": _SIZE,
    "clock": _CLOCK,
    "whole": _WHOLE,
}
UNSHARED = ("clock", "whole")  # no class covers what these read


def module(name: str, edition: int) -> str:
    """Return an edition of a module."""
    return _PACKAGE + MODULES[name].lstrip().replace("EDITION", str(edition))


def inputs(count: int) -> list[dict[str, Any]]:
    """Return the first of the ReplicaSets that are reviewed, whatever the policy reads of them."""
    return [_input(index) for index in range(count)]


def reviews(manifests: list[dict[str, Any]]) -> list[str]:
    """Return what the API server asks about these."""
    return [json.dumps(review(manifest)) for manifest in manifests]


def _input(index: int) -> dict[str, Any]:
    manifest = replica_set(f"app-{index:05}")
    # Numbers of values without a common divisor: all combinations come.
    region = (*REGIONS, None, "elsewhere", "r3")[index % 7]
    labels = {TIER: TIERS[index % len(TIERS)]} | ({} if region is None else {REGION: region})
    team = _TEAMS[index % len(_TEAMS)]
    manifest["metadata"] |= {
        "namespace": OBJECTS,
        "labels": labels,
        "annotations": {} if team is None else {TEAM: team},
    }
    manifest["spec"]["replicas"] = _REPLICAS[index % len(_REPLICAS)]
    return manifest
