"""The Rego version of a module, as a comment line of the module itself.

OPA's formats disagree on where a version is written: a bundle's manifest lists files, a command has
a flag, and `PUT /v1/policies` and `GET /v1/policies` have neither. A line of the text stays with
the text: in digests, records of last good versions, the ledger, lanes, and in OPA's answers.

Invariant: a module without such a line is Rego v1; of several lines the last one counts, so that
a label, which is appended as the last line, overrides the author's. Rows of the text do not
change. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

NAME: Final = "kube-sync.io/rego-version"  # of the label, and of the line
V0: Final = 0
V1: Final = 1
_LABELS: Final = {"0": V0, "1": V1}
_LINE: Final = re.compile(rf"^#[ \t]*{re.escape(NAME)}:[ \t]*([01])[ \t\r]*$", re.MULTILINE)


def stated_version(source: str) -> int | None:
    """Return the version that the module states, None if it states none."""
    if NAME not in source:
        return None
    found = _LINE.findall(source)
    return int(found[-1]) if found else None


def version_of(source: str) -> int:
    """Return the module's version of Rego."""
    stated = stated_version(source)
    return V1 if stated is None else stated


def in_version(source: str, version: int) -> str:
    """Return the module with this version, whatever it states."""
    if version_of(source) == version:
        return source
    # After an empty line: a comment directly below METADATA would be part of it.
    return f"{source.rstrip()}\n\n# {NAME}: {version}\n"


def by_default(source: str, version: int) -> str:
    """Return the module with this version unless it states one."""
    return source if stated_version(source) is not None else in_version(source, version)


def labelled_version(labels: Mapping[str, str]) -> int | None:
    """Return the version that labels state, None if they state none. Raises ValueError."""
    return None if (text := labels.get(NAME)) is None else parsed_version(text, f"label {NAME}")


def parsed_version(text: object, where: str) -> int:
    """Parse a version. Raises ValueError, which names the place."""
    version = _LABELS.get(text) if isinstance(text, str) else None
    if version is None:
        msg = f'{where}: {text!r:.40} is no version of Rego ("0" or "1")'
        raise ValueError(msg)
    return version


def with_versions(sources: Mapping[str, str], labelled: int | None, default: int) -> dict[str, str]:
    """Return sources with the version that the label of their object states.

    Without a label a source that states no version gets the `default` one.
    """
    if labelled is not None:
        return {name: in_version(source, labelled) for name, source in sources.items()}
    return {name: by_default(source, default) for name, source in sources.items()}
