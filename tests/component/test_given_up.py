"""What the analysis gives up on is told with file and row, by the real OPA's own trees."""

from __future__ import annotations

import json
from pathlib import Path

from kube_sync.config import Opa, Settings
from kube_sync.inspect.survey import command
from kube_sync.inspect.survey.command import Request
from kube_sync.opa.analysis.result import Collection, unread
from kube_sync.opa.scratch import ScratchOpa
from kube_sync.policies.reading import Reading
from kube_sync.regoversion import in_version
from tools.servers.binaries import ensure_binary

OPA = str(ensure_binary("opa"))
DECISION = "io/k8s/federation/admission"
# Each reference may lead to 27,000 places, more than the analysis looks at.
KEYS = json.dumps([f"k{number}" for number in range(30)])
ODD = f"""package io.k8s.federation.admission

errors contains "b" if input.b

errors contains "x" if {{
	some a in {KEYS}
	some b in {KEYS}
	some c in {KEYS}
	input[a][b][c]
}}
"""
OLD = f"""package io.k8s.federation.admission

errors["b"] {{ input.b }}

errors["x"] {{
	a := {KEYS}[_]
	b := {KEYS}[_]
	c := {KEYS}[_]
	input[a][b][c]
}}
"""
OTHER = "package io.k8s.federation.admission\n\nannotations.a := input.a.b\n"


async def collections() -> dict[str, Collection]:
    return {}


async def test_rule_that_cannot_be_analysed_is_named_by_policy_and_row() -> None:
    modules = {"ns/odd/x.rego": ODD, "ns/other/y.rego": OTHER}
    found = (await Reading(ScratchOpa(OPA), DECISION, collections).need(modules)).reads
    assert found.gave_up is not None
    assert (str(found.blamed), found.blamed and found.blamed.rule) == ("ns/odd/x.rego:5", "errors")
    assert unread(found).keys() == {"ns/odd/x.rego"}


async def test_rule_of_rego_v0_that_cannot_be_analysed_is_named_by_its_row() -> None:
    modules = {"ns/odd/x.rego": in_version(OLD, 0), "ns/other/y.rego": OTHER}
    found = (await Reading(ScratchOpa(OPA), DECISION, collections).need(modules)).reads
    assert str(found.blamed) == "ns/odd/x.rego:5"


async def test_analyze_names_the_rule_that_it_gives_up_at(tmp_path: Path) -> None:
    for name, source in (("x.rego", ODD), ("y.rego", OTHER)):
        (tmp_path / name).write_text(source)
    settings = Settings(opa=Opa(binary=OPA))
    answer = await command.run(
        Request((str(tmp_path),), DECISION, json=False), settings, lambda _: None
    )
    assert f"in {tmp_path}/x.rego:5 errors" in answer.text
    answer = await command.run(
        Request((str(tmp_path),), DECISION, json=True), settings, lambda _: None
    )
    (one,) = json.loads(answer.text)["sets"]
    assert one["gave_up_at"] == {"module": f"{tmp_path}/x.rego", "rule": "errors", "row": 5}
