"""Loads file and environment into validated Settings, and formats Settings as YAML.

Every error is one Misconfigured line that begins with the path of the field and names the source
of the value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, get_args, get_type_hints

import msgspec
import yaml

from kube_sync import CONFIG_ENV
from kube_sync.config.addresses import masked
from kube_sync.config.checks import check
from kube_sync.config.environment import YAML, fields, override
from kube_sync.config.kinds import Section
from kube_sync.config.model import Settings
from kube_sync.config.remediation import Mode, PlacementForm
from kube_sync.config.replication import DEFAULT_TARGET, WarningCode
from kube_sync.config.rules import SystemName
from kube_sync.errors import Misconfigured
from kube_sync.yamlnodes import NotYaml, plain, single

_NAMES = ("as", "resource")  # keys of a replicated resource


@dataclass(frozen=True, slots=True)
class Source:
    """Where a configuration comes from, so that it can be read again."""

    file: str | None
    environment: Mapping[str, str]

    def read(self) -> bytes:
        """Return the content of the file, nothing without one. Raises Misconfigured."""
        if not self.file:
            return b""
        try:
            return Path(self.file).read_bytes()
        except OSError as error:
            msg = f"configuration file {self.file}: {error.strerror}"
            raise Misconfigured(msg) from error

    def load(self, content: bytes) -> Settings:
        """Parse the file's content, apply the environment, validate. Raises Misconfigured."""
        document = self._document(content)
        _without_absent_targets(document)
        try:
            settings = msgspec.convert(document, Settings)
        except msgspec.ValidationError as error:
            raise Misconfigured(_explain(str(error), self.file, self.environment)) from error
        check(settings)
        return settings

    def names(self, content: bytes, path: str) -> bool:
        """Return whether file or environment say something at `path`. Raises Misconfigured."""
        found: object = self._document(content)
        for key in path.split("."):
            if not isinstance(found, dict) or key not in found:
                return False
            found = found[key]
        return True

    def overridden(self, path: str, value: str) -> Source:
        """Return the same with another value at `path`, as of its variable."""
        (field,) = (one for one in fields() if one.path == path)
        return replace(self, environment={**self.environment, field.variable: value})

    def _document(self, content: bytes) -> dict[str, Any]:
        document = _parsed(content, self.file or "")
        override(document, self.environment)
        return document


def source_of(file: str | None, environment: Mapping[str, str]) -> Source:
    """Return `file`, or the one that KUBE_SYNC_CONFIG names, with the environment."""
    return Source(file or environment.get(CONFIG_ENV), environment)


def load_settings(file: str | None, environment: Mapping[str, str]) -> Settings:
    """Read the configuration once. Raises Misconfigured."""
    source = source_of(file, environment)
    return source.load(source.read())


def effective(settings: Settings) -> str:
    """Return the settings as YAML, with passwords in URLs and the token masked."""
    document = msgspec.to_builtins(settings)
    own = document["EnforceSchedulingPolicy"]
    for section in (document["opa"], document["decisions"], document["admission"]["engine"], own):
        section["url"] = section["url"] and masked(section["url"])
    own["token"] = own["token"] and "***"
    return yaml.safe_dump(document, sort_keys=False)


def _parsed(content: bytes, file: str) -> dict[str, Any]:
    """Return the content of `file`, a mapping. Raises Misconfigured."""
    try:
        node = single(content.decode(), YAML, "configuration")
    except (NotYaml, UnicodeError) as error:
        reason = error if isinstance(error, NotYaml) else f"not YAML: {error}"
        msg = f"configuration file {file}: {reason}"
        raise Misconfigured(msg) from error
    document = {} if node is None else _without_nulls(plain(node))
    if not isinstance(document, dict):
        msg = f"configuration file {file}: expected a mapping, found {type(document).__name__}"
        raise Misconfigured(msg)
    return document


def _without_absent_targets(document: dict[str, Any]) -> None:
    """Decide on nothing where nobody says on what, and ReplicaSets are not replicated.

    Under another name they still are: then the default is wrong, which the validation says.
    """
    replicate, placement = document.get("replicate"), document.setdefault("placement", {})
    resources = replicate.get("resources") if isinstance(replicate, dict) else None
    if not isinstance(resources, list) or not isinstance(placement, dict):
        return
    known = [one.get(key) for one in resources if isinstance(one, dict) for key in _NAMES]
    if DEFAULT_TARGET not in known:
        placement.setdefault("resources", [])


def _without_nulls(value: object, section: type[Section] | None = Settings) -> object:
    """Drop null values of mappings: an empty section or field means its default.

    Those of keys that a section does not have stay, so that the validation names them.
    """
    if not isinstance(value, dict):
        return value
    known = {} if section is None else _sections(section)
    return {
        key: _without_nulls(below, known.get(key))
        for key, below in value.items()
        if below is not None or (section is not None and key not in known)
    }


@cache
def _sections(section: type[Section]) -> Mapping[str, type[Section] | None]:
    """Return the keys of a section, with the sections that some of them are."""
    kinds = get_type_hints(section)
    found = {one.encode_name: kinds[one.name] for one in msgspec.structs.fields(section)}
    return {
        name: kind if isinstance(kind, type) and issubclass(kind, Section) else None
        for name, kind in found.items()
    }


def _explain(message: str, source: str | None, environment: Mapping[str, str]) -> str:
    """Convert msgspec's `what - at `$.a.b`` into `a.b: what`."""
    what, _, where = message.partition(" - at ")
    # A key of a mapping is at "`key` in `$.a.b`".
    path = where.removeprefix("`key` in ").strip("`").removeprefix("$").removeprefix(".")
    if unknown := re.search(r"unknown field `(?P<name>[^`]*)`", what):
        path = f"{path}.{unknown['name']}".lstrip(".")
        what = "unknown key"
        if re.search("[“”]", path):
            what += " (its curly quotes are read as part of the key; use straight quotes)"
    if what.startswith("Invalid enum value"):
        what += f"; known: {', '.join(_choices(path))}"
    variables = [f.variable for f in fields() if f.path == path and f.variable in environment]
    origin = variables[0] if variables else source
    suffix = f" (in {origin})" if origin else ""
    return f"{path or 'configuration'}: {what[:1].lower()}{what[1:]}{suffix}"


def _choices(path: str) -> list[str]:
    """Return the values of the field at `path`, if it is an enumeration."""
    if path.endswith("].fields"):
        return ["all", "auto", "a list of paths"]
    if path == "remediate.namespaces[...]":
        return list(get_args(Mode))
    if path.startswith("builtin["):
        return list(get_args(SystemName))
    if path.endswith(".placements[...]"):
        return list(get_args(PlacementForm))
    if path.startswith("policies.warnings"):
        return ["off"] if path.endswith("[...]") else list(get_args(WarningCode))
    return [str(c) for field in fields() if field.path == path for c in get_args(field.type)]
