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
from kube_sync.inspect.scenarios.expectations import wished
from kube_sync.inspect.scenarios.initial_objects import Base, beside
from kube_sync.inspect.scenarios.scenario import Case, Scenario
from kube_sync.inspect.scenarios.strict_yaml import Checking, Invalid, Problem
from kube_sync.kube.manifests import text_of
from kube_sync.yamlnodes import Node, NotYaml, Rules, plain, single

_KEYS: Final = ("policies", "clusters", "objects", "data", "cases")
_CASE: Final = ("name", "object", "given", "expect")
_TAKEN: Final = ("kube_sync", "system")
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
    checking = Checking(file)
    required = ("policies", "cases") if policies else ("cases",)
    found = checking.members(_parsed(text, file), _KEYS, required)
    base = Base(collections, checking)
    paths = checking.one_or_more(found["policies"]) if "policies" in found else ()
    if "clusters" in found:
        base.take_clusters(found["clusters"])
    if "objects" in found:
        base.take(found["objects"])
    data = _data(found["data"], checking, root) if "data" in found else {}
    # With missing objects each case would have follow-up problems.
    read_cases = "cases" in found and not checking.problems
    cases = _cases(found["cases"], checking, base) if read_cases else ()
    if checking.problems:
        raise Invalid(sorted(checking.problems, key=lambda problem: problem.row))
    policy_files = tuple(beside(file, path) for path in paths)
    row = found["policies"].row if "policies" in found else 0
    return Scenario(file, policy_files, row, base.objects, data, cases)


def _parsed(text: str, file: str) -> Node:
    try:
        found = single(text, _RULES, "scenario")
    except NotYaml as error:
        raise Invalid([Problem(file, error.row, error.key, error.message)]) from error
    if found is None:
        raise Invalid([Problem(file, 0, "", "there is nothing in it")])
    return found


def _data(node: Node, checking: Checking, root: str) -> Mapping[str, object]:
    found = checking.entries(node)
    for key, below in found.items():
        if key in (root, *_TAKEN):
            checking.wrong(below, f"data.{key} is not a scenario's; objects go into `objects`")
    return {key: plain(below) for key, below in found.items()}


def _cases(node: Node, checking: Checking, base: Base) -> tuple[Case, ...]:
    if node.value == []:
        checking.wrong(node, "there is no case, so nothing is tested")
    found, rows = list[Case](), dict[str, int]()
    for item in checking.items(node):
        members = checking.members(item, _CASE, ("name", "object", "expect"))
        if "name" in members:
            name = checking.text(members["name"])
            if name in rows:
                # CI systems identify tests by name, and would drop the second.
                checking.wrong(members["name"], f"the case in row {rows[name]} has this name, too")
            rows.setdefault(name, item.row)
        if (case := _case(item, members, checking, base)) is not None:
            found.append(case)
    return tuple(found)


def _case(node: Node, members: Mapping[str, Node], checking: Checking, base: Base) -> Case | None:
    before = len(checking.problems)
    given = CaseReader(base, checking)
    target = given.target(members["object"]) if "object" in members else None
    if "given" in members:
        given.change(members["given"], target)
    if "expect" not in members or "name" not in members:
        return None
    wanted = wished(members["expect"], checking, given.fleet, base.fleet)
    if target is None or len(checking.problems) > before:
        return None
    name, key = target
    title = str(members["name"].value)
    return Case(title, node.row, name, key, given.changes, given.fleet, wanted)
