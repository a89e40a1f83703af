"""Under which licence each part comes, read from what is installed and kept in docs/licences.md.

Python distributions say it in their metadata; Go modules only by the text of a file in the module
cache, which a machine has where OPA was built on it. So the page is written on such a machine and
checked everywhere: it has to name exactly the parts that are shipped.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable, Mapping
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path

from tools.supply.parts import Part

PAGE = Path("docs/licences.md")
_HEAD = """\
# Licences

This page lists the licence of each part of the image as an SPDX expression, without Python, the C
libraries that Python loads, and kube-sync itself (Apache-2.0). It is written by
`python -m tools.supply licences` and checked by `make check`; do not edit.

| part | version | licence |
|---|---|---|
"""
# What older metadata says in words of its own.
_SPDX = {"Apache 2.0": "Apache-2.0", "PSF": "PSF-2.0"}
_TEXTS = (
    ("Apache-2.0", r"Apache License\s+Version 2\.0"),
    ("MPL-2.0", r"Mozilla Public License,?\s+[Vv]ersion 2\.0"),
    ("ISC", r"Permission to use, copy, modify, and/or distribute|ISC License"),
    ("MIT", r"Permission is hereby granted, free of charge"),
    ("BSD-3-Clause", r"Redistribution and use in source(?s:.)*Neither the name"),
    ("BSD-2-Clause", r"Redistribution and use in source"),
)
_FILES = re.compile(r"licen[sc]e|copying", re.IGNORECASE)


def licence_of(part: Part) -> str | None:
    """Return the licence of a part as it is to be found on this machine, None where it is not."""
    return _of_distribution(part.name) if part.ecosystem == "pypi" else _of_module(part)


def page(parts: Iterable[Part], licences: Mapping[str, str]) -> str:
    """Return the text of the page."""
    rows = [f"| {p.name} | {p.version} | {licences[p.url]} |\n" for p in sorted(parts)]
    return _HEAD + "".join(rows)


def told(text: str) -> dict[tuple[str, str], str]:
    """Return the licences on the page, by name and version."""
    rows = re.findall(r"^\| (\S+) \| (\S+) \| ([^|]+) \|$", text, re.MULTILINE)
    return {(name, version): licence for name, version, licence in rows if name != "part"}


def _of_distribution(name: str) -> str | None:
    try:
        found = metadata(name)
    except PackageNotFoundError:
        return None
    said = next((found[name] for name in ("License-Expression", "License") if name in found), "")
    return _SPDX.get(said, said) or None


def _of_module(part: Part) -> str | None:
    folder = _module_cache() / f"{_escaped(part.name)}@{_escaped(part.version)}"
    if not folder.is_dir():
        return None
    texts = [
        file.read_text(encoding="utf-8", errors="replace")
        for file in sorted(folder.iterdir())
        if file.is_file() and _FILES.match(file.name)
    ]
    return classified("\n".join(texts))


def classified(text: str) -> str | None:
    """Return the licence whose words a text has; of those that it has, the first that is known."""
    return next((name for name, words in _TEXTS if re.search(words, text)), None)


def _module_cache() -> Path:
    folder = os.environ.get("GOMODCACHE")
    if folder is None:
        try:
            asked = subprocess.run(
                ["go", "env", "GOMODCACHE"], capture_output=True, text=True, check=True
            )
            folder = asked.stdout.strip()
        except (OSError, subprocess.CalledProcessError):
            folder = str(Path.home() / "go/pkg/mod")
    return Path(folder)


def _escaped(text: str) -> str:
    """Write capitals as the module cache does, for file systems that do not tell case apart."""
    return re.sub(r"[A-Z]", lambda found: "!" + found[0].lower(), text)
