from __future__ import annotations

import json

import pytest

from kube_sync.config import Scheduling, Settings
from kube_sync.errors import Misconfigured
from kube_sync.opa.system_modules import builtin_modules, config_modules
from kube_sync.policies.builtin import built_in, packages

CONFIG = "kube_sync/config/scheduling.rego"


def test_nothing_is_built_in_by_default() -> None:
    assert built_in(Settings()) == {}


def test_a_system_comes_with_its_configuration() -> None:
    chosen = Settings(builtin=("scheduling",), scheduling=Scheduling(merge_option=4))
    modules = built_in(chosen)
    clause, said = modules[CONFIG].split("\n\n", 1)
    assert clause == "package kube_sync.config"
    before, _, text = said.strip().removesuffix(")").partition("(")
    assert before == "scheduling := json.unmarshal"
    found = json.loads(json.loads(text))
    assert (found["merge_option"], found["user_may_use"]) == (4, False)
    assert {i: s for i, s in modules.items() if i != CONFIG} == builtin_modules(["scheduling"])


def test_its_packages_are_told_but_none_that_lie_within_another() -> None:
    modules = {"a": "package a.b\n", "b": "package a.b.c\n", "c": "package d\n", "e": "x"}
    assert packages(modules) == [("a", "b"), ("d",)]


def test_each_document_is_a_module_of_its_own() -> None:
    found = config_modules({"one": {"a": 1}, "two": {}})
    assert found == {
        "kube_sync/config/one.rego": (
            'package kube_sync.config\n\none := json.unmarshal("{\\"a\\":1}")\n'
        ),
        "kube_sync/config/two.rego": 'package kube_sync.config\n\ntwo := json.unmarshal("{}")\n',
    }


def test_no_document_is_no_module() -> None:
    assert config_modules({}) == {}


def test_a_system_without_modules_is_a_mistake() -> None:
    with pytest.raises(Misconfigured):
        builtin_modules(["nothing"])
