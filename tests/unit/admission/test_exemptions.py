from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from kube_sync.admission.exemptions import (
    LABELLED,
    LEASES_AND_EVENTS,
    left_out_conditions,
    left_out_namespaces,
)
from kube_sync.admission.route import PLACED
from kube_sync.admission.server import PATH
from kube_sync.config import Coordination, Labelled, Policies, Settings
from kube_sync.kube.webhooks import Wish, made_right

MANIFESTS = Path(__file__).resolve().parents[3] / "manifests/webhook"
FILES = {
    "mutatingwebhookconfiguration.yaml": PATH,
    "validatingwebhookconfiguration.yaml": PLACED,
}


def labelled(**fields: Any) -> str:
    conditions = left_out_conditions(Settings(policies=Policies(labelled=Labelled(**fields))))
    return conditions[LABELLED] or ""


@pytest.mark.parametrize("file", FILES)
def test_the_manifest_is_right_already(file: str) -> None:
    """Else installing it would always be followed by a write, and both would own the same."""
    manifest = yaml.safe_load((MANIFESTS / file).read_text(encoding="utf-8"))
    settings = Settings()
    namespaces, conditions = left_out_namespaces(settings), left_out_conditions(settings)
    assert made_right(manifest, Wish(FILES[file], None, None, namespaces, conditions)) == manifest
    (webhook,) = manifest["webhooks"]
    assert "failurePolicy" not in webhook
    assert webhook["sideEffects"] == "NoneOnDryRun"
    (rule,) = webhook["rules"]
    assert rule["resources"] == ["replicasets", "replicasets/status"]


def test_policies_and_what_runs_this_are_left_out_once_each() -> None:
    settings = Settings(
        policies=Policies(namespaces=("p", "q", "own")), coordination=Coordination("own")
    )
    assert left_out_namespaces(settings) == ("kube-system", "own", "p", "q")


def test_leases_and_events_are_always_left_out() -> None:
    conditions = left_out_conditions(Settings())
    assert conditions[LEASES_AND_EVENTS]
    assert conditions[LABELLED] is None


def test_labelled_policies_are_left_out_where_they_are_policies() -> None:
    expression = labelled(namespaces=("a", "b"), policy="p=1", data="d=2")
    assert 'request.namespace in ["a", "b"]' in expression
    assert '("p" in o.metadata.labels && o.metadata.labels["p"] == "1")' in expression
    assert '("d" in o.metadata.labels && o.metadata.labels["d"] == "2")' in expression
    assert "request.namespace" not in labelled(namespaces=("*",))


def test_a_label_cannot_end_the_expression() -> None:
    assert r'"a\"||true" in' in labelled(namespaces=("*",), policy='a"||true=1')
