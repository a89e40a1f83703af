"""A small scenario as text, and what is wrong with another."""

from __future__ import annotations

from kube_sync.config import Resource, Settings
from kube_sync.inspect.scenarios.collections import Collections
from kube_sync.inspect.scenarios.loading import read
from kube_sync.inspect.scenarios.scenario import Scenario
from kube_sync.inspect.scenarios.strict_yaml import Invalid

HEAD = """\
policies: policy
clusters:
  fleet/c1: {labels: {zone: eu}}
  fleet/c2: {labels: {zone: us}}
objects:
  - {apiVersion: apps/v1, kind: ReplicaSet, metadata: {name: web, namespace: shop}}
  - {apiVersion: apps/v1, kind: ReplicaSet, metadata: {name: web, namespace: bank}}
"""
CASE = """\
cases:
  - name: it runs in the EU
    object: shop/web
"""
SETTINGS = Settings()
WITH_NAMESPACES = Settings(
    replicate=type(SETTINGS.replicate)(
        resources=(*SETTINGS.replicate.resources, Resource("", "v1", "namespaces"))
    )
)


def scenario(
    text: str, settings: Settings = SETTINGS, file: str = "dir/f.scenario.yaml"
) -> Scenario:
    return read(text, file, Collections(settings), settings.replicate.root)


def problems(text: str, settings: Settings = SETTINGS) -> list[str]:
    """Return what is wrong, each without the file's name."""
    try:
        scenario(text, settings)
    except Invalid as error:
        return [str(problem).removeprefix("dir/f.scenario.yaml:") for problem in error.problems]
    return []


def of_case(rest: str) -> list[str]:
    """Return what is wrong with a case that goes on like this, from row 11 on."""
    return problems(HEAD + CASE + rest)
