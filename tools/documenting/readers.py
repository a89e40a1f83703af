"""Which commands read which key of the configuration, derived from the code.

The types are mypy's. From what a command begins with, every function and class that is named is
followed, a class with all of its methods; where a value whose type is a section has one of its
fields taken, or is written out as a whole, that counts. So a key may be ascribed to a command that
reads it in some cases only, but not left out.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import get_args, get_type_hints

from mypy.build import BuildResult, build
from mypy.find_sources import create_source_list
from mypy.modulefinder import BuildSource
from mypy.nodes import (
    AssignmentStmt,
    ClassDef,
    Decorator,
    Expression,
    FuncDef,
    MypyFile,
    Node,
    OverloadedFuncDef,
    RefExpr,
)
from mypy.options import Options
from mypy.traverser import NameAndMemberCollector
from mypy.types import CallableType, Instance, Type, UnionType, get_proper_type

from kube_sync.config import SYSTEMS, Section, Settings, keys

ROOT = Path(__file__).resolve().parents[2]
COMMANDS: Mapping[str, tuple[str, ...]] = {
    "replicate": ("processes.commands.run_replicate",),
    "remediate": (
        "processes.commands.run_remediate",
        "processes.approving.run_approve",
        "cli.remediate._asked",
    ),
    "admit": ("processes.commands.run_admit", "processes.workers.fork"),
    "run": ("processes.commands.run_all",),
    "decisions": ("decisions.command.run",),
    "analyze": ("inspect.survey.command.run",),
    "scheduling": ("admission.scheduling.check.run",),
    "metadata": ("admission.metadata.check.run",),
    "topology": ("processes.commands.run_topology",),
    "policy-sync": (
        "processes.commands.run_policy_sync",
        "processes.approving.run_approve_removals",
    ),
    "provision": ("processes.provisioning.run_provision",),
    "healthcheck": ("cli.operate._pages",),
}
_CACHE = ROOT / ".mypy_cache/readers"
_PACKAGE = "kube_sync."
# What every process is made with: it counts for commands that read more of the section.
_FOR_ALL = _PACKAGE + "processes.context.process"
# These look at all there is, for whoever reads the file.
_NOBODY = tuple(
    f"{_PACKAGE}config.{name}." for name in ("checks", "environment", "explanation", "load")
)
# Nothing else is read of a section by a command that does not read what switches it on.
_SWITCHES = {
    "policies.labelled.": "policies.labelled.namespaces",
    "observe.tracing.": "observe.listen",  # of a process that runs on
}
_Read = tuple[str, str]  # the full name of a section's class, and a field of it


@dataclass(slots=True)
class _Unit:
    """A function, a class or a constant: what it names, and what it reads."""

    names: set[str] = field(default_factory=set)
    reads: set[_Read] = field(default_factory=set)


def readers() -> Mapping[str, Sequence[str]]:
    """Return the commands that read each key, by its path, as found before in the same code.

    Raises CompileError.
    """
    digest = sha256(b"".join(path.read_bytes() for path in _sources())).hexdigest()
    kept = _CACHE / f"found-{digest}.json"
    if kept.exists():
        found: Mapping[str, Sequence[str]] = json.loads(kept.read_text(encoding="utf-8"))
        return found
    found = derived()
    for old in _CACHE.glob("found-*.json"):
        old.unlink(missing_ok=True)
    kept.write_text(json.dumps(found), encoding="utf-8")
    return found


def derived() -> Mapping[str, Sequence[str]]:
    """Return the commands that read each key, by its path; takes 10 s. Raises CompileError."""
    units = _Code(_built()).units
    paths = {(_full(key.section), key.name): key.path for key in keys() if not key.is_section}
    found: dict[str, list[str]] = defaultdict(list)
    for command, begins in COMMANDS.items():
        names = [_PACKAGE + name for name in begins]
        if missing := [name for name in (*names, _FOR_ALL) if name not in units]:
            raise KeyError(*missing)  # it was moved, and nobody would read anything
        reads = _reads(units, names)
        for read, path in paths.items():
            if read in reads:
                found[path].append(command)
    for prefix, switch in _SWITCHES.items():
        for path, commands in found.items():
            if path.startswith(prefix):
                commands[:] = [command for command in commands if command in found[switch]]
    return found


def _reads(units: Mapping[str, _Unit], begins: list[str]) -> set[_Read]:
    names, seen = list(begins), set[str]()
    while names:
        name = names.pop()
        if name in seen or name.startswith(_NOBODY):
            continue
        seen.add(name)
        if name in units:
            names += units[name].names
    reads = {read for name in seen - {_FOR_ALL} if name in units for read in units[name].reads}
    sections = {section for section, _ in reads}
    always = units[_FOR_ALL].reads if _FOR_ALL in seen else set()
    own = {f"{_PACKAGE}config.model.Observe"}  # which nothing else reads
    return reads | {read for read in always if read[0] in sections | own}


def _built() -> BuildResult:
    options = Options()
    options.export_types = options.preserve_asts = True
    options.ignore_errors = options.ignore_missing_imports = True
    options.no_site_packages = True  # their types say nothing of ours, and take long to read
    options.python_version = (3, 11)
    options.cache_dir = str(_CACHE)
    found = create_source_list([str(ROOT / "kube_sync")], options)
    # With their texts ours are read anew, trees and all; Python's own come from the cache.
    return build([_with_text(source) for source in found], options)


def _with_text(source: BuildSource) -> BuildSource:
    text = Path(source.path or "").read_text(encoding="utf-8")
    return BuildSource(source.path, source.module, text)


def _sources() -> list[Path]:
    return [Path(__file__), *sorted((ROOT / "kube_sync").rglob("*.py"))]


def _full(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


class _Code:
    """All units of the package, by their full names."""

    def __init__(self, result: BuildResult) -> None:
        self.units: dict[str, _Unit] = defaultdict(_Unit)
        self._types = result.types
        self._sections = {_full(key.section): key.section for key in keys()}
        for name, tree in result.files.items():
            if name.startswith(_PACKAGE):
                self._take(tree)

    def _take(self, tree: MypyFile) -> None:
        for name, node in _declared(tree, self._sections):
            found = NameAndMemberCollector()
            node.accept(found)
            self._fill(self.units[name], found)
            self.units[tree.fullname].names.add(name)

    def _fill(self, unit: _Unit, found: NameAndMemberCollector) -> None:
        refs: list[RefExpr] = [*found.name_exprs, *found.member_exprs]
        unit.names |= {ref.fullname for ref in refs if ref.fullname.startswith(_PACKAGE)}
        for member in found.member_exprs:
            for section in self._sections_of(member.expr):
                if member.name in section.__struct_fields__:
                    unit.reads.add((_full(section), member.name))
                else:  # a method
                    unit.names.add(f"{_full(section)}.{member.name}")
        if "to_builtins" in {member.name for member in found.member_exprs}:
            for section in {section for ref in refs for section in self._written_out(ref)}:
                for one in (section, *_items(section)):
                    unit.reads |= {(_full(one), name) for name in one.__struct_fields__}

    def _written_out(self, ref: RefExpr) -> Iterator[type[Section]]:
        """Yield the sections that are meant, by a value or by what is called, as a whole."""
        for name in _named(self._types.get(ref)):
            if name == _full(Section):
                for system in SYSTEMS.values():  # whichever is built in
                    yield type(system.section(Settings()))
            elif name in self._sections and name != _full(Settings):
                yield self._sections[name]

    def _sections_of(self, expression: Expression) -> list[type[Section]]:
        names = _named(self._types.get(expression))
        return [self._sections[name] for name in names if name in self._sections]


def _items(section: type[Section]) -> Iterator[type[Section]]:
    """Yield the sections that a section has lists of, which are written out with it."""
    for kind in get_type_hints(section).values():
        for part in get_args(kind):
            if isinstance(part, type) and issubclass(part, Section):
                yield part


def _named(kind: Type | None) -> Iterator[str]:
    """Yield the full names of the classes that a value may be of, or what it returns."""
    match get_proper_type(kind):
        case UnionType(items=items):
            for item in items:
                yield from _named(item)
        case CallableType(ret_type=returned):
            yield from _named(returned)
        case Instance(type=info):
            yield info.fullname


def _declared(tree: MypyFile, sections: Mapping[str, object]) -> Iterator[tuple[str, Node]]:
    """Yield what a module declares by full names: of sections each method, as they are many."""
    for node in tree.defs:
        match node:
            case ClassDef(fullname=name) if name in sections:
                yield from ((_name(m), m) for m in node.defs.body if _name(m))
            case AssignmentStmt():
                yield from ((_name(part), node) for part in node.lvalues if _name(part))
            case _ if _name(node):
                yield _name(node), node


def _name(node: Node) -> str:
    if isinstance(node, FuncDef | Decorator | OverloadedFuncDef | ClassDef | RefExpr):
        return node.fullname
    return ""
