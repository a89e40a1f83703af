"""What `with` changes around an evaluation: the input, data, and functions.

Keeps true: two evaluations in equal contexts read the same. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from kube_sync.opa.analysis.paths import Path
from kube_sync.opa.analysis.values import Values

Name = tuple[str, ...]  # of a function: `data` and its path, or that of a builtin


@dataclass(frozen=True, slots=True)
class Mock:
    """What `with` puts in place of a function: another one, a rule (by its name), or a value."""

    function: Name
    instead: Name | Values


@dataclass(frozen=True, slots=True)
class Context:
    """What `input` is, and what `with` puts in place of OPA's data and of functions."""

    input: Values
    replaced: frozenset[Path] = frozenset()
    mocks: frozenset[Mock] = frozenset()

    def mock(self, function: Name) -> Name | Values | None:
        """Return what is called in place of a function, or what it returns; None: it is called."""
        return next((mock.instead for mock in self.mocks if mock.function == function), None)

    def mocking(self, function: Name, instead: Name | Values) -> Context:
        """Return the same with something in place of a function."""
        others = (mock for mock in self.mocks if mock.function != function)
        return replace(self, mocks=frozenset([*others, Mock(function, instead)]))

    def unmocked(self) -> Context:
        """Return the same as it is for what is called in place of a function."""
        return replace(self, mocks=frozenset())
