"""ColorPolicy on a real API server: what its definition takes, and what is exported from there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from kube_sync.inspect.survey.topology.command import Request, run
from tests.fakes.topologies import color, defaults, gateway, gateway_class, overrides, route, rules
from tools.servers.errors import ToolError
from tools.servers.stack import RunningStack

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "manifests/examples/topology/policies.yaml"


@pytest.fixture(scope="module")
def cluster(stack: RunningStack) -> RunningStack:
    """The stack of all, with the kind on it."""
    stack.install_kinds(ROOT / "manifests/examples/colorpolicy")
    return stack


def created(cluster: RunningStack, *objects: dict[str, Any]) -> str:
    listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
    return cluster.kubectl("create", "-f", "-", "--output=name", stdin=listed)


def test_the_example_is_taken(cluster: RunningStack, namespace: str) -> None:
    policies = list(yaml.safe_load_all(EXAMPLE.read_text(encoding="utf-8")))
    for policy in policies:
        policy["metadata"]["namespace"] = namespace
    assert len(created(cluster, *policies).splitlines()) == len(policies)


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"defaults": {"rules": {}}, "overrides": {"rules": {}}}, "one of rules, defaults and"),
        ({}, "one of rules, defaults and overrides is needed"),
        ({"rules": {}, "targetRefs": []}, "spec.targetRefs"),
        ({"rules": rules(a="blue"), "targetRef": {"name": "gw"}}, 'required field "kind"'),
        (defaults("mrege", a="blue"), "spec.defaults.strategy: Unsupported value"),
        ({"rules": {"a": {"color": "blue", "identity": "Mine"}}}, "identity: Unsupported value"),
    ],
)
def test_what_means_nothing_is_refused(
    cluster: RunningStack, namespace: str, spec: dict[str, Any], said: str
) -> None:
    broken = color("broken", namespace=namespace)
    broken["spec"] |= spec
    with pytest.raises(ToolError, match=said):
        created(cluster, broken)


def test_what_is_exported_is_read_as_it_was_written(
    cluster: RunningStack, namespace: str, tmp_path: Path
) -> None:
    written = [color("gw", namespace=namespace, **overrides("merge", sky="blue"))]
    world = [gateway_class(), gateway(namespace=namespace), route(NAMESPACE=namespace)]
    created(cluster, *written)
    exported = cluster.kubectl("get", "colorpolicies", f"--namespace={namespace}", "--output=json")
    (tmp_path / "policies.json").write_text(exported)
    (tmp_path / "world.yaml").write_text(yaml.safe_dump_all(world))
    answer = run(Request((str(tmp_path),), output="json", strict=True), print)
    (entry,) = json.loads(answer.text)["effective"].values()
    assert (entry["spec"], answer.complaints) == ({"rules": rules(sky="blue")}, ())
