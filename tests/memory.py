"""What an object of ours holds on to, found without naming one of its attributes.

"Nothing is left behind" is a promise about memory, and no return value shows it. The garbage
collector knows what is reachable; from there on it does not matter how the code stores it.
"""

from __future__ import annotations

import gc
from typing import TypeVar

import msgspec

T = TypeVar("T")

_CONTAINERS = ("builtins", "collections")


def remembered(owner: object, kind: type[T]) -> list[T]:
    """Return every instance of `kind` that `owner` holds, itself left out.

    Followed are containers and objects of classes of kube_sync; not what those are given to call,
    for that belongs to the test.
    """
    found, seen, to_visit = list[T](), {id(owner)}, [owner]
    while to_visit:
        for one in _referents(to_visit.pop()):
            if id(one) not in seen and not isinstance(one, type):
                seen.add(id(one))
                if isinstance(one, kind):
                    found.append(one)
                if _is_followed(one):
                    to_visit.append(one)
    return found


def _referents(one: object) -> list[object]:
    if isinstance(one, dict):  # the garbage collector does not look at keys that are strings
        return [*one.keys(), *one.values()]
    if isinstance(one, msgspec.Struct):  # it may be untracked
        return [getattr(one, name) for name in one.__struct_fields__]
    attributes = getattr(one, "__dict__", {})
    others = [other for other in gc.get_referents(one) if other is not attributes]
    return [*others, *attributes.values()]


def _is_followed(one: object) -> bool:
    if callable(one):
        return False
    module = type(one).__module__
    return module in _CONTAINERS or module.startswith("kube_sync.")
