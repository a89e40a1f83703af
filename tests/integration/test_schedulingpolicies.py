"""The kind SchedulingPolicy on a real API server: what it takes, refuses, keeps and explains."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Iterator
from typing import Any

import pytest

from kube_sync.opa.scratch import ScratchOpa
from kube_sync.opa.system_modules import builtin_modules
from tests.fakes.manifests import build
from tests.integration.test_pair import ROOT
from tests.parts import quickly
from tools.servers.binaries import ensure_binary
from tools.servers.errors import ToolError
from tools.servers.stack import RunningStack

KIND = "schedulingpolicies.policy.kube-sync.io"
REQUIRED_DURING = "requiredDuringSchedulingIgnoredDuringExecution"
NODE_PATTERN = {"keys": ["zone"], "operators": ["In"], "values": ["a"]}

TAKEN: list[dict[str, Any]] = [
    {},
    {"required": {}, "allowed": {}, "default": {}},
    {"allowed": {"schedulerNames": [], "priorityClasseNames": [], "tolerations": []}},
    {"allowed": {"nodeSelectors": {"disk": ["ssd"], "region": []}, "affinities": {}}},
    {"required": {"schedulerNames": ["a"], "nodeSelectors": {"arch": ["amd64"]}}},
    {"required": {"priorityClassNames": ["a"]}, "default": {"priorityClassName": "a"}},
    {"allowed": {"nodeNames": ["node-1"]}},
    {"allowed": {"SchedulerNames": ["a"]}, "default": {"SchedulerName": "a"}},
    {"allowed": {"tolerations": [{"keys": [], "effects": ["NoSchedule"]}]}},
    {"default": {"tolerations": [{"key": "k", "operator": "Equal", "values": ["a", "b"]}]}},
    {
        "required": {
            "affinities": {
                "nodeAffinities": {
                    REQUIRED_DURING: {"nodeSelectorTerms": [{"matchExpressions": [NODE_PATTERN]}]}
                }
            }
        },
        "allowed": {
            "affinities": {
                "podAntiAffinities": {},
                "podAffinities": {REQUIRED_DURING: [{"topologyKeys": ["zone"]}]},
            }
        },
        "default": {
            "affinity": {
                "nodeAffinity": {
                    REQUIRED_DURING: {"nodeSelectorTerms": [{"matchExpressions": [NODE_PATTERN]}]}
                }
            }
        },
    },
]
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"required": {"schedulerNames": []}}, "required.schedulerNames is empty"),
    ({"required": {"SchedulerNames": []}}, "required.SchedulerNames is empty"),
    ({"required": {"priorityClasseNames": []}}, "required.priorityClasseNames is empty"),
    ({"required": {"priorityClassNames": []}}, "required.priorityClassNames is empty"),
    ({"default": {"tolerations": []}}, "default.tolerations is empty"),
    (
        {"allowed": {"priorityClassNames": ["a"], "priorityClasseNames": ["b"]}},
        "two spellings of one field",
    ),
    ({"allowed": {"schedulerNames": [], "SchedulerNames": []}}, "two spellings of one field"),
    ({"default": {"schedulerName": "a", "SchedulerName": "b"}}, "two spellings of one field"),
    ({"required": {"schedulerNames": "a"}}, "spec.required.schedulerNames"),
    ({"allowed": {"nodeSelectors": ["disk"]}}, "spec.allowed.nodeSelectors"),
    ({"allowed": {"tolerations": {}}}, "spec.allowed.tolerations"),
    ({"allowed": {"nodeNames": "node-1"}}, "spec.allowed.nodeNames"),
    ({"allowed": {"schedulerNames": [1]}}, r"spec.allowed.schedulerNames\[0\]"),
    ({"default": {"nodeSelector": {"disk": ["ssd"]}}}, "spec.default.nodeSelector.disk"),
]


@pytest.fixture(scope="module")
def server(stack: RunningStack) -> Iterator[RunningStack]:
    stack.install_kinds(ROOT / "manifests/crds")
    yield stack
    stack.api.delete_all(KIND)


def policy(spec: dict[str, Any], name: str | None = None) -> dict[str, Any]:
    return {
        "apiVersion": "policy.kube-sync.io/v1alpha1",
        "kind": "SchedulingPolicy",
        "metadata": {"name": name or f"p-{secrets.token_hex(4)}"},
        "spec": spec,
    }


def stored(server: RunningStack, document: dict[str, Any], *, strict: bool = True) -> Any:
    """Create it; return what the API server holds."""
    return server.api.create(document, strict=strict)


@pytest.mark.parametrize(
    "spec",
    TAKEN,
    ids=json.dumps,
)
def test_documented_fields_are_stored_as_they_are(server: RunningStack, spec: Any) -> None:
    assert stored(server, policy(spec))["spec"] == spec


@pytest.mark.parametrize("field", ["schedulerNames", "SchedulerNames"])
@pytest.mark.parametrize("folder", ["scheduling", "scheduling-options"])
def test_policies_that_ship_are_taken(server: RunningStack, folder: str, field: str) -> None:
    built = json.dumps(build(folder))
    manifests = json.loads(built.replace("schedulerNames", field))
    taken = [server.api.apply(one, dry_run=True)["kind"] for one in manifests]
    assert taken.count("SchedulingPolicy") == 2


@pytest.mark.parametrize(
    ("spec", "said"),
    REFUSED,
    ids=json.dumps,
)
@pytest.mark.parametrize("validation", ["Strict", "Ignore"])
def test_what_makes_no_sense_is_refused_by_name(
    server: RunningStack, spec: Any, said: str, validation: str
) -> None:
    with pytest.raises(ToolError, match=said):
        stored(server, policy(spec), strict=validation == "Strict")


# The fields as the design document lists them, each with nothing but a comment behind it.
SKELETON = """
apiVersion: policy.kube-sync.io/v1alpha1
kind: SchedulingPolicy
metadata: {name: my-schedpol}
spec:
  required:
    schedulerNames:      # schedulers that are required
    priorityClasseNames: # priority classes that are required
    nodeSelectors:       # node selectors that must be used
    affinities:          # affinities that must be used
  allowed:
    schedulerNames:      # schedulers that are allowed
    priorityClasseNames: # priority classes that are allowed
    nodeSelectors:       # node selectors that can be used
    tolerations:         # tolerations that can be used
    affinities:          # affinities that can be used
  default:
    schedulerName:       # the default scheduler
    priorityClasseName:  # the default priority class
    nodeSelector:        # the default node selector
    tolerations:         # default tolerations
    affinity:            # the default affinity
