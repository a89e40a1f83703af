"""What a scenario says of an object in few words: labels, annotations, spec, status."""

from __future__ import annotations

from typing import Any

from kube_sync.scenarios.checking import Checking
from kube_sync.scenarios.stored import FACTS, untold
from kube_sync.yamlnodes import Node, plain


def facts_of(node: Node, checking: Checking, *, removes: bool = False) -> dict[str, Any] | None:
    """Return facts, None where something is wrong; with `removes` null takes one away."""
    before = len(checking.problems)
    facts = checking.members(node, FACTS)
    for key, found in facts.items():
        if not isinstance(found.value, dict) and not (removes and found.value is None):
            checking.expected(found, "a mapping")
        elif key in ("labels", "annotations") and isinstance(found.value, dict):
            for member in found.value.values():
                if not isinstance(member.value, str) and not (removes and member.value is None):
                    checking.expected(member, "a text: put it into quotes")
    if removes and node.value == {}:
        checking.wrong(node, "nothing is given: leave it out")
    if len(checking.problems) > before:
        return None
    return {key: plain(found) for key, found in facts.items()}


def body_of(node: Node, checking: Checking) -> dict[str, Any] | None:
    """Return a whole object, None where something is wrong that has a place in it."""
    body: dict[str, Any] = plain(node)
    problems = [*untold(body)]
    for path, message in problems:
        checking.wrong(_below(node, path), message)
    return None if problems else body


def _below(node: Node, path: tuple[str, ...]) -> Node:
    """Return the value at a path of keys, or the last that there is on the way."""
    for key in path:
        if not isinstance(node.value, dict) or key not in node.value:
            return node
        node = node.value[key]
    return node
