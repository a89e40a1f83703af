"""The effect of `with` on an evaluation: replaced input, data and functions.

Invariant: two evaluations in equal contexts read the same. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from kube_sync.opa.analysis.paths import Path
from kube_sync.opa.analysis.values import Values

Name = tuple[str, ...]  # of a function: `data` and its path, or the name of a builtin


@dataclass(frozen=True, slots=True)
class Mock:
    """The replacement of a function by `with`: another function, a rule (by name), or a value."""

    function: Name
    instead: Name | Values


@dataclass(frozen=True, slots=True)
class Context:
    """The value of `input`, and what `with` replaces of OPA's data and of functions."""

    input: Values
    replaced: frozenset[Path] = frozenset()
    mocks: frozenset[Mock] = frozenset()

    def mock(self, function: Name) -> Name | Values | None:
        """Return the replacement of a function, or its result; None: it is not replaced."""
        return next((mock.instead for mock in self.mocks if mock.function == function), None)

    def mocking(self, function: Name, instead: Name | Values) -> Context:
        """Return a copy of the context in which `instead` replaces a function."""
        others = (mock for mock in self.mocks if mock.function != function)
        return replace(self, mocks=frozenset([*others, Mock(function, instead)]))

    def unmocked(self) -> Context:
        """Return a copy of the context without mocks, for the body of a replacement function."""
        return replace(self, mocks=frozenset())