"""


@pytest.mark.parametrize(
    "command", [("create",), ("apply",), ("apply", "--server-side")], ids=" ".join
)
@pytest.mark.parametrize("validation", quickly(1, ["strict", "ignore"]))
def test_skeleton_of_the_document_with_empty_values_is_stored(
    server: RunningStack, command: tuple[str, ...], validation: str
) -> None:
    """What is empty there counts as absent, and says so in the findings."""
    arguments = (*command, f"--validate={validation}", "-f", "-", "--output=json")
    try:
        found = json.loads(server.kubectl(*arguments, stdin=SKELETON))["spec"]
        assert {
            name: {k: v for k, v in part.items() if v is not None} for name, part in found.items()
        } == {
            "required": {},
            "allowed": {},
            "default": {},
        }
    finally:
        server.api.delete(KIND, "my-schedpol")


def test_policy_without_a_spec_is_refused(server: RunningStack) -> None:
    document = policy({})
    del document["spec"]
    with pytest.raises(ToolError, match="spec: Required value"):
        stored(server, document)


@pytest.mark.parametrize("validation", ["strict", "warn", "ignore"])
def test_misspelt_restrictions_survive_at_every_level(
    server: RunningStack, validation: str
) -> None:
    """Pruned, each of them would be a restriction that nobody misses."""
    wrong = {"x": ["y"]}
    node = {REQUIRED_DURING: {"nodeSelectorTerms": [{"matchExpressions": [wrong], **wrong}]}}
    spec = {
        **wrong,
        "required": {"tolerations": [], **wrong, "affinities": {"nodeAffinities": node, **wrong}},
        "allowed": {
            **wrong,
            "tolerations": [wrong],
            "affinities": {
                "podAffinities": {REQUIRED_DURING: [wrong], **wrong},
                "nodeAffinities": {"preferredDuringSchedulingIgnoredDuringExecution": wrong},
            },
        },
        "default": {**wrong, "tolerations": [wrong], "affinity": {**wrong, "podAffinity": wrong}},
    }
    found = stored(server, policy(spec) | wrong, strict=validation == "strict")
    assert (found["spec"], found["x"]) == (spec, ["y"])


async def _reports(specs: list[dict[str, Any]]) -> list[Any]:
    """Return what the rules of decisions say of policies: one OPA reads them all."""
    query = """[report |
        some policy in input.policies
        report := data.kube_sync.scheduling.validation.report with input as {"object": policy}
    ]"""
    scratch = ScratchOpa(str(ensure_binary("opa")))
    modules = builtin_modules(["scheduling"])
    asked = {"policies": [policy(spec, "it") for spec in specs]}
    found: list[Any] = await scratch.evaluated(modules, {}, asked, query)
    return found


@pytest.fixture(scope="module")
def reports() -> dict[str, Any]:
    """What is said of each policy, by its spec."""
    specs = [*TAKEN, *(spec for spec, _ in REFUSED)]
    found = asyncio.run(_reports(specs))
    return {json.dumps(spec): one for spec, one in zip(specs, found, strict=True)}


@pytest.mark.parametrize("spec", TAKEN, ids=json.dumps)
def test_rules_accept_what_the_schema_takes(reports: dict[str, Any], spec: Any) -> None:
    assert reports[json.dumps(spec)]["problems"] == []


_ABSENT: tuple[Any, ...] = (
    {"required": {"schedulerNames": []}},
    {"required": {"SchedulerNames": []}},
)


@pytest.mark.parametrize("spec", [spec for spec, _ in REFUSED], ids=json.dumps)
def test_rules_refuse_what_the_schema_refuses(reports: dict[str, Any], spec: Any) -> None:
    """So a policy that was stored under an older schema is ignored, not half understood.

    An empty list of required schedulers is found, and counts as absent: the proposal says both.
    """
    report = reports[json.dumps(spec)]
    absent = [f for f in report["findings"] if f.endswith("in decisions it counts as absent")]
    assert bool(absent) == (spec in _ABSENT)
    assert report["problems"] + absent != []


def _fields(schema: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, schema
    for name, below in schema.get("properties", {}).items():
        yield from _fields(below, f"{path}.{name}")
    if isinstance(items := schema.get("items"), dict):
        yield from ((p, s) for p, s in _fields(items, path) if p != path)


def test_every_field_is_explained(server: RunningStack) -> None:
    """As the API server publishes it for `kubectl explain`."""
    published = server.api.ask("GET", "/openapi/v3/apis/policy.kube-sync.io/v1alpha1")
    schema = published["components"]["schemas"]["io.kube-sync.policy.v1alpha1.SchedulingPolicy"]
    found = dict(_fields(schema, "schedpol"))
    assert len(found) > 50
    # metadata is Kubernetes' own, which explains it under another name.
    silent = [path for path, field in found.items() if "description" not in field]
    assert [path for path in silent if path != "schedpol.metadata"] == []
    said = server.kubectl("explain", "schedpol.spec.allowed.tolerations.effects")
    assert "Effects that may be tolerated" in said


def test_status_is_written_apart_from_the_spec_and_printed(server: RunningStack) -> None:
    document = stored(server, policy({"allowed": {}}))
    name = document["metadata"]["name"]
    conditions = [
        {
            "type": kind,
            "status": status,
            "reason": "Test",
            "message": "what is wrong",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
            "observedGeneration": 1,
        }
        for kind, status in (("Ready", "Unknown"), ("Accepted", "False"), ("Findings", "True"))
    ]
    change = {"status": {"conditions": conditions}, "spec": {"required": {}}}
    server.api.merge(KIND, name, change, subresource="status")
    after = server.api.get(KIND, name)
    assert after["spec"] == {"allowed": {}}
    assert after["metadata"]["generation"] == 1
    header, row = server.kubectl("get", "schedpol", name, "--output=wide").splitlines()
    assert header.split() == ["NAME", "READY", "ACCEPTED", "FINDINGS", "AGE", "MESSAGE"]
    assert row.split()[:4] == [name, "Unknown", "False", "True"]
    assert row.endswith("what is wrong")
