"""The JSON Schemas say what the readers accept; `make check` holds the files against the code."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
import yaml

from kube_sync.config import Settings, effective, keys
from kube_sync.config.environment import YAML
from kube_sync.config.load import Source
from kube_sync.decisions.decision import Decision
from kube_sync.decisions.records import (
    BookmarkRecord,
    Budget,
    DecisionRecord,
    DeletedRecord,
    GroupRecord,
    Record,
    Stale,
    StatusRecord,
    Target,
    Unreadable,
)
from kube_sync.decisions.records import (
    Source as Cause,
)
from kube_sync.errors import Misconfigured
from kube_sync.inspect import schemas
from kube_sync.inspect.scenarios.format import Facts, Share
from kube_sync.inspect.scenarios.format import keys as names
from kube_sync.inspect.scenarios.placement import FIELDS
from kube_sync.inspect.scenarios.strict_yaml import Invalid
from kube_sync.objects import GroupVersionResource
from kube_sync.yamlnodes import Rules, plain, single
from tests.commandline import kube_sync
from tests.unit.config.test_load import DOCUMENTED
from tests.unit.inspect.scenarios.cases import scenario
from tools.documenting.configuration import EXAMPLE

ROOT = Path(__file__).resolve().parents[3]
UNKNOWN = re.compile("unknown key")
MODELINE = re.compile(r"# yaml-language-server: \$schema=(\S+)")


@cache
def validator(name: str) -> jsonschema.Draft202012Validator:
    schema = json.loads((ROOT / f"schemas/{name}.schema.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def is_valid(name: str, value: Any) -> bool:
    return next(validator(name).iter_errors(value), None) is None


def parsed(text: str, rules: Rules = YAML) -> Any:
    node = single(text, rules, "file")
    return {} if node is None else plain(node)


def tracked(pattern: str) -> list[Path]:
    folders = ("manifests", "rego", "tests", "tools")
    return sorted(file for folder in folders for file in (ROOT / folder).rglob(pattern))


@pytest.mark.parametrize("name", schemas.SCHEMAS)
def test_file_is_what_the_command_prints(name: str) -> None:
    file = (ROOT / f"schemas/{name}.schema.json").read_text(encoding="utf-8")
    said = kube_sync("schema", name)
    assert (said.returncode, said.stdout) == (0, file)


@pytest.mark.parametrize(
    "text",
    [
        "",
        DOCUMENTED,
        EXAMPLE,
        effective(Settings()),
        "replicate:\nopa: {url: null, compile: null}",
        "remediate: {mode: off, namespaces: {shop: enforce, pay: null}}",
        "admission: {classes: on}",
        "builtin: [scheduling]",
    ],
)
def test_configuration_that_is_read_is_valid(text: str) -> None:
    Source(None, {}).load(text.encode())
    assert [*validator("config").iter_errors(parsed(text))] == []


@pytest.mark.parametrize(
    "text",
    [
        "replicat: {}",
        "opa: {urll: http://a}",
        "opa: {compile: {memory: 1}}",
        "replicate: {resources: [{group: '', version: v1, resourc: pods}]}",
        "replicate: {resources: [{group: null, version: v1, resource: pods}]}",
        "replicate: {resources: [null]}",
        "remediate: {mode: of}",
        "remediate: {guard: {shrink_share: 2}}",
        "builtin: scheduling",
        "policies: {warnings: {unknown_rul: off}}",
        "coordination: {namespace: ''}",
    ],
)
def test_configuration_that_is_refused_is_invalid(text: str) -> None:
    with pytest.raises(Misconfigured):
        Source(None, {}).load(text.encode())
    assert not is_valid("config", parsed(text))


def test_every_key_of_the_configuration_has_its_text() -> None:
    schema = schemas.configuration()
    parts = {"Settings": schema, **schema["$defs"]}
    for key in keys():
        if key.text and not key.is_section:
            name = key.path.rpartition(".")[2].removesuffix("[]")
            found = parts[key.section.__name__]["properties"][name]
            assert found["description"] == key.text, key.path


@pytest.mark.parametrize("file", tracked("*.scenario.yaml"), ids=str)
def test_scenarios_are_valid(file: Path) -> None:
    assert [*validator("scenario").iter_errors(parsed(file.read_text(), Rules()))] == []


def test_scenario_of_the_page_is_valid() -> None:
    page = (ROOT / "docs/testing-policies.md").read_text(encoding="utf-8")
    (text,) = (
        found for found in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL) if "cases:" in found
    )
    assert [*validator("scenario").iter_errors(parsed(text, Rules()))] == []


HEAD = """\
policies: policy
clusters: {fleet/c1: {labels: {zone: eu}}, fleet/c2: {}}
objects:
  - {apiVersion: apps/v1, kind: ReplicaSet, metadata: {name: web, namespace: shop}}
