"""Reads one case: its target, and its changes of the scenario's world.

Invariant: to change or remove a missing object, or to add an existing one, is an error,
since it would be a misspelt name.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kube_sync.config import CLUSTERS
from kube_sync.inspect.scenarios.collections import InvalidObject
from kube_sync.inspect.scenarios.format import Given, keys
from kube_sync.inspect.scenarios.initial_objects import InitialObjects, read_body, read_facts
from kube_sync.inspect.scenarios.strict_yaml import StrictReader
from kube_sync.kube.collection import Item
from kube_sync.objects import ObjectKey
from kube_sync.yamlnodes import Node

_KEYS: Final = keys(Given)
_SHOWN: Final = 5  # existing names in a message

Place = tuple[str, ObjectKey]  # a collection's name, and the key of an object


class CaseReader:
    """Reads one case's changes."""

    def __init__(self, initial: InitialObjects, reader: StrictReader) -> None:
        self._initial = initial
        self._reader = reader
        self.changes: dict[str, dict[ObjectKey, Item | None]] = {}

    @property
    def fleet(self) -> frozenset[str]:
        """The names of all clusters in this case's world."""
        changed = self.changes.get(CLUSTERS, {})
        left = self._initial.objects.get(CLUSTERS, {}).keys() - changed.keys()
        return frozenset(
            key.name for key in {*left, *(key for key, item in changed.items() if item is not None)}
        )

    def target(self, node: Node) -> Place | None:
        """Return the target of the case: the one object of a name, or an object that it adds."""
        targets = self._initial.collections.targets
        if not isinstance(node.value, dict):
            return self._find(node, self._reader.text(node), targets)
        if (body := read_body(node, self._reader)) is None:
            return None
        try:
            found = self._initial.collections.items_of(body)
        except InvalidObject as error:
            self._reader.add_problem(node, str(error))
            return None
        for name, item in found:
            self.changes.setdefault(name, {})[item.key] = item
        places = [(name, item.key) for name, item in found if name in targets]
        if not places:
            names = ", ".join(sorted(targets))
            self._reader.add_problem(node, f"nothing is decided of it: it is none of the {names}")
        return places[0] if places else None

    def change(self, node: Node, target: Place | None) -> None:
        """Read the changes below `given`."""
        found = self._reader.members(node, _KEYS)
        if node.value == {}:
            self._reader.add_problem(node, "nothing is given: leave it out")
        if "object" in found and target is not None:
            self._change_one(found["object"], target)
        if "clusters" in found:
            self._change_all(found["clusters"], [CLUSTERS])
        if "objects" in found:
            self._change_all(found["objects"], self._initial.collections.places)
        for name, below in self._reader.entries(found["joins"]).items() if "joins" in found else ():
            self._join(name, below)
        if target is not None and self._current(target) is None:
            self._reader.add_problem(node, "what the case is about is taken away")

    def _change_all(self, node: Node, names: Iterable[str]) -> None:
        for name, below in self._reader.entries(node).items():
            place = self._find(below, name, names)
            if place is None:
                continue
            if below.value is None:
                self.changes.setdefault(place[0], {})[place[1]] = None
            else:
                self._change_one(below, place)

    def _change_one(self, node: Node, place: Place) -> None:
        facts = read_facts(node, self._reader, removes=True)
        name, key = place
        item = self._current(place)
        if facts is None or item is None:
            return
        try:
            changed = self._initial.collections.item_with_facts(name, item, facts)
        except InvalidObject as error:
            self._reader.add_problem(node, str(error))
        else:
            self.changes.setdefault(name, {})[key] = changed

    def _join(self, name: str, node: Node) -> None:
        if (item := self._initial.item_of_facts(name, node)) is None:
            return
        if self._current((CLUSTERS, item.key)) is not None:
            self._reader.add_problem(node, f"the cluster {item.key} is there already (`clusters`)")
        self.changes.setdefault(CLUSTERS, {})[item.key] = item

    def _current(self, place: Place) -> Item | None:
        name, key = place
        changed = self.changes.get(name, {})
        return changed[key] if key in changed else self._initial.objects[name].get(key)

    def _find(self, node: Node, name: str, names: Iterable[str]) -> Place | None:
        """Return the one object of a name: `[collection/][namespace/]name`."""
        if not name:
            return None
        places = [(n, k) for n in sorted(names) for k in self._initial.objects.get(n, ())]
        fits = [p for p in places if name in _spellings(p)]
        if len(fits) == 1:
            return fits[0]
        if fits:
            several = " or ".join(f"{name}/{key}" for name, key in fits)
            self._reader.add_problem(node, f"{name} may be {several}: say which")
        else:
            existing = ", ".join(f"{key}" for _, key in places[:_SHOWN])
            more = ", …" if len(places) > _SHOWN else ""
            self._reader.add_problem(node, f"there is no {name} ({existing or 'nothing'}{more})")
        return None


def _spellings(place: Place) -> tuple[str, ...]:
    name, key = place
    return (key.name, str(key), f"{name}/{key.name}", f"{name}/{key}")
