"""Why, why not, and what would change it: over exported objects, decided by a real OPA."""

from __future__ import annotations

import json
import random
from copy import deepcopy
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kube_sync.config import Opa, Placement, Replicate, Resource, Settings, Target
from kube_sync.errors import Broken
from kube_sync.inspect.plan.request import Request
from kube_sync.inspect.why import command
from kube_sync.inspect.why.command import Question
from kube_sync.inspect.why.probes import BUILTINS, EVERYTHING, MODULE, insert_probes, module
from kube_sync.kube.naming import reference
from kube_sync.opa.scratch import ScratchOpa
from tests.component.test_planned import live
from tests.fakes.apiserver import fake_apiserver
from tests.parts import quickly
from tests.unit.inspect.plan.fleets import (
    FLEET,
    NAMESPACE,
    PLACEMENT,
    POLICY,
    WORKLOADS,
    ZONE,
    canary,
    cluster,
    policy,
    replicaset,
    write,
)
from tools.demo import fleet as demo
from tools.servers.binaries import ensure_binary

SETTINGS = Settings(opa=Opa(binary=str(ensure_binary("opa"))))
FILE = f"{NAMESPACE}/placement/policy.rego"
HEAD = """package io.k8s.federation.admission

annotations["federation.kubernetes.io/replica-set-preferences"] := {
	"clusters": {name: {"weight": 1} | some name in _fit},
} if count(_fit) > 0

"""
# Fit is what is left of all when those are taken out that a function objects to.
OBJECTING = """
_fit := {name | some name, _ in data.kubernetes.clusters.fleet} - {name |
	some name, cluster in data.kubernetes.clusters.fleet
	count(_objections(cluster)) > 0
}

_objections(cluster) := {"zone" |
	zone := cluster.metadata.labels.zone
	not startswith(zone, "eu")
} | {"level" |
	level := to_number(object.get(cluster.metadata.labels, "level", "0"))
	level < to_number(object.get(input.metadata.annotations, "level", "0"))
}
"""


async def asked(
    fleet: str | None,
    subject: str,
    about: str | None = None,
    settings: Settings = SETTINGS,
    **more: Any,
) -> Any:
    edits = {name: more.pop(name, ()) for name in ("files", "fields")}
    request = Request(exported=fleet, **edits)
    question = Question(
        reference(f"replicaset/{subject}"), "shop", about, form="json", world=request, **more
    )
    answer = await command.run(question, settings, print)
    assert answer.status == 0
    return json.loads(answer.text)


@pytest.fixture
def fleet(tmp_path: Path) -> str:
    return write(tmp_path / "fleet.jsonl", policy(), *FLEET, *WORKLOADS)


def first(document: Any) -> tuple[Any, ...]:
    found = document["search"]["found"][0]
    return found["of"], found["path"][-1], found.get("before"), found.get("after")


async def test_decision_is_told_with_its_rules_its_inputs_and_every_cluster(fleet: str) -> None:
    found = await asked(fleet, "web")
    assert (found["decided"], found["has"], found["pending"]) == (["c1", "c2"], ["c1", "c2"], "")
    assert {(r["file"], r["row"]) for r in found["rules"] if r["applied"]} >= {
        (FILE, 3),
        (FILE, 11),
    }
    (read,) = [i for i in found["inputs"] if i["value"] is not None]
    assert (ZONE in read["path"], read["value"]) == (True, '"eu"')
    assert [(c["name"], c["chosen"]) for c in found["clusters"]] == [
        ("c1", True),
        ("c2", True),
        ("c3", False),
    ]
    (reason,) = found["clusters"][2]["against"]
    assert (reason["file"], reason["row"], reason["holds"]) == (FILE, 13, False)
    assert {seen["value"] for seen in reason["saw"]} >= {'"us"', '"eu"'}


