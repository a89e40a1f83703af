"""What a plan is asked for: the edit, what it is compared with, and the form of the answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Form = Literal["table", "json", "markdown", "summary"]


@dataclass(frozen=True, slots=True)
class Request:
    """What to plan with, what to compare it with, and how to print it."""

    files: tuple[str, ...] = ()  # candidates: ConfigMaps, Rego, folders of both
    instead: bool = False
    staged: bool = False
    candidates: tuple[str, ...] = ()  # with staged: only these
    unloaded: tuple[str, ...] = ()  # policies that leave
    clusters: tuple[str, ...] = ()  # files
    fields: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    exported: str | None = None  # None: the configured cluster; "-": standard input
    cluster_scoped: frozenset[str] = frozenset()
    form: Form = "table"
    every: bool = False
