"""The example of the documentation is of kinds that exist, as Kuadrant has released them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec.yaml

from kube_sync.objects import GroupVersionResource
from kube_sync.policysync.feedback_fields import steps
from kube_sync.policysync.parameters import Parameters, parse_parameters
from kube_sync.policysync.validation import VERBS, Valid, validate
from tools.servers.thirdparty import ThirdParty, download

DOCUMENT = Path(__file__).resolve().parents[3] / "docs/policy-sync.md"
KUADRANT = ThirdParty(
    name="kuadrant",
    module="github.com/kuadrant/kuadrant-operator",
    version="v1.1.0",
    sum="h1:hak2q1wWm/TwUGdCw/goVmRvGqFr7i7NqTnBRNPkoO4=",
    files=(),
)


def documented() -> Parameters:
    """Return the parameters that the documentation shows."""
    (example,) = re.findall(r"```json\n(\{\"policiesToSync.*?)```", DOCUMENT.read_text(), re.DOTALL)
    assert json.loads(example)
    ref = {"group": "", "kind": "ConfigMap", "namespace": "infra", "name": "params"}
    found = parse_parameters(
        {"spec": {"parametersRef": ref}}, lambda _key: {"data": {"params": example}}
    )
    assert isinstance(found, Parameters)
    return found


def definition(gvr: GroupVersionResource) -> Mapping[str, Any]:
    file = download(KUADRANT) / f"config/crd/bases/{gvr.group}_{gvr.resource}.yaml"
    found: Mapping[str, Any] = msgspec.yaml.decode(file.read_bytes())
    return found


def schema_at(crd: Mapping[str, Any], version: str, path: str) -> Mapping[str, Any]:
    """Return the schema of a field, empty where there is none."""
    (served,) = (one for one in crd["spec"]["versions"] if one["name"] == version)
    schema = served["schema"]["openAPIV3Schema"]
    for step in steps(path):
        schema = schema.get("properties", {}).get(step, {})
    return dict(schema)


def test_the_documented_parameters_name_kinds_that_are_synced_and_scalars_of_them() -> None:
    found = documented()
    assert not found.problems
    assert any(kind.fields for kind in found.kinds)
    for kind in found.kinds:
        crd = definition(kind.gvr)
        assert isinstance(validate(kind.gvr, crd, VERBS), Valid)
        for field in kind.fields:
            known = schema_at(crd, kind.gvr.version, field.path)
            assert known.get("type") in ("integer", "string", "boolean"), field.path
