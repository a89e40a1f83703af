"""The published JSON Schema of SARIF 2.1.0, out of the Go module that carries it."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping
from typing import Any

import jsonschema

from tools.servers.thirdparty import ThirdParty, download

_FILE = "pkg/report/v210/sarif/schema.go"


@functools.cache
def _schema() -> Mapping[str, Any]:
    module = ThirdParty(
        "go-sarif",
        "github.com/owenrumney/go-sarif/v3",
        "v3.3.1",
        "h1:bKY8YnWcY8zYTiGVObC5wZLlfEvMkCxK9XMGXBbzEtQ=",
        (_FILE,),
    )
    source = (download(module) / _FILE).read_text(encoding="utf-8")
    text = re.search(r"const schema = `(.*?)`", source, re.DOTALL)
    assert text is not None
    found: Mapping[str, Any] = json.loads(text[1])
    assert found["id"].endswith("/sarif-schema-2.1.0.json")
    return found


def valid_sarif(text: str) -> Mapping[str, Any]:
    """Return the one run of a report; AssertionError where a reader would refuse it.

    Beyond the schema: what GitHub's code scanning requires of rules and results
    (docs.github.com, "SARIF support for code scanning").
    """
    report = json.loads(text)
    jsonschema.Draft4Validator(_schema()).validate(report)
    (run,) = report["runs"]
    rules = run["tool"]["driver"]["rules"]
    for rule in rules:
        for field in ("shortDescription", "fullDescription", "help"):
            assert rule[field]["text"]
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["message"]["text"]
        place = result["locations"][0]["physicalLocation"]
        assert place["artifactLocation"]["uri"]
        assert place["region"]["startLine"] >= 1
        assert place["region"]["endColumn"] >= place["region"]["startColumn"] == 1
    found: Mapping[str, Any] = run
    return found


def placed(run: Mapping[str, Any]) -> list[tuple[str, str, int]]:
    """Return rule, file and row of each result."""
    found = []
    for result in run["results"]:
        place = result["locations"][0]["physicalLocation"]
        uri, row = place["artifactLocation"]["uri"], place["region"]["startLine"]
        found.append((result["ruleId"], uri, row))
    return found