PRICED = """package io.k8s.federation.admission

annotations["federation.kubernetes.io/replica-set-preferences"] := {
	"clusters": {name: {"weight": 1} |
		some name, cluster in data.kubernetes.clusters.fleet
		to_number(cluster.metadata.labels.price) < 3
	},
}
"""


async def test_builtin_that_fails_for_a_cluster_is_quoted_as_opa_says_it(tmp_path: Path) -> None:
    fleet = [cluster(name, price=price) for name, price in (("c1", "2"), ("c2", "cheap"))]
    exported = write(tmp_path / "fleet", policy(PRICED), *fleet, *WORKLOADS)
    quoted = {
        "file": FILE,
        "row": 6,
        "message": 'to_number: strconv.ParseFloat: parsing "cheap": invalid syntax',
    }
    found = await asked(exported, "web", "c2")
    assert found["builtin_errors"] == [quoted]
    assert (await asked(exported, "web"))["builtin_errors"] == [quoted]
    assert (await asked(exported, "web", "c1"))["builtin_errors"] == []


async def test_canary_explains_the_objects_of_its_side_and_no_others(tmp_path: Path) -> None:
    source = "# of us, too\n" + POLICY.replace("in _fit}", 'in _fit | {"c1"}}')
    exported = write(tmp_path / "fleet", policy(), canary(source, "0.5"), *FLEET, *WORKLOADS)
    own = f"{NAMESPACE}/placement-candidate/policy.rego"
    found = await asked(exported, "ads")
    assert (found["decided"], found["has"], found["notes"]) == (["c1", "c3"], ["c3"], [])
    assert found["canary"] == {
        "configmap": f"{NAMESPACE}/placement-candidate",
        "stands_for": f"{NAMESPACE}/placement",
        "share": "0.5",
        "namespaces": [],
    }
    assert {(r["file"], r["row"]) for r in found["rules"] if r["applied"]} >= {(own, 4), (own, 12)}
    against = await asked(exported, "ads", "c2")
    assert {one["file"] for one in against["clusters"][0]["against"]} == {own}
    assert against["search"]["found"][0]["decided"] == ["c1", "c2", "c3"]
    moved = await asked(exported, "ads", fields=(f"c2.labels.{ZONE}=us",))
    assert (moved["decided"], moved["canary"]) == (["c1", "c2", "c3"], found["canary"])
    other = await asked(exported, "web")
    assert (other["canary"], other["notes"], other["decided"]) == (None, [], ["c1", "c2"])
    assert {r["file"] for r in other["rules"]} == {FILE}


@pytest.mark.slow
async def test_canary_that_does_not_explain_an_object_is_told(tmp_path: Path) -> None:
    exported = write(tmp_path / "fleet", policy(), canary(POLICY, "0.5"), *FLEET, *WORKLOADS)
    edit = tmp_path / "policy.rego"
    edit.write_text(POLICY.replace("in _fit}", 'in _fit | {"c2"}}'))
    found = await asked(exported, "ads", files=(str(edit),))
    assert (found["decided"], found["canary"]) == (["c2", "c3"], None)
    (note,) = found["notes"]
    assert note.startswith(f"ConfigMap {NAMESPACE}/placement-candidate, a canary of 50 %")
    assert note.endswith("this is told by what would be in force")
    own = f"{NAMESPACE}/placement-candidate/policy.rego"
    broken = canary("package io.k8s.federation.admission\n\nx := y\n", "0.5")
    exported = write(tmp_path / "fleet", policy(), broken, *FLEET, *WORKLOADS)
    found = await asked(exported, "ads")
    assert (found["decided"], found["canary"]) == (["c3"], None)
    (note,) = found["notes"]
    assert f"now, so this is told by what is in force: {own}:3: rego_unsafe_var_error" in note


