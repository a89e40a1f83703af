from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from tools.charting.emitting import emitted, expression
from tools.charting.tree import Block, Either, Insert, Only, Scalar, Yaml


@pytest.mark.parametrize(
    "value",
    [
        {"a": {"b": [1, True, None, "x", 1.5, [], {}]}},
        {"list": [{"args": ["a", "-b"], "name": "c"}, {"d": {"e": "f"}}]},
        {"texts": ["on", "1", "", "- x", "a: b", "#", "'q'", '"', "2026-01-01", "0440"]},
        {"text": "one\ntwo\n", "stripped": "one\n\n  two", "odd": " first\nx", "end": "x\n\n"},
        {"x.io/y": {"*": "&a"}, "on": 1},
    ],
)
def test_what_depends_on_nothing_is_the_same_in_yaml(value: dict[str, Any]) -> None:
    assert yaml.safe_load(emitted(value)) == value


def test_braces_of_the_objects_are_printed_by_a_template() -> None:
    [line] = emitted({"summary": "{{ $labels.job }} is down"}).splitlines()
    assert re.sub(r"{{ \"{{\" }}", "{{", line) == "summary: '{{ $labels.job }} is down'"
    assert "{{ $" not in line


def test_conditions_stand_around_what_depends_on_them() -> None:
    tree = {
        "args": ["run", Only(".Values.a", "-x")],
        "env": Only(".Values.a", [{"name": "n"}]),
        "type": Either(".Values.a", "A", "B"),
    }
    assert emitted(tree).splitlines() == [
        "args:",
        "- run",
        "{{- if .Values.a }}",
        "- -x",
        "{{- end }}",
        "{{- if .Values.a }}",
        "env:",
        "- name: n",
        "{{- end }}",
        "{{- if .Values.a }}",
        "type: A",
        "{{- else }}",
        "type: B",
        "{{- end }}",
    ]


def test_expressions_are_indented_as_what_is_around_them() -> None:
    tree = {
        "spec": {
            "replicas": Scalar(".Values.n"),
            "image": expression('include "image" .'),
            "resources": Yaml(".Values.r"),
            "text": Block("include x ."),
            "ports": [Insert("include p .")],
            Insert("include more ."): None,
        }
    }
    assert emitted(tree).splitlines() == [
        "spec:",
        "  replicas: {{ .Values.n }}",
        '  image: "{{ include "image" . }}"',
        "  resources:",
        "    {{- toYaml .Values.r | nindent 4 }}",
        "  text: |",
        "    {{- include x . | nindent 4 }}",
        "  ports:",
        "  {{- include p . | nindent 2 }}",
        "  {{- include more . | nindent 2 }}",
    ]


def test_item_whose_first_entry_is_conditional_is_refused() -> None:
    with pytest.raises(ValueError, match="first entry"):
        emitted({"items": [{"a": Only("c", 1), "b": 2}]})
