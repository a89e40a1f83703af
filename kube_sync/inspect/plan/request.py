"""What a plan is asked for: the edit, what it is compared with, and the form of the answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:  # slow
    from kube_sync.guard.selectors import Requirement
    from kube_sync.kube.naming import Reference

Form = Literal["text", "wide", "json", "name", "markdown", "summary"]


@dataclass(frozen=True, slots=True)
class Request:
    """What to plan with, what to compare it with, and how to print it."""

    files: tuple[str, ...] = ()  # candidates: ConfigMaps, Rego, folders of both
    instead: bool = False
    staged: bool = False
    candidates: tuple[str, ...] = ()  # with staged: only these
    stages: tuple[str, ...] = ("candidate",)  # with staged: of which stages
    unloaded: tuple[str, ...] = ()  # policies that leave
    clusters: tuple[str, ...] = ()  # files
    fields: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    exported: str | None = None  # None: the configured cluster; "-": standard input
    cluster_scoped: frozenset[str] = frozenset()
    form: Form = "text"
    every: bool = False
    sarif: str | None = None  # a file for the report for code scanning
    of: tuple[Reference, ...] = ()  # the workloads that are printed, none: all
    namespace: str | None = None  # None: all
    labels: tuple[Requirement, ...] = ()  # of the workloads that are printed