async def test_object_that_is_not_as_decided_says_what_would_be_written(tmp_path: Path) -> None:
    moved = replicaset("web", "eu", "c3")
    found = await asked(write(tmp_path / "fleet", policy(), *FLEET, moved), "web")
    assert (found["decided"], found["has"]) == (["c1", "c2"], ["c3"])
    assert found["pending"].startswith(f"would be written: {PLACEMENT}")


async def test_what_other_sinks_carry_out_is_not_looked_for_in_annotations(fleet: str) -> None:
    target = Target("replicasets", ("ocm_placement_decisions",))
    settings = msgspec.structs.replace(SETTINGS, placement=Placement(resources=(target,)))
    found = await asked(fleet, "web", settings=settings)
    assert (found["decided"], found["has"]) == (["c1", "c2"], [])
    assert found["pending"].startswith("not in its annotations but in ocm_placement_decisions;")


async def test_smallest_change_is_one_of_the_cluster_that_moves_nothing_else(fleet: str) -> None:
    found = await asked(fleet, "web", "c3")
    assert first(found) == ("cluster", ZONE, "us", "eu")
    assert found["search"]["found"][0]["decided"] == ["c1", "c2", "c3"]
    assert found["search"]["tried"] == found["search"]["possible"] > 0
    others = {(one["of"], one.get("after")) for one in found["search"]["found"][1:]}
    assert ("object", "us") in others


async def test_cluster_that_is_chosen_needs_no_change(fleet: str) -> None:
    found = await asked(fleet, "web", "c1")
    assert (found["search"], [c["chosen"] for c in found["clusters"]]) == (None, [True])


async def test_limit_of_tries_is_kept_and_told(fleet: str) -> None:
    found = await asked(fleet, "web", "c3", tries=0)
    assert (found["search"]["tried"], found["search"]["found"]) == (0, [])
    assert found["search"]["possible"] > 0


async def test_threshold_is_met_by_the_nearest_number(tmp_path: Path) -> None:
    source = f"""{HEAD}_fit contains name if {{
	some name, cluster in data.kubernetes.clusters.fleet
	to_number(cluster.metadata.labels.level) > 3
}}
"""
    levels = [cluster("c1", level="9"), cluster("c2", level="1")]
    exported = write(tmp_path / "fleet", policy(source), *levels, replicaset("web", "eu"))
    found = await asked(exported, "web", "c2")
    assert first(found) == ("cluster", "level", "1", "4")
    (standing,) = found["clusters"]
    assert standing["against"][0]["saw"] == [
        {"term": "to_number(cluster.metadata.labels.level)", "value": "1"},
        {"term": "cluster.metadata.labels.level", "value": '"1"'},
    ]


async def test_what_excludes_a_cluster_speaks_against_it_by_holding(tmp_path: Path) -> None:
    zones = [cluster("c1", zone="eu-1"), cluster("c2", zone="us-1")]
    exported = write(tmp_path / "fleet", policy(HEAD + OBJECTING), *zones, replicaset("web", "eu"))
    found = await asked(exported, "web", "c2")
    (standing,) = found["clusters"]
    held = {(one["text"], one["holds"]) for one in standing["against"]}
    assert ('not startswith(zone, "eu")', True) in held
    (reason,) = (a for a in standing["against"] if a["text"].startswith("not startswith"))
    assert {"term": "zone", "value": '"us-1"'} in reason["saw"]
    assert first(found) == ("cluster", "zone", "us-1", "eu-1")


async def test_two_things_that_are_in_the_way_are_turned_by_no_single_change(
    tmp_path: Path,
) -> None:
    clusters = [cluster("c1", zone="eu", level="3"), cluster("c2", zone="us", level="1")]
    workload = replicaset("web", "eu")
    workload["metadata"]["annotations"] = {"level": "2"}
    exported = write(tmp_path / "fleet", policy(HEAD + OBJECTING), *clusters, workload)
    found = await asked(exported, "web", "c2")
    assert found["search"]["found"] == []
    assert found["search"]["tried"] > 3
    (standing,) = found["clusters"]
    assert {a["text"] for a in standing["against"]} >= {'not startswith(zone, "eu")'}


