"""Parses a scenario file to a Scenario, and collects all its problems.

Invariant: a file with any problem is not run; paths in it are relative to its folder. Policies
are not read here: the runner reads the files that a scenario names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kube_sync.errors import Terminal
from kube_sync.inspect.scenarios.case_reader import CaseReader
from kube_sync.inspect.scenarios.collections import Collections
from kube_sync.inspect.scenarios.data_documents import read_data
from kube_sync.inspect.scenarios.expectations import read_expectation
from kube_sync.inspect.scenarios.format import CaseEntry, ScenarioFile, keys
from kube_sync.inspect.scenarios.initial_objects import InitialObjects, relative_to_file
from kube_sync.inspect.scenarios.scenario import Case, Scenario
from kube_sync.inspect.scenarios.strict_yaml import Invalid, Problem, StrictReader
from kube_sync.kube.manifests import text_of
from kube_sync.yamlnodes import Node, NotYaml, Rules, single

_KEYS: Final = keys(ScenarioFile)
_CASE: Final = keys(CaseEntry)
_RULES: Final = Rules(most=100_000)


def load(file: str, collections: Collections, root: str, *, policies: bool = True) -> Scenario:
    """Load a file; without `policies` it need not name any. Raises Invalid."""
    try:
        text = text_of(file)
    except Terminal as error:
        raise Invalid([Problem(file, 0, "", str(error).removeprefix(f"{file}: "))]) from error
    return read(text, file, collections, root, policies=policies)


def read(
    text: str, file: str, collections: Collections, root: str, *, policies: bool = True
) -> Scenario:
    """Parse the text of a file. Raises Invalid."""
    reader = StrictReader(file)
    required = ("policies", "cases") if policies else ("cases",)
    found = reader.members(_parse(text, file), _KEYS, required)
    initial = InitialObjects(collections, reader)
    paths = reader.one_or_more(found["policies"]) if "policies" in found else ()
    if "clusters" in found:
        initial.add_clusters(found["clusters"])
    if "objects" in found:
        initial.add(found["objects"])
    data = read_data(found["data"], reader, collections, root) if "data" in found else {}
    # With missing objects each case would have follow-up problems.
    has_cases = "cases" in found and not reader.problems
    cases = _read_cases(found["cases"], reader, initial) if has_cases else ()
    if reader.problems:
        raise Invalid(sorted(reader.problems, key=lambda problem: problem.row))
    policy_files = tuple(relative_to_file(file, path) for path in paths)
    row = found["policies"].row if "policies" in found else 0
    return Scenario(file, policy_files, row, initial.objects, data, cases)


def _parse(text: str, file: str) -> Node:
    try:
        found = single(text, _RULES, "scenario")
    except NotYaml as error:
        raise Invalid([Problem(file, error.row, error.key, error.message)]) from error
    if found is None:
        raise Invalid([Problem(file, 0, "", "there is nothing in it")])
    return found


def _read_cases(node: Node, reader: StrictReader, initial: InitialObjects) -> tuple[Case, ...]:
    if node.value == []:
        reader.add_problem(node, "there is no case, so nothing is tested")
    found, rows = list[Case](), dict[str, int]()
    for item in reader.items(node):
        members = reader.members(item, _CASE, ("name", "object", "expect"))
        if "name" in members:
            name = reader.text(members["name"])
            if name in rows:
                # CI systems identify tests by name, and would drop the second.
                reader.add_problem(
                    members["name"], f"the case in row {rows[name]} has this name, too"
                )
            rows.setdefault(name, item.row)
        if (case := _read_case(item, members, reader, initial)) is not None:
            found.append(case)
    return tuple(found)


def _read_case(
    node: Node, members: Mapping[str, Node], reader: StrictReader, initial: InitialObjects
) -> Case | None:
    before = len(reader.problems)
    case_reader = CaseReader(initial, reader)
    target = case_reader.target(members["object"]) if "object" in members else None
    if "given" in members:
        case_reader.change(members["given"], target)
    if "expect" not in members or "name" not in members:
        return None
    expectation = read_expectation(members["expect"], reader, case_reader.fleet, initial.fleet)
    if target is None or len(reader.problems) > before:
        return None
    name, key = target
    title = str(members["name"].value)
    return Case(title, node.row, name, key, case_reader.changes, case_reader.fleet, expectation)