"""
CASES = [
    ("cases: [{name: a, object: web, expect: {clusters: {c1: 1, c2: {maxReplicas: 2}}}}]", True),
    ("cases: [{name: a, object: web, expect: {errors: {contains: [a, way]}}}]", True),
    ("cases: [{name: a, object: web, expect: {reasons: {c1: {contains: eu}, c2: null}}}]", True),
    ("cases: [{name: a, object: web, expect: {labels: {zone: null}, evict: true}}]", True),
    ("cases: [{name: a, object: web, given: {clusters: {c2: null}}, expect: {fails: why}}]", True),
    (
        "cases: [{name: a, object: web, given: {object: {spec: null}}, expect: {unchanged: true}}]",
        True,
    ),
    ("cases: [{name: a, object: web, given: {joins: {c3: {}}}, expect: {undecided: true}}]", True),
    ("cases: [{name: a, object: web, expects: {undecided: true}}]", False),
    ("cases: [{name: a, object: web, expect: {cluster: [c1]}}]", False),
    ("cases: [{name: a, object: web, expect: {clusters: {c1: {wieght: 1}}}}]", False),
    ("cases: [{name: a, object: web, expect: {clusters: null}}]", False),
    ("cases: [{name: a, object: web, expect: {undecided: false}}]", False),
    ("cases: [{name: a, object: web, given: {object: {label: {}}}, expect: {evict: true}}]", False),
    ("cases: [{name: a, object: web, given: {joins: {c3: null}}, expect: {evict: true}}]", False),
    ("cases: [{name: '', object: web, expect: {evict: true}}]", False),
    ("cases: [{object: web, expect: {evict: true}}]", False),
    ("cases: []", False),
    ("case: []", False),
]


@pytest.mark.parametrize(("cases", "valid"), CASES)
def test_scenario_is_valid_where_it_is_read(cases: str, valid: bool) -> None:  # noqa: FBT001 - of the table
    text = f"{HEAD}{cases}\n"
    try:
        scenario(text)
        read = True
    except Invalid:
        read = False
    assert (read, is_valid("scenario", parsed(text, Rules()))) == (valid, valid)


def mutated(value: Any, instead: Callable[[dict[str, Any], str], Iterable[Any]]) -> Iterator[Any]:
    """Yield copies of a document, each with one mapping otherwise at one of its keys."""
    if isinstance(value, dict):
        for key, below in value.items():
            yield from instead(value, key)
            yield from ({**value, key: one} for one in mutated(below, instead))
    elif isinstance(value, list):
        for n, below in enumerate(value):
            yield from ([*value[:n], one, *value[n + 1 :]] for one in mutated(below, instead))


def misspelt(mapping: dict[str, Any], key: str) -> Iterator[Any]:
    yield {f"{name}x" if name == key else name: value for name, value in mapping.items()}
    yield {**mapping, f"{key}x": None}


def replaced(mapping: dict[str, Any], key: str) -> Iterator[Any]:
    others: list[Any] = [None, "", 0, -1, True, [], {"x": 1}]
    yield from ({**mapping, key: other} for other in others)


def refusal(name: str, text: str) -> str:
    """Return why the program refuses a file, "" if it does not."""
    try:
        if name == "config":
            Source(None, {}).load(text.encode())
        else:
            scenario(text)
    except (Misconfigured, Invalid) as error:
        return str(error)
    return ""


DOCUMENTS = [
    *(("scenario", parsed(f"{HEAD}{cases}\n", Rules())) for cases, valid in CASES if valid),
    *(("config", {name: value}) for name, value in parsed(DOCUMENTED).items()),
]


@pytest.mark.parametrize(
    ("instead", "name", "document"),
    [
        *((misspelt, *one) for one in DOCUMENTS),
        *(pytest.param(replaced, *one, marks=pytest.mark.slow) for one in DOCUMENTS),
    ],
    ids=lambda value: (
        "-".join(value) if isinstance(value, dict) else getattr(value, "__name__", value)
    ),
)
def test_schema_and_program_agree_on_whatever_is_edited(
    instead: Callable[[dict[str, Any], str], Iterable[Any]], name: str, document: Any
) -> None:
    """What types cannot say, as names that have to exist, the program refuses alone."""
    rules = YAML if name == "config" else Rules()
    for edited in mutated(document, instead):
        text = yaml.safe_dump(edited, sort_keys=False)
        why, valid = refusal(name, text), is_valid(name, parsed(text, rules))
        assert why or valid, text
        assert not (valid and UNKNOWN.search(why)), f"{why}: {text}"


def test_facts_and_shares_of_the_readers_are_those_of_the_format() -> None:
    assert names(Facts) == ("labels", "annotations", "spec", "status")
    assert names(Share) == FIELDS


WEB = Target("apps", "v1", "replicasets", "web", "shop")
DECIDED = Decision({"zone": "eu"}, ("no",), {"a": "b"}, ("w",), {"c1": "near"}, evict=True)
RECORDS: list[Record | GroupRecord] = [
    DecisionRecord(WEB, "u", DECIDED, 7, "data", "ab", DECIDED, "why", 3, Cause("clusters", "c1")),
    DecisionRecord(WEB, "u", None, 7, "load", "ab"),
    GroupRecord(
        GroupVersionResource("apps", "v1", "replicasets"),
        (("shop", "web", "u", 7),),
        None,
        "load",
        "ab",
    ),
    DeletedRecord(WEB, 8),
    StatusRecord(
        ("loading",),
        "5f",
        ("a note",),
        (Stale("clusters", 1.5, "503", (Unreadable(WEB, "u", "no"),)),),
        Budget({"moves_per_minute": 1}),
    ),
    BookmarkRecord(9, "5f"),
]


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_records_are_valid(record: Record | GroupRecord) -> None:
    value = json.loads(msgspec.json.encode(record))
    assert [*validator("decisions").iter_errors(value)] == []


def test_records_of_the_page_are_valid() -> None:
    page = (ROOT / "docs/decisions.md").read_text(encoding="utf-8")
    lines = re.findall(r'^\{"type":.*\}$', page, re.MULTILINE)
    assert len(lines) > 8
    assert [line for line in lines if not is_valid("decisions", json.loads(line))] == []


@pytest.mark.parametrize(
    ("old", "new"), [("seq", "sequence"), ("decision", "decisions"), ("v", None), ("object", None)]
)
def test_record_with_another_version_or_a_misspelt_field_is_invalid(
    old: str, new: str | None
) -> None:
    record = json.loads(msgspec.json.encode(RECORDS[1]))
    value = record.pop(old)
    record[new or old] = value if new else 2
    assert not is_valid("decisions", record)


def test_modelines_name_schemas_by_which_their_files_are_valid() -> None:
    named: Mapping[Path, str] = {
        file: found[1]
        for file in tracked("*.yaml")
        if (found := MODELINE.match(file.read_text(encoding="utf-8"))) is not None
    }
    assert {
        ROOT / "manifests/config/config.yaml",
        ROOT / "tools/compose/config.yaml",
    } <= named.keys()
    assert {*tracked("*.scenario.yaml")} <= named.keys()
    for file, schema in named.items():
        name = (file.parent / schema).resolve().relative_to(ROOT / "schemas").name
        text = file.read_text(encoding="utf-8")
        assert is_valid(name.removesuffix(".schema.json"), parsed(text)), file