async def test_reasons_of_the_policy_are_used_where_it_gives_them(tmp_path: Path) -> None:
    source = f"""{POLICY}
reasons[name] contains "it lies elsewhere" if {{
	some name, _ in data.kubernetes.clusters.fleet
	not name in _fit
}}
"""
    found = await asked(write(tmp_path / "f", policy(source), *FLEET, *WORKLOADS), "web")
    (standing,) = (c for c in found["clusters"] if not c["chosen"])
    assert (standing["said"], standing["against"]) == ("it lies elsewhere", [])


async def test_rule_that_names_the_cluster_says_what_it_wants_of_the_object(
    tmp_path: Path,
) -> None:
    source = """package io.k8s.federation.admission

annotations["federation.kubernetes.io/replica-set-preferences"] := {"clusters": {"c2": {}}} if {
	input.metadata.namespace == "shop"
	to_number(input.metadata.annotations.level) > 1
}
"""
    found = await asked(write(tmp_path / "f", policy(source), *FLEET, *WORKLOADS), "web", "c2")
    (standing,) = found["clusters"]
    assert [(a["row"], a["text"]) for a in standing["against"]] == [
        (5, "to_number(input.metadata.annotations.level) > 1")
    ]
    assert first(found) == ("object", "level", None, "2")


async def test_nothing_that_speaks_of_a_cluster_is_made_up(tmp_path: Path) -> None:
    source = """package io.k8s.federation.admission

annotations["federation.kubernetes.io/replica-set-preferences"] := {"clusters": {"c1": {}}}
"""
    found = await asked(write(tmp_path / "f", policy(source), *FLEET, *WORKLOADS), "web", "c2")
    assert found["clusters"][0]["against"] == []
    assert found["search"] == {"tried": 0, "possible": 0, "found": []}


@pytest.mark.slow
async def test_answer_is_that_of_the_candidate_policy(fleet: str, tmp_path: Path) -> None:
    file = tmp_path / "policy.rego"
    file.write_text(POLICY.replace("_fit}", '_fit - {"c1"}}'))
    found = await asked(fleet, "web", files=(str(file),))
    assert found["decided"] == ["c2"]
    assert str(file) in {rule["file"].partition(" (")[0] for rule in found["rules"]}
    file.write_text("package io.k8s.federation.admission\n\nx := y\n")
    with pytest.raises(Broken, match=r"policy.rego:3: rego_unsafe_var_error"):
        await asked(fleet, "web", files=(str(file),))


@pytest.mark.slow
async def test_documented_answer_is_the_one_that_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = Path(__file__).parents[2].joinpath("docs", "why.md").read_text(encoding="utf-8")
    documented = page.partition("```text\n")[2].partition("\n```")[0]
    objects = [demo.replica_set("web", eu=True, pci="2")]
    objects += [demo.cluster(name, *what) for name, what in demo.CLUSTERS.items()]
    for one in objects:
        one["metadata"]["uid"] = f"u-{one['metadata']['name']}"
    source = demo.policy_map(demo.POLICY.read_text(encoding="utf-8"))
    world = Request(exported=write(tmp_path / "fleet", source, *objects))
    monkeypatch.setenv("COLUMNS", "110")
    question = Question(reference("replicaset/web"), "shop", "gce-us-east1", world=world)
    assert (await command.run(question, SETTINGS, print)).text == documented


@pytest.mark.slow
async def test_cluster_is_asked_over_as_its_export_is_and_only_read(tmp_path: Path) -> None:
    async with fake_apiserver() as api:
        settings = await live(api, tmp_path)
        of_cluster = await asked(None, "web", "c3", settings)
        methods = {request.method for request in api.http.requests}
    exported = write(tmp_path / "fleet", policy(), *FLEET, *WORKLOADS)
    assert of_cluster == await asked(exported, "web", "c3")
    assert methods == {"GET"}


