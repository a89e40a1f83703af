"""Every field as an environment variable: its name, and its text as a value.

A variable is `KUBE_SYNC_` and the field's path in capitals, joined by `_`
(`opa.token_file` is `KUBE_SYNC_OPA_TOKEN_FILE`); it wins over the file. Which variables are set is
handed in: this module does not look.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import msgspec

from kube_sync.config.kinds import Section
from kube_sync.config.model import Settings
from kube_sync.errors import Misconfigured
from kube_sync.yamlnodes import NotYaml, Rules, plain, single

ENV_PREFIX = "KUBE_SYNC_"
YAML = Rules(words=True, any_number=True)


@dataclass(frozen=True, slots=True)
class Field:
    """One leaf of the configuration and the environment variable that overrides it."""

    path: str  # dotted, as in `opa.token_file`
    type: Any
    attribute: str = ""  # where it is in Settings, if not at its path

    @property
    def variable(self) -> str:
        """The environment variable's name."""
        return ENV_PREFIX + self.path.replace(".", "_").upper()

    def of(self, settings: Settings) -> object:
        """Return its value."""
        return attrgetter(self.attribute or self.path)(settings)


def fields(
    section: type[Section] = Settings, prefix: str = "", attributes: str = ""
) -> Iterator[Field]:
    """Yield every leaf of the configuration, in the order of the file."""
    kinds = get_type_hints(section, include_extras=True)
    for found in msgspec.structs.fields(section):
        kind, attribute = kinds[found.name], attributes + found.name
        path = prefix + found.encode_name  # as the file spells it
        if isinstance(kind, type) and issubclass(kind, Section):
            yield from fields(kind, path + ".", attribute + ".")
        else:
            yield Field(path, kind, attribute)


def override(document: dict[str, Any], environment: Mapping[str, str]) -> None:
    """Put the variables that are set into `document`. Raises Misconfigured."""
    for field in fields():
        if (text := environment.get(field.variable)) is not None:
            _put(document, field.path, _from_text(field, text))


def _put(document: dict[str, Any], path: str, value: object) -> None:
    *parents, leaf = path.split(".")
    for parent in parents:
        below = document.get(parent)
        if not isinstance(below, dict):  # absent, null, or invalid: then the validation names it
            if below is not None:
                return
            below = document[parent] = {}
        document = below
    document[leaf] = value


def _from_text(field: Field, text: str) -> object:
    # Text stays text: YAML would read the path "0123" as a number.
    optional = type(None) in get_args(field.type)
    if _is_text(field.type):
        return None if text in ("", "null") and optional else text
    try:
        node = single(text, YAML, "value")
    except NotYaml as error:
        msg = f"{field.path}: {field.variable}: {error}"
        raise Misconfigured(msg) from error
    return None if node is None else plain(node)


def _is_text(kind: object) -> bool:
    """Return whether all values of a kind but null are text, whatever their constraints."""
    parts = get_args(kind)
    if get_origin(kind) is Annotated:
        return parts[0] is str
    if type(None) in parts:
        return all(_is_text(part) for part in parts if part is not type(None))
    return kind is str