@pytest.mark.parametrize(
    ("subject", "about", "said"),
    [
        ("wep", None, "there is no replicaset/wep in namespace shop; perhaps shop/web"),
        ("web", "c33", "CLUSTER: there is no cluster c33; perhaps c3"),
    ],
)
async def test_what_is_not_there_is_no_answer(
    fleet: str, subject: str, about: str | None, said: str
) -> None:
    with pytest.raises(Broken) as raised:
        await asked(fleet, subject, about)
    assert str(raised.value).startswith(said)


async def test_policies_compile_with_notes_that_tell_no_value_that_is_not_visible() -> None:
    root = Path(__file__).parents[2]
    files = [*root.glob("tests/policies/placement_*.rego"), *root.glob("tests/policies/lib_*.rego")]
    files += [demo.POLICY]
    modules = {file.name: file.read_text(encoding="utf-8") for file in files}
    scratch = ScratchOpa(SETTINGS.opa.binary)
    trees = await scratch.parsed(modules)
    path = "io/k8s/federation/admission"
    for visible in ((), EVERYTHING):
        found = insert_probes({**modules, MODULE: module(path)}, trees, path, visible)
        assert {watched.file for watched in found.watched} == modules.keys()
        assert await scratch.check(found.modules, BUILTINS) == []
        noted = "".join(found.modules[name] for name in modules)
        assert ("kube_sync_it" in noted) == bool(visible)


async def test_values_of_secrets_are_nowhere_in_an_answer(tmp_path: Path) -> None:
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "key", "namespace": "shop", "uid": "u-key"},
        "data": {"zone": "c2VjcmV0"},
    }
    source = f"""{HEAD}_fit contains name if {{
	some name, cluster in data.kubernetes.clusters.fleet
	wanted := data.kubernetes.secrets.shop.key.data.zone
	cluster.metadata.labels.zone == wanted
}}
"""
    clusters = [cluster("c1", zone="c2VjcmV0"), cluster("c2", zone="us")]
    resources = (
        *Replicate().resources,
        Resource("", "v1", "secrets", fields=(("data",), ("kind",)), secrets=True),
    )
    settings = Settings(opa=SETTINGS.opa, replicate=Replicate(resources=resources))
    exported = write(tmp_path / "f", policy(source), *clusters, secret, replicaset("web", "eu"))
    for about in (None, "c2"):
        found = await asked(exported, "web", about, settings)
        standing = found["clusters"][-1]
        assert standing["against"]
        assert "c2VjcmV0" not in json.dumps(standing)


POLICIES = (
    POLICY,
    HEAD + OBJECTING,
    f"""{HEAD}_fit contains name if {{
	some name, cluster in data.kubernetes.clusters.fleet
	to_number(cluster.metadata.labels.level) >= to_number(input.metadata.annotations.level)
}}
""",
    f"""{HEAD}_fit contains name if {{
	some name, _ in data.kubernetes.clusters.fleet
	not _off[name]
}}

_off contains name if {{
	some name, cluster in data.kubernetes.clusters.fleet
	cluster.metadata.labels.zone == "us"
}}
""",
    f"""{HEAD}_fit contains name if {{
	some name, cluster in data.kubernetes.clusters.fleet
	every taint in cluster.spec.taints {{
		taint.key == input.metadata.annotations.level
	}}
}}
""",
    f"""{HEAD}_fit contains name if {{
	levels := [to_number(c.metadata.labels.level) | some c in data.kubernetes.clusters.fleet]
	some name, cluster in data.kubernetes.clusters.fleet
	to_number(cluster.metadata.labels.level) == max(levels)
}}
""",
)
QUERY = """{name: decision |
    some name, workload in data.kubernetes.replicasets.shop
    decision := data.io.k8s.federation.admission with input as workload
}"""


def put(body: Any, path: list[Any], found: dict[str, Any]) -> None:
    """Make a change by hand, as a person would with an editor."""
    *above, last = path
    for step in above:
        body = body.setdefault(step, {}) if isinstance(body, dict) else body[step]
    if "after" in found:
        body[last] = found["after"]
    else:
        del body[last]


async def placed(source: str, fleet: list[Any], workload: Any) -> set[str]:
    """Return where a workload goes by `opa eval`, without anything of what is tested."""
    data = {
        "kubernetes": {
            "clusters": {"fleet": {c["metadata"]["name"]: c for c in fleet}},
            "replicasets": {"shop": {workload["metadata"]["name"]: workload}},
        }
    }
    scratch = ScratchOpa(str(ensure_binary("opa")))
    found = await scratch.evaluated({"p": source}, data, {}, QUERY)
    (decision,) = found.values()
    return set(decision.get("annotations", {}).get(PLACEMENT, {}).get("clusters", {}))


def some_cluster(name: str, number: int, chance: random.Random) -> dict[str, Any]:
    zone = chance.choice(("eu", "eu-west", "us"))
    level = str(number + chance.choice((0, 10)))
    taints = [{"key": str(key)} for key in range(chance.choice((0, 1, 2)))]
    return {**cluster(name, zone=zone, level=level, **{ZONE: zone}), "spec": {"taints": taints}}


WORLDS = [(seed, POLICIES[seed % len(POLICIES)]) for seed in range(12)]


@pytest.mark.parametrize(("seed", "source"), quickly(1, WORLDS))
async def test_smallest_change_once_made_turns_the_decision(
    tmp_path: Path, seed: int, source: str
) -> None:
    chance = random.Random(seed)  # noqa: S311 - no secret is made of it
    fleet = [some_cluster(f"c{n}", n, chance) for n in range(5)]
    workload = replicaset("web", chance.choice(("eu", "us")))
    workload["metadata"]["annotations"]["level"] = str(chance.choice((1, 9)))
    on = await placed(source, fleet, workload)
    others = [c for c in fleet if c["metadata"]["name"] not in on]
    if not others:
        fleet.append(cluster("c9", zone="us", level="-1"))
        others = fleet[-1:]
    name = chance.choice(others)["metadata"]["name"]
    exported = write(tmp_path / "fleet", policy(source), *fleet, workload)
    found = await asked(exported, "web", name)
    assert found["search"]["found"], (found["clusters"], found["search"])
    for one in found["search"]["found"]:
        then, changed = deepcopy(fleet), deepcopy(workload)
        (about,) = (c for c in then if c["metadata"]["name"] == name)
        put(about if one["of"] == "cluster" else changed, one["path"], one)
        now_on = await placed(source, then, changed)
        assert name in now_on
        assert now_on == set(one["decided"])


async def test_operands_of_or_speak_against_a_cluster_as_one_line(tmp_path: Path) -> None:
    """What an operand binds is unknown behind it: probes that name it would not compile."""
    either = (
        "\t{ z := _zone(cluster.metadata.labels); z == _zone(input.metadata.annotations) }"
        " or { cluster.metadata.labels.any }\n"
        "\tnot { bad := cluster.metadata.labels.bad; bad == 1 }\n"
    )
    alike = "\t_zone(cluster.metadata.labels) == _zone(input.metadata.annotations)\n"
    words = "import future.keywords.or\nimport future.keywords.not\n"
    package, rest = POLICY.replace(alike, either).split("\n", 1)
    source = f"{package}\n\n{words}{rest}"
    exported = write(tmp_path / "fleet.jsonl", policy(source), *FLEET, *WORKLOADS)
    found = await asked(exported, "web", "c3")
    (reason,) = found["clusters"][0]["against"]
    assert (reason["text"].partition(" or ")[2], reason["holds"]) == (
        "{ cluster.metadata.labels.any }",
        False,
    )
